//go:build !purego

#include "go_asm.h"
#include "textflag.h"

// Picks, out of 16 numbers, those of place 0 and those of place 1 in each four.
DATA ·quantizeActsOrder+0(SB)/8, $0x0000000400000000
DATA ·quantizeActsOrder+8(SB)/8, $0x0000000c00000008
DATA ·quantizeActsOrder+16(SB)/8, $0x0000000500000001
DATA ·quantizeActsOrder+24(SB)/8, $0x0000000d00000009
GLOBL ·quantizeActsOrder(SB), RODATA|NOPTR, $32

// MAGNITUDE leaves the largest bits, without sign, of each column of two registers.
#define MAGNITUDE(A, B, T, DST) \
	VPANDD Z31, A, DST; \
	VPANDD Z31, B, T; \
	VPMAXUD T, DST, DST

// QUANTIZE rounds 32 numbers times the reciprocal at off to bytes, at block i.
#define QUANTIZE(A, B, AX_, BX_, i) \
	VMULPS.BCST inverse-(16-4*i)(SP), A, A; \
	VMULPS.BCST inverse-(16-4*i)(SP), B, B; \
	VCVTPS2DQ A, A; \
	VCVTPS2DQ B, B; \
	VPMOVSDB A, AX_; \
	VPMOVSDB B, BX_; \
	VMOVDQU AX_, (64*i)(DI); \
	VMOVDQU BX_, (64*i+16)(DI)

// func quantize4AVX512(dst *actBlock, x *float32, n int)
//
// Quantizes n times four blocks as quantizeActsGeneric does.
TEXT ·quantize4AVX512(SB), 0, $16-24
	MOVQ dst+0(FP), DI
	MOVQ x+8(FP), SI
	MOVQ n+16(FP), CX
	MOVL $0x7fffffff, AX
	VPBROADCASTD AX, Z31
	MOVL $0x42fe0000, AX // 127
	VPBROADCASTD AX, X30
	MOVL $0x0d800000, AX // tinyAct
	VPBROADCASTD AX, X29
	MOVL $0x01010101, AX
	VPBROADCASTD AX, Z28
	VMOVDQU32 ·quantizeActsOrder(SB), Y27

four:
	VMOVUPS (SI), Z0
	VMOVUPS 64(SI), Z1
	VMOVUPS 128(SI), Z2
	VMOVUPS 192(SI), Z3
	VMOVUPS 256(SI), Z4
	VMOVUPS 320(SI), Z5
	VMOVUPS 384(SI), Z6
	VMOVUPS 448(SI), Z7

	// The largest magnitude of each block, as integers, which orders NaN above
	// infinity: from 16 columns each in Z8-Z11 to one each in X8.
	MAGNITUDE(Z0, Z1, Z12, Z8)
	MAGNITUDE(Z2, Z3, Z13, Z9)
	MAGNITUDE(Z4, Z5, Z14, Z10)
	MAGNITUDE(Z6, Z7, Z15, Z11)
	VPUNPCKLDQ Z9, Z8, Z12
	VPUNPCKHDQ Z9, Z8, Z13
	VPUNPCKLDQ Z11, Z10, Z14
	VPUNPCKHDQ Z11, Z10, Z15
	VPMAXUD Z13, Z12, Z12
	VPMAXUD Z15, Z14, Z14
	VPUNPCKLQDQ Z14, Z12, Z8
	VPUNPCKHQDQ Z14, Z12, Z9
	VPMAXUD Z9, Z8, Z8
	VEXTRACTI64X4 $1, Z8, Y9
	VPMAXUD Y9, Y8, Y8
	VEXTRACTI128 $1, Y8, X9
	VPMAXUD X9, X8, X8

	// The scales, X16, and their reciprocals. Adding X8-X8 makes infinities NaN.
	VPCMPUD $5, X29, X8, K1
	VDIVPS.Z X30, X8, K1, X16
	VSUBPS X8, X8, X18
	VADDPS X18, X16, X16
	VDIVPS.Z X8, X30, K1, X17
	VMOVUPS X17, inverse-16(SP)
	QUANTIZE(Z0, Z1, X0, X1, 0)
	QUANTIZE(Z2, Z3, X2, X3, 1)
	QUANTIZE(Z4, Z5, X4, X5, 2)
	QUANTIZE(Z6, Z7, X6, X7, 3)

	// The sums over the first and second halves of the blocks, X8 and X9.
	VINSERTI32X4 $1, X2, Z0, Z8
	VINSERTI32X4 $1, X3, Z1, Z9
	VINSERTI32X4 $2, X4, Z8, Z8
	VINSERTI32X4 $2, X5, Z9, Z9
	VINSERTI32X4 $3, X6, Z8, Z8
	VINSERTI32X4 $3, X7, Z9, Z9
	VPXORD Z10, Z10, Z10
	VPXORD Z11, Z11, Z11
	VPDPBUSD Z8, Z28, Z10
	VPDPBUSD Z9, Z28, Z11
	VPUNPCKLDQ Z11, Z10, Z8
	VPUNPCKHDQ Z11, Z10, Z9
	VPADDD Z9, Z8, Z8
	VPSHUFD $0x4e, Z8, Z9
	VPADDD Z9, Z8, Z8
	VPERMD Z8, Z27, Z8
	VEXTRACTI128 $1, Y8, X9

	// d, sd, n128, n8 of each block.
	VPADDD X9, X8, X10
	VCVTDQ2PS X10, X11
	VMULPS X16, X11, X11
	VPXOR X0, X0, X0
	VPSUBD X10, X0, X10
	VPSLLD $7, X10, X12
	VPSLLD $3, X10, X13
	VUNPCKLPS X11, X16, X1
	VUNPCKHPS X11, X16, X2
	VPUNPCKLDQ X13, X12, X3
	VPUNPCKHDQ X13, X12, X4
	VPUNPCKLQDQ X3, X1, X5
	VPUNPCKHQDQ X3, X1, X6
	VPUNPCKLQDQ X4, X2, X7
	VPUNPCKHQDQ X4, X2, X1
	VMOVDQU X5, actBlock_d(DI)
	VMOVDQU X6, (64+actBlock_d)(DI)
	VMOVDQU X7, (128+actBlock_d)(DI)
	VMOVDQU X1, (192+actBlock_d)(DI)

	// n32.
	VPSUBD X8, X0, X8
	VPSUBD X9, X0, X9
	VPSLLD $5, X8, X8
	VPSLLD $5, X9, X9
	VPUNPCKLDQ X9, X8, X1
	VPUNPCKHDQ X9, X8, X2
	VMOVLPS X1, actBlock_n32(DI)
	VMOVHPS X1, (64+actBlock_n32)(DI)
	VMOVLPS X2, (128+actBlock_n32)(DI)
	VMOVHPS X2, (192+actBlock_n32)(DI)

	ADDQ $512, SI
	ADDQ $256, DI
	DECQ CX
	JNZ four
	VZEROUPPER
	RET
