package kernel

import "runtime"

// PeakInt8 and PeakFloat are the yardsticks of products: they do nothing but the
// multiply-adds that the active implementation's kernels are made of, on registers, as
// many in flight as the CPU can take. They do n rounds and return the number of
// multiply-adds.
//
// In plain Go they are what the compiler makes of the simplest loop.

// PeakInt8 multiplies bytes into 32-bit sums.
func PeakInt8(n int) (macs int) { return max(n, 0) * peakInt8(n) }

// PeakFloat multiplies and adds float32 numbers.
func PeakFloat(n int) (macs int) { return max(n, 0) * peakFloat(n) }

// The generic rounds: 64 multiply-adds.

func peakInt8Generic(n int) (perRound int) {
	var w, x [8]int8
	for i := range w {
		w[i], x[i] = int8(i+1), int8(n+i)
	}
	var a, b, c, d int32
	for range n {
		for range 8 {
			a += int32(w[0])*int32(x[0]) + int32(w[1])*int32(x[1])
			b += int32(w[2])*int32(x[2]) + int32(w[3])*int32(x[3])
			c += int32(w[4])*int32(x[4]) + int32(w[5])*int32(x[5])
			d += int32(w[6])*int32(x[6]) + int32(w[7])*int32(x[7])
		}
	}
	runtime.KeepAlive(float32(a + b + c + d)) // or the loops would be dropped
	return 64
}

func peakFloatGeneric(n int) (perRound int) {
	x, y := float32(n), float32(0.5)
	var a [8]float32
	for range n {
		for range 8 {
			for i := range a {
				a[i] += x * y
			}
		}
	}
	runtime.KeepAlive(a[0] + a[1] + a[2] + a[3] + a[4] + a[5] + a[6] + a[7]) // or the loops would be dropped
	return 64
}
