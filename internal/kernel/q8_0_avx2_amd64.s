//go:build !purego

#include "go_asm.h"
#include "textflag.h"
#include "int8_avx2_amd64.h"

// Q8_0: f16 scale, 32 signed bytes. VPMADDUBSW would saturate with weights made
// unsigned by an offset, so their magnitudes are multiplied with the activations, which
// take the weights' signs: two products of at most 128*127 fit 16 bits.

// Y15 is 1 in each 16-bit lane; integer sums in Y5 (token 0) and Y6 (token 1).

#define DOT(k, W, x, I) \
	VPBROADCASTD (4*(k)) x, Y1; \
	VPSIGNB W, Y1, Y1; \
	VPMADDUBSW Y1, Y0, Y1; \
	VPMADDWD Y15, Y1, Y1; \
	VPADDD Y1, I, I
#define DOT1(k, W) \
	VPABSB W, Y0; \
	DOT(k, W, (SI), Y5)
#define DOT2(k, W) \
	DOT1(k, W); \
	DOT(k, W, (SI)(DX*1), Y6)

#define CLEAR1 \
	VPXOR Y5, Y5, Y5
#define CLEAR2 \
	VPXOR Y5, Y5, Y5; \
	VPXOR Y6, Y6, Y6

#define ADD1 \
	ADD((SI), Y7, Y5, Y12, Y1)
#define ADD2 \
	ADD1; \
	ADD((SI)(DX*1), Y7, Y6, Y13, Y2)

// WEIGHTS gives the eight registers of a block's weights to OP and prefetches the same
// block of the rows ahead, 272 bytes.
#define WEIGHTS(OP) \
	ROWS8(2); \
	PREFETCHT1 (R15); \
	TRANSPOSE(Y8, Y9, Y10, Y11); \
	OP(0, Y8); \
	OP(1, Y9); \
	PREFETCHT1 64(R15); \
	OP(2, Y10); \
	OP(3, Y11); \
	PREFETCHT1 128(R15); \
	ROWS8(18); \
	TRANSPOSE(Y8, Y9, Y10, Y11); \
	PREFETCHT1 192(R15); \
	OP(4, Y8); \
	OP(5, Y9); \
	PREFETCHT1 256(R15); \
	OP(6, Y10); \
	OP(7, Y11); \
	ADDQ $272, R15

#define NARROW(ZERO, CLEAR, DOT, ADD, STORE) \
	MOVQ a+0(FP), DI; \
	LOAD_ROWS; \
	LOAD_TOKENS; \
	VPCMPEQW Y15, Y15, Y15; \
	VPABSW Y15, Y15; \
	ZERO; \
chunk: \
	CHUNK(0, 34); \
block: \
	CLEAR; \
	WEIGHTS(DOT); \
	VCVTPH2PS (BX), Y7; \
	ADD; \
	ADDQ $16, BX; \
	ADDQ $actBlock__size, SI; \
	ADDQ $34, R8; \
	DECQ DI; \
	JNZ block; \
	TESTQ CX, CX; \
	JNZ chunk; \
	MOVQ a+0(FP), DI; \
	STORE; \
	VZEROUPPER; \
	RET

// func q8_0x1AVX2(a *tileArgs)
TEXT ·q8_0x1AVX2(SB), 0, $256-8
	NARROW(ZERO1, CLEAR1, DOT1, ADD1, STORE1)

// func q8_0x2AVX2(a *tileArgs)
TEXT ·q8_0x2AVX2(SB), 0, $256-8
	NARROW(ZERO2, CLEAR2, DOT2, ADD2, STORE2)

#define KEEP(k, W) \
	VMOVDQU W, (64*k)(SI)

// func q8_0PanelAVX2(a *tileArgs)
TEXT ·q8_0PanelAVX2(SB), 0, $256-8
	MOVQ a+0(FP), DI
	LOAD_ROWS
	MOVQ tileArgs_panel(DI), SI
chunk:
	CHUNK(0, 34)
block:
	VCVTPH2PS (BX), Y7
	WEIGHTS(KEEP)
	VMOVUPS Y7, 512(SI)
	ADDQ $16, BX
	ADDQ $576, SI
	ADDQ $34, R8
	DECQ DI
	JNZ block
	TESTQ CX, CX
	JNZ chunk
	VZEROUPPER
	RET
