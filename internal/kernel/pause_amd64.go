//go:build !purego

package kernel

// pause tells the CPU that this is a waiting loop.
//
//go:noescape
func pause()
