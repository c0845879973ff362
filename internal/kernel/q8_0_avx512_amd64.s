//go:build !purego

#include "go_asm.h"
#include "textflag.h"
#include "int8_avx512_amd64.h"

// Q8_0: f16 scale, 32 signed bytes. The weights become unsigned by flipping their top
// bits (w+128); n128 of the activations undoes that.

// WEIGHTS gives the eight registers of a block's weights to OP and OQ in turn. It also prefetches the
// same block of the rows ahead, 544 bytes; spread out, since a burst of prefetches holds
// up the loads behind it.
#define WEIGHTS(OP, OQ) \
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
	OQ(1, Z9); \
	PREFETCHT1 192(R15); \
	OP(2, Z10); \
	OQ(3, Z11); \
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
	OQ(5, Z13); \
	PREFETCHT1 512(R15); \
	OP(6, Z14); \
	OQ(7, Z15); \
	ADDQ $544, R15

#define CONSTANTS \
	MOVL $0x80808080, AX; \
	VPBROADCASTD AX, Z31

#define NARROW(ZERO, INIT, DOT, DOTODD, ADD, STORE) \
	MOVQ a+0(FP), DI; \
	LOAD_ROWS; \
	LOAD_TOKENS; \
	CONSTANTS; \
	ZERO; \
	RING_START(0, 34); \
block: \
	INIT(actBlock_n128); \
	RING_AHEAD(0, 34) \
	WEIGHTS(DOT, DOTODD); \
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

// func q8_0x1AVX512(a *tileArgs)
TEXT ·q8_0x1AVX512(SB), 0, $272-8
	NARROW(ZERO1, INIT1TWICE, DOT1, DOT1ODD, ADD1TWICE, STORE1)

// func q8_0x2AVX512(a *tileArgs)
TEXT ·q8_0x2AVX512(SB), 0, $272-8
	NARROW(ZERO2, INIT2, DOT2, DOT2, ADD2, STORE2)

// func q8_0x4AVX512(a *tileArgs)
TEXT ·q8_0x4AVX512(SB), 0, $272-8
	NARROW(ZERO4, INIT4, DOT4, DOT4, ADD4, STORE4)

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
	WEIGHTS(KEEP, KEEP)
	VCVTPH2PS ring-256(SP)(BX*1), Z24
	VMOVUPS Z24, 512(SI)
	RING_NEXT
	ADDQ $1152, SI
	STEP(34)
	DECQ CX
	JNZ block
	VZEROUPPER
	RET
