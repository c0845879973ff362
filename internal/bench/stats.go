package bench

import "slices"

// median is the middle of x, of the two middle ones their mean; 0 of nothing.
func median(x []float64) float64 {
	if len(x) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(x))
	return (s[len(s)/2] + s[(len(s)-1)/2]) / 2
}

// limits is the smallest and the largest of x; zeros of nothing.
func limits(x []float64) (low, high float64) {
	if len(x) == 0 {
		return 0, 0
	}
	return slices.Min(x), slices.Max(x)
}
