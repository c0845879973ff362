//go:build !amd64 || purego

package kernel

func pause() {}
