//go:build !purego

#include "go_asm.h"
#include "textflag.h"
#include "int8_avx512_amd64.h"

// Q4_0: f16 scale, 16 bytes: columns 0-15 in the low halves, 16-31 in the high ones.
// A weight stands for itself minus 8; n8 of the activations undoes that.

// WEIGHTS gives the eight registers of a block's weights to OP; Z31 is 0x0f in each
// byte. It also prefetches the same block of the rows ahead, 288 bytes; spread out, since
// a burst of prefetches holds up the loads behind it.
#define WEIGHTS(OP) \
	ROWS16(2); \
	PREFETCHT1 (R15); \
	TRANSPOSE(Z8, Z9, Z10, Z11); \
	VPANDD Z31, Z8, Z12; \
	VPANDD Z31, Z9, Z13; \
	VPANDD Z31, Z10, Z14; \
	VPANDD Z31, Z11, Z15; \
	PREFETCHT1 64(R15); \
	OP(0, Z12); \
	OP(1, Z13); \
	OP(2, Z14); \
	OP(3, Z15); \
	PREFETCHT1 128(R15); \
	VPSRLW $4, Z8, Z8; \
	VPSRLW $4, Z9, Z9; \
	VPSRLW $4, Z10, Z10; \
	VPSRLW $4, Z11, Z11; \
	PREFETCHT1 192(R15); \
	VPANDD Z31, Z8, Z8; \
	VPANDD Z31, Z9, Z9; \
	VPANDD Z31, Z10, Z10; \
	VPANDD Z31, Z11, Z11; \
	PREFETCHT1 256(R15); \
	OP(4, Z8); \
	OP(5, Z9); \
	OP(6, Z10); \
	OP(7, Z11); \
	ADDQ $288, R15

#define CONSTANTS \
	MOVL $0x0f0f0f0f, AX; \
	VPBROADCASTD AX, Z31

#define NARROW(ZERO, INIT, DOT, ADD, STORE) \
	MOVQ a+0(FP), DI; \
	LOAD_ROWS; \
	LOAD_TOKENS; \
	CONSTANTS; \
	ZERO; \
	RING_START(0, 18); \
block: \
	INIT(actBlock_n8); \
	RING_AHEAD(0, 18) \
	WEIGHTS(DOT); \
	VCVTPH2PS ring-256(SP)(BX*1), Z24; \
	ADD; \
	RING_NEXT; \
	ADDQ $actBlock__size, SI; \
	STEP(18); \
	DECQ CX; \
	JNZ block; \
	MOVQ a+0(FP), DI; \
	STORE; \
	VZEROUPPER; \
	RET

// FOUR leaves the partial sums of four rows, 16 bytes each in W, in I. The activations
// of columns 0-15 are in each lane of Z26, of 16-31 in Z27.
#define FOUR(W, I) \
	VPXORD I, I, I; \
	VPSRLW $4, W, Z4; \
	VPANDD Z31, W, W; \
	VPANDD Z31, Z4, Z4; \
	VPDPBUSD Z26, W, I; \
	VPDPBUSD Z27, Z4, I

// func q4_0x1AVX512(a *tileArgs)
TEXT ·q4_0x1AVX512(SB), 0, $272-8
	MOVQ a+0(FP), DI
	LOAD_ROWS
	LOAD_TOKENS
	CONSTANTS
	ONES
	ZERO1
	RING_START(0, 18)
block:
	VBROADCASTI32X4 (SI), Z26
	VBROADCASTI32X4 16(SI), Z27
	RING_AHEAD(0, 18)
	ROWS16(2)
	PREFETCHT1 (R15)
	FOUR(Z0, Z8)
	PREFETCHT1 64(R15)
	FOUR(Z1, Z9)
	PREFETCHT1 128(R15)
	FOUR(Z2, Z10)
	PREFETCHT1 192(R15)
	FOUR(Z3, Z11)
	PREFETCHT1 256(R15)
	ADDQ $288, R15
	TWOROWS(Z8, Z9)
	TWOROWS(Z10, Z11)
	FOURROWS(Z8, Z10, Z16)
	VPADDD.BCST actBlock_n8(SI), Z16, Z16
	VCVTPH2PS ring-256(SP)(BX*1), Z24
	ADD1
	RING_NEXT
	ADDQ $actBlock__size, SI
	STEP(18)
	DECQ CX
	JNZ block
	MOVQ a+0(FP), DI
	STORE1
	VZEROUPPER
	RET

// func q4_0x2AVX512(a *tileArgs)
TEXT ·q4_0x2AVX512(SB), 0, $272-8
	NARROW(ZERO2, INIT2, DOT2, ADD2, STORE2)

// func q4_0x4AVX512(a *tileArgs)
TEXT ·q4_0x4AVX512(SB), 0, $272-8
	NARROW(ZERO4, INIT4, DOT4, ADD4, STORE4)

// KEEP writes a register to the panel, with an offset of 128 in all, as Q8_0 has it.
#define KEEP(k, W) \
	VPADDB Z30, W, W; \
	VMOVDQU64 W, (64*k)(SI)

// func q4_0PanelAVX512(a *tileArgs)
TEXT ·q4_0PanelAVX512(SB), 0, $272-8
	MOVQ a+0(FP), DI
	LOAD_ROWS
	MOVQ tileArgs_panel(DI), SI
	CONSTANTS
	MOVL $0x78787878, AX
	VPBROADCASTD AX, Z30
	RING_START(0, 18)
block:
	RING_AHEAD(0, 18)
	WEIGHTS(KEEP)
	VCVTPH2PS ring-256(SP)(BX*1), Z24
	VMOVUPS Z24, 512(SI)
	RING_NEXT
	ADDQ $1152, SI
	STEP(18)
	DECQ CX
	JNZ block
	VZEROUPPER
	RET
