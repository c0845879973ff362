//go:build !purego

#include "go_asm.h"
#include "textflag.h"

// Undoes the order in which the 128-bit lanes pack numbers.
DATA ·packOrder+0(SB)/8, $0x0000000400000000
DATA ·packOrder+8(SB)/8, $0x0000000500000001
DATA ·packOrder+16(SB)/8, $0x0000000600000002
DATA ·packOrder+24(SB)/8, $0x0000000700000003
GLOBL ·packOrder(SB), RODATA|NOPTR, $32

#define BROADCAST(bits, X, Y) \
	MOVL bits, AX; \
	VMOVD AX, X; \
	VPBROADCASTD X, Y

// func quantizeAVX2(dst *actBlock, x *float32, n int)
//
// Quantizes n blocks as quantizeActsGeneric does.
TEXT ·quantizeAVX2(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ x+8(FP), SI
	MOVQ n+16(FP), CX
	BROADCAST($0x7fffffff, X15, Y15)
	BROADCAST($0x42fe0000, X14, Y14) // 127
	BROADCAST($0x0d7fffff, X13, Y13) // just below tinyAct
	BROADCAST($0x01010101, X12, Y12)
	VMOVDQU ·ones16(SB), Y11
	VMOVDQU ·packOrder(SB), Y10

block:
	VMOVUPS (SI), Y0
	VMOVUPS 32(SI), Y1
	VMOVUPS 64(SI), Y2
	VMOVUPS 96(SI), Y3

	// The largest magnitude in all of X4, as an integer, which orders NaN above infinity.
	VPAND Y15, Y0, Y4
	VPAND Y15, Y1, Y5
	VPAND Y15, Y2, Y6
	VPAND Y15, Y3, Y7
	VPMAXUD Y5, Y4, Y4
	VPMAXUD Y7, Y6, Y6
	VPMAXUD Y6, Y4, Y4
	VEXTRACTI128 $1, Y4, X5
	VPMAXUD X5, X4, X4
	VPSHUFD $0x4e, X4, X5
	VPMAXUD X5, X4, X4
	VPSHUFD $0xb1, X4, X5
	VPMAXUD X5, X4, X4

	// The scale, X6, and its reciprocal, Y7. Adding X4-X4 makes infinities NaN.
	VPCMPGTD X13, X4, X5
	VDIVPS X14, X4, X6
	VDIVPS X4, X14, X7
	VSUBPS X4, X4, X8
	VADDPS X8, X6, X6
	VPAND X5, X6, X6
	VPAND X5, X7, X7
	VBROADCASTSS X7, Y7
	VMULPS Y7, Y0, Y0
	VMULPS Y7, Y1, Y1
	VMULPS Y7, Y2, Y2
	VMULPS Y7, Y3, Y3
	VCVTPS2DQ Y0, Y0
	VCVTPS2DQ Y1, Y1
	VCVTPS2DQ Y2, Y2
	VCVTPS2DQ Y3, Y3
	VPACKSSDW Y1, Y0, Y0
	VPACKSSDW Y3, Y2, Y2
	VPACKSSWB Y2, Y0, Y0
	VPERMD Y0, Y10, Y0
	VMOVDQU Y0, (DI)

	// The sums of the halves, AX and BX.
	VPMADDUBSW Y0, Y12, Y1
	VPMADDWD Y11, Y1, Y1
	VPHADDD Y1, Y1, Y1
	VPHADDD Y1, Y1, Y1
	VEXTRACTI128 $1, Y1, X2
	VPADDD X2, X1, X3
	VCVTDQ2PS X3, X3
	VMULSS X6, X3, X3
	VMOVD X1, AX
	VMOVD X2, BX
	VMOVSS X6, actBlock_d(DI)
	VMOVSS X3, actBlock_sd(DI)
	NEGL AX
	NEGL BX
	LEAL (AX)(BX*1), DX
	SHLL $5, AX
	SHLL $5, BX
	MOVL AX, actBlock_n32(DI)
	MOVL BX, (actBlock_n32+4)(DI)
	SHLL $3, DX
	MOVL DX, actBlock_n8(DI)
	SHLL $4, DX
	MOVL DX, actBlock_n128(DI)

	ADDQ $128, SI
	ADDQ $actBlock__size, DI
	DECQ CX
	JNZ block
	VZEROUPPER
	RET
