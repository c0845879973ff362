package quant

import "math"

// The searches below look for a few scales around the obvious one and keep the one
// with the smallest weighted square error. Large weights matter more for a product
// than small ones, hence the weights.

// encodeQ4_K fits a scale and a minimum to each sub-block, rounds both to six bits
// of the block's common scales, and rounds the elements with what is left.
func encodeQ4_K(b []byte, x []float32) bool {
	var scale, minimum [8]float32
	for j := range 8 {
		scale[j], minimum[j] = fitAffine(x[32*j:][:32], 15)
	}
	d, dmin := extreme(scale[:])/63, extreme(minimum[:])/63
	ok := putHalf(b, d) && putHalf(b[2:], dmin)
	d, dmin = half(b), half(b[2:]) // what the decoder will see
	clear(b[4:])
	for j := range 8 {
		s := toLevel(scale[j]*inverse(d), 0, 63)
		m := toLevel(minimum[j]*inverse(dmin), 0, 63)
		packScaleMin(b[4:16], j, byte(s), byte(m))
		step, offset := d*float32(s), dmin*float32(m)
		inv := inverse(step)
		q := b[16+j/2*32:][:32]
		for i, v := range x[32*j:][:32] {
			q[i] |= byte(toLevel((v+offset)*inv, 0, 15)) << (j % 2 * 4)
		}
	}
	return ok
}

// packScaleMin is the inverse of ScaleMinQ4K, over zeroed bytes.
func packScaleMin(packed []byte, j int, s, m byte) {
	if j < 4 {
		packed[j] |= s
		packed[j+4] |= m
		return
	}
	packed[j+4] |= s&15 | m<<4
	packed[j-4] |= s >> 4 << 6
	packed[j] |= m >> 4 << 6
}

// fitAffine finds a scale and a minimum, both at least 0, so that x is about
// scale*q - minimum with whole q in [0, top].
func fitAffine(x []float32, top int) (scale, minimum float32) {
	lo, hi := float32(0), x[0] // zero must stay representable: the minimum has no sign
	var sum2 float64
	for _, v := range x {
		lo, hi = min(lo, v), max(hi, v)
		sum2 += float64(v) * float64(v)
	}
	switch spread := hi - lo; {
	case spread < minNormal*128: // its inverse, times a level, might overflow
		return 0, -lo
	case math.IsInf(float64(spread), 0):
		return spread, 0 // refused by putHalf
	}
	rms := math.Sqrt(sum2 / float64(len(x)))
	best := math.Inf(1)
	for try := -10; try <= 10; try++ {
		inv := (float32(top) + 0.1*float32(try)) / (hi - lo)
		s, m := regress(x, rms, lo, inv, top)
		if s <= 0 {
			continue
		}
		var e float64
		for _, v := range x {
			q := toLevel((v+m)/s, 0, top)
			r := float64(s)*float64(q) - float64(m) - float64(v)
			e += (rms + math.Abs(float64(v))) * r * r
		}
		if e < best {
			best, scale, minimum = e, s, m
		}
	}
	return scale, minimum
}

// regress rounds x to levels with the inverse scale inv from lo up and returns the
// scale and minimum that weighted least squares gives for these levels.
func regress(x []float32, rms float64, lo, inv float32, top int) (scale, minimum float32) {
	var sw, sq, sqq, sx, sxq float64
	for _, v := range x {
		f := float64(v)
		q := float64(toLevel((v-lo)*inv, 0, top))
		w := rms + math.Abs(f)
		sw += w
		sq += w * q
		sqq += w * q * q
		sx += w * f
		sxq += w * f * q
	}
	det := sw*sqq - sq*sq
	if det <= 0 {
		return 0, 0
	}
	s, m := (sw*sxq-sx*sq)/det, -(sqq*sx-sq*sxq)/det
	if m < 0 {
		s, m = sxq/sqq, 0
	}
	return float32(s), float32(m)
}

// encodeQ6_K fits a signed scale to each 16 elements, rounds it to eight bits of the
// block's common scale, and rounds the elements with what is left.
func encodeQ6_K(b []byte, x []float32) bool {
	var scale [16]float32
	for j := range scale {
		scale[j] = fitSymmetric(x[16*j:][:16], 32)
	}
	ok := putHalf(b[208:], extreme(scale[:])/-128)
	d := half(b[208:])
	clear(b[:192])
	for j, s := range scale {
		sc := toLevel(s*inverse(d), -128, 127)
		b[192+j] = byte(int8(sc))
		inv := inverse(d * float32(sc))
		for i, v := range x[16*j:][:16] {
			putQ6(b, 16*j+i, byte(toLevel(v*inv, -32, 31)+32))
		}
	}
	return ok
}

// putQ6 stores the 6-bit number q as element e, over zeroed bytes (see decodeQ6_K).
func putQ6(b []byte, e int, q byte) {
	h, i := e/128, e%128
	g := i / 32
	b[64*h+i&63] |= q & 15 << (g / 2 * 4)
	b[128+32*h+i&31] |= q >> 4 << (2 * g)
}

// fitSymmetric finds a scale, of either sign, so that x is about scale*q with whole q
// in [-top, top-1].
func fitSymmetric(x []float32, top int) (scale float32) {
	e := extreme(x)
	if math.Abs(float64(e)) < minNormal*128 { // its inverse, times a level, might overflow
		return 0
	}
	best := 0.0
	for try := -9; try <= 9; try++ {
		inv := -(float32(top) + 0.1*float32(try)) / e
		var sxq, sqq float64
		for _, v := range x {
			q := float64(toLevel(v*inv, -top, top-1))
			w := float64(v) * float64(v)
			sxq += w * float64(v) * q
			sqq += w * q * q
		}
		// The error of the best scale for these levels is a constant minus sxq^2/sqq.
		if sqq > 0 && sxq*sxq > best*sqq {
			best = sxq * sxq / sqq
			scale = float32(sxq / sqq)
		}
	}
	return scale
}

// toLevel rounds f to the nearest whole number in [lo, hi].
func toLevel(f float32, lo, hi int) int {
	return int(math.Max(float64(lo), math.Min(float64(hi), math.RoundToEven(float64(f)))))
}
