//go:build !purego

#include "go_asm.h"
#include "textflag.h"
#include "int8_avx512_amd64.h"

// Q8_0: f16 scale, 32 signed bytes. The weights become unsigned by flipping their top
// bits (w+128); n128 of the activations undoes that.

// WEIGHTS gives the eight registers of a block's weights to OP. It also prefetches the
// same block of the rows ahead, 544 bytes; spread out, since a burst of prefetches holds
// up the loads behind it.
#define WEIGHTS(OP) \
	ROWS16(2); \
	PREFETCHT1 (R15); \
	TRANSPOSE(Z8, Z9, Z10, Z11); \
	PREFETCHT1 64(R15); \
	VPXORD Z31, Z8, Z8; \
	VPXORD Z31, Z9, Z9; \
	VPXORD Z31, Z10, Z10; \
	VPXORD Z31, Z11, Z11; \
	PREFETCHT1 128(R15); \
	OP(0, Z8); \
	OP(1, Z9); \
	PREFETCHT1 192(R15); \
	OP(2, Z10); \
	OP(3, Z11); \
	PREFETCHT1 256(R15); \
	ROWS16(18); \
	PREFETCHT1 320(R15); \
	TRANSPOSE(Z12, Z13, Z14, Z15); \
	PREFETCHT1 384(R15); \
	VPXORD Z31, Z12, Z12; \
	VPXORD Z31, Z13, Z13; \
	VPXORD Z31, Z14, Z14; \
	VPXORD Z31, Z15, Z15; \
	PREFETCHT1 448(R15); \
	OP(4, Z12); \
	OP(5, Z13); \
	PREFETCHT1 512(R15); \
	OP(6, Z14); \
	OP(7, Z15); \
	ADDQ $544, R15

#define CONSTANTS \
	MOVL $0x80808080, AX; \
	VPBROADCASTD AX, Z31

#define NARROW(ZERO, INIT, DOT, ADD, STORE) \
	MOVQ a+0(FP), DI; \
	LOAD_ROWS; \
	LOAD_TOKENS; \
	CONSTANTS; \
	ZERO; \
	RING_START(0, 34); \
block: \
	INIT(actBlock_n128); \
	RING_AHEAD(0, 34) \
	WEIGHTS(DOT); \
	VCVTPH2PS ring-256(SP)(BX*1), Z24; \
	ADD; \
	RING_NEXT; \
	ADDQ $actBlock__size, SI; \
	STEP(34); \
	DECQ CX; \
	JNZ block; \
	MOVQ a+0(FP), DI; \
	STORE; \
	VZEROUPPER; \
	RET

// FOUR adds the products of four rows, 16 bytes each in W, to their four partial sums
// in I. The activations of these columns are in each lane of X.
#define FOUR(W, X, I) \
	VPXORD Z31, W, W; \
	VPDPBUSD X, W, I

// func q8_0x1AVX512(a *tileArgs)
TEXT ·q8_0x1AVX512(SB), 0, $272-8
	MOVQ a+0(FP), DI
	LOAD_ROWS
	LOAD_TOKENS
	CONSTANTS
	ZERO1
	RING_START(0, 34)
block:
	VBROADCASTI32X4 (SI), Z26
	VBROADCASTI32X4 16(SI), Z27
	RING_AHEAD(0, 34)
	VPXORD Z8, Z8, Z8
	VPXORD Z9, Z9, Z9
	VPXORD Z10, Z10, Z10
	VPXORD Z11, Z11, Z11
	ROWS16(2)
	PREFETCHT1 (R15)
	FOUR(Z0, Z26, Z8)
	PREFETCHT1 64(R15)
	FOUR(Z1, Z26, Z9)
	PREFETCHT1 128(R15)
	FOUR(Z2, Z26, Z10)
	PREFETCHT1 192(R15)
	FOUR(Z3, Z26, Z11)
	PREFETCHT1 256(R15)
	ROWS16(18)
	PREFETCHT1 320(R15)
	FOUR(Z0, Z27, Z8)
	PREFETCHT1 384(R15)
	FOUR(Z1, Z27, Z9)
	PREFETCHT1 448(R15)
	FOUR(Z2, Z27, Z10)
	PREFETCHT1 512(R15)
	FOUR(Z3, Z27, Z11)
	ADDQ $544, R15
	VPUNPCKLDQ Z9, Z8, Z0
	VPUNPCKHDQ Z9, Z8, Z1
	VPUNPCKLDQ Z11, Z10, Z2
	VPUNPCKHDQ Z11, Z10, Z3
	VPADDD Z1, Z0, Z0
	VPADDD Z3, Z2, Z2
	VPUNPCKLQDQ Z2, Z0, Z1
	VPUNPCKHQDQ Z2, Z0, Z3
	VPADDD.BCST actBlock_n128(SI), Z1, Z1
	VPADDD Z3, Z1, Z16
	VCVTPH2PS ring-256(SP)(BX*1), Z24
	ADD1
	RING_NEXT
	ADDQ $actBlock__size, SI
	STEP(34)
	DECQ CX
	JNZ block
	MOVQ a+0(FP), DI
	STORE1
	VZEROUPPER
	RET

// func q8_0x2AVX512(a *tileArgs)
TEXT ·q8_0x2AVX512(SB), 0, $272-8
	NARROW(ZERO2, INIT2, DOT2, ADD2, STORE2)

// func q8_0x4AVX512(a *tileArgs)
TEXT ·q8_0x4AVX512(SB), 0, $272-8
	NARROW(ZERO4, INIT4, DOT4, ADD4, STORE4)

#define KEEP(k, W) \
	VMOVDQU64 W, (64*k)(SI)

// func q8_0PanelAVX512(a *tileArgs)
TEXT ·q8_0PanelAVX512(SB), 0, $272-8
	MOVQ a+0(FP), DI
	LOAD_ROWS
	MOVQ tileArgs_panel(DI), SI
	CONSTANTS
	RING_START(0, 34)
block:
	RING_AHEAD(0, 34)
	WEIGHTS(KEEP)
	VCVTPH2PS ring-256(SP)(BX*1), Z24
	VMOVUPS Z24, 512(SI)
	RING_NEXT
	ADDQ $1152, SI
	STEP(34)
	DECQ CX
	JNZ block
	VZEROUPPER
	RET
