//go:build !amd64 || purego

package kernel

// cpuImplementations lists plain Go alone: no other is built in.
func cpuImplementations() []implementation {
	return []implementation{{name: "generic", available: true}}
}
