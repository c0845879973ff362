//go:build !amd64 || purego

package kernel

func peakInt8(n int) int  { return peakInt8Generic(n) }
func peakFloat(n int) int { return peakFloatGeneric(n) }
