//go:build !purego

package kernel

import "golang.org/x/sys/cpu"

// cpuImplementations says what this CPU can run. avx2 stands for AVX2 with FMA and
// F16C, avx512 for the foundation with BW, VL, DQ and VNNI, which every CPU with VNNI
// has.
func cpuImplementations() []implementation {
	x := &cpu.X86
	avx2 := x.HasAVX2 && x.HasFMA && x.HasF16C
	avx512 := avx2 && x.HasAVX512F && x.HasAVX512BW && x.HasAVX512VL && x.HasAVX512DQ && x.HasAVX512VNNI
	return []implementation{
		{name: "generic", available: true},
		{name: "avx2", available: avx2},
		{name: "avx512", available: avx512},
	}
}
