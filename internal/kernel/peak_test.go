package kernel

import "testing"

// Twice the rounds are twice the multiply-adds, in every implementation, and no rounds
// are none.
func TestPeak(t *testing.T) {
	forEachImpl(t, func(t *testing.T) {
		for name, peak := range map[string]func(int) int{"int8": PeakInt8, "float": PeakFloat} {
			one := peak(1)
			if one <= 0 || peak(10) != 10*one || peak(0) != 0 || peak(-1) != 0 {
				t.Errorf("%s: %d, %d, %d and %d multiply-adds in 1, 10, 0 and -1 rounds", name, one, peak(10), peak(0), peak(-1))
			}
		}
	})
}

func BenchmarkPeak(b *testing.B) {
	for name, peak := range map[string]func(int) int{"int8": PeakInt8, "float": PeakFloat} {
		b.Run(name, func(b *testing.B) {
			macs := 0
			for b.Loop() {
				macs += peak(1000)
			}
			b.ReportMetric(float64(macs)/b.Elapsed().Seconds()/1e9, "GMAC/s")
		})
	}
}
