//go:build !purego

#include "go_asm.h"
#include "textflag.h"
#include "int8_avx2_amd64.h"

// Q4_0: f16 scale, 16 bytes: columns 0-15 in the low halves, 16-31 in the high ones.
// A weight stands for itself minus 8; n8 of the activations undoes that. The products
// of a whole block, eight times two of at most 15*127, fit 16 bits.

// Y15 is 1 in each 16-bit lane, Y14 0x0f in each byte; 16-bit sums in Y5 and Y6.

#define FIRST(x, I) \
	VPBROADCASTD 0 x, Y1; \
	VPMADDUBSW Y1, Y0, I
#define DOT(k, x, I) \
	VPBROADCASTD (4*k) x, Y1; \
	VPMADDUBSW Y1, Y0, Y1; \
	VPADDW Y1, I, I
#define FIRST1 \
	FIRST((SI), Y5)
#define FIRST2 \
	FIRST((SI), Y5); \
	FIRST((SI)(DX*1), Y6)
#define DOT1(k) \
	DOT(k, (SI), Y5)
#define DOT2(k) \
	DOT(k, (SI), Y5); \
	DOT(k, (SI)(DX*1), Y6)

#define FINISH(x, I, A, T) \
	VPBROADCASTD actBlock_n8 x, T; \
	VPMADDWD Y15, I, I; \
	VPADDD T, I, I; \
	ADD(x, Y7, I, A, T)
#define FINISH1 \
	FINISH((SI), Y5, Y12, Y1)
#define FINISH2 \
	FINISH((SI), Y5, Y12, Y1); \
	FINISH((SI)(DX*1), Y6, Y13, Y2)

#define LOW(W) \
	VPAND Y14, W, Y0
#define HIGH(W) \
	VPSRLW $4, W, Y0; \
	VPAND Y14, Y0, Y0

// PACKED loads the weights of a block to Y8-Y11 and prefetches the same block of the
// rows ahead, 144 bytes.
#define PACKED \
	ROWS8(2); \
	PREFETCHT1 (R15); \
	TRANSPOSE(Y8, Y9, Y10, Y11); \
	PREFETCHT1 64(R15); \
	PREFETCHT1 128(R15); \
	ADDQ $144, R15

#define CONSTANTS \
	VPCMPEQW Y15, Y15, Y15; \
	VPABSW Y15, Y15; \
	MOVL $0x0f0f0f0f, AX; \
	VMOVD AX, X14; \
	VPBROADCASTD X14, Y14

#define NARROW(ZERO, FIRST, DOT, FINISH, STORE) \
	MOVQ a+0(FP), DI; \
	LOAD_ROWS; \
	LOAD_TOKENS; \
	CONSTANTS; \
	ZERO; \
chunk: \
	CHUNK(0, 18); \
block: \
	PACKED; \
	LOW(Y8); \
	FIRST; \
	LOW(Y9); \
	DOT(1); \
	LOW(Y10); \
	DOT(2); \
	LOW(Y11); \
	DOT(3); \
	HIGH(Y8); \
	DOT(4); \
	HIGH(Y9); \
	DOT(5); \
	HIGH(Y10); \
	DOT(6); \
	HIGH(Y11); \
	DOT(7); \
	VCVTPH2PS (BX), Y7; \
	FINISH; \
	ADDQ $16, BX; \
	ADDQ $actBlock__size, SI; \
	ADDQ $18, R8; \
	DECQ DI; \
	JNZ block; \
	TESTQ CX, CX; \
	JNZ chunk; \
	MOVQ a+0(FP), DI; \
	STORE; \
	VZEROUPPER; \
	RET

// func q4_0x1AVX2(a *tileArgs)
TEXT ·q4_0x1AVX2(SB), 0, $256-8
	NARROW(ZERO1, FIRST1, DOT1, FINISH1, STORE1)

// func q4_0x2AVX2(a *tileArgs)
TEXT ·q4_0x2AVX2(SB), 0, $256-8
	NARROW(ZERO2, FIRST2, DOT2, FINISH2, STORE2)

#define KEEP(k) \
	VMOVDQU Y0, (64*k)(SI)

// func q4_0PanelAVX2(a *tileArgs)
TEXT ·q4_0PanelAVX2(SB), 0, $256-8
	MOVQ a+0(FP), DI
	LOAD_ROWS
	MOVQ tileArgs_panel(DI), SI
	CONSTANTS
chunk:
	CHUNK(0, 18)
block:
	PACKED
	LOW(Y8)
	KEEP(0)
	LOW(Y9)
	KEEP(1)
	LOW(Y10)
	KEEP(2)
	LOW(Y11)
	KEEP(3)
	HIGH(Y8)
	KEEP(4)
	HIGH(Y9)
	KEEP(5)
	HIGH(Y10)
	KEEP(6)
	HIGH(Y11)
	KEEP(7)
	VCVTPH2PS (BX), Y7
	VMOVUPS Y7, 512(SI)
	ADDQ $16, BX
	ADDQ $576, SI
	ADDQ $18, R8
	DECQ DI
	JNZ block
	TESTQ CX, CX
	JNZ chunk
	VZEROUPPER
	RET
