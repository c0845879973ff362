package bench

import "testing"

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		x    []float64
		want float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{3, 1}, 2}, {[]float64{5, 1, 3}, 3}, {[]float64{4, 1, 3, 2}, 2.5}} {
		if got := median(c.x); got != c.want {
			t.Errorf("median of %v is %g, want %g", c.x, got, c.want)
		}
	}
}

func TestSummarize(t *testing.T) {
	r := Result{BatonRuns: []float64{30, 20, 40}, PeerRuns: []float64{10, 10, 10}}
	r.summarize()
	if r.Baton != 30 || r.Peer != 10 || r.Ratio != 3 || r.Low != 2 || r.High != 4 || r.Spread != 2.0/3 {
		t.Errorf("%+v", r)
	}
	alone := Result{BatonRuns: []float64{30, 20, 40}}
	alone.summarize()
	if alone.Ratio != 0 || alone.Low != 20 || alone.High != 40 || alone.Spread != 2.0/3 {
		t.Errorf("%+v", alone)
	}
}
