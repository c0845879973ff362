//go:build !purego

#include "go_asm.h"
#include "textflag.h"
#include "int8_avx2_amd64.h"

// Q6_K: a block of 210 bytes for 256 columns: 128 bytes of lower four bits, 64 bytes of
// upper two bits, 16 signed scales, f16 d. A weight stands for itself minus 32; n32 of
// the activations undoes that. Four times two products of at most 63*127 overflow 16
// bits, two times do not.
//
// Half h of the block (128 columns) has four groups g of 32 columns, and a group two
// halves c of 16. Half c of all four groups lies in the same 3 times 16 bytes: high bits
// in Y8-Y11; low bits in Y12-Y15, first those of groups 0 and 2, then of 1 and 3.

// LOWER and UPPER make the four registers Y0-Y3 of half c of a group, from the lower or
// upper halves of the low bits and the two high bits that S(n) shifts to bits 4 and 5.
#define LOWER(S, n) \
	LOWER1(S, n, Y8, Y12, Y0); \
	LOWER1(S, n, Y9, Y13, Y1); \
	LOWER1(S, n, Y10, Y14, Y2); \
	LOWER1(S, n, Y11, Y15, Y3)
#define UPPER(S, n) \
	UPPER1(S, n, Y8, Y12, Y0); \
	UPPER1(S, n, Y9, Y13, Y1); \
	UPPER1(S, n, Y10, Y14, Y2); \
	UPPER1(S, n, Y11, Y15, Y3)
#define LOWER1(S, n, H, P, W) \
	S $n, H, W; \
	VPAND ·mask30(SB), W, W; \
	VPAND ·mask0f(SB), P, Y4; \
	VPOR Y4, W, W
#define UPPER1(S, n, H, P, W) \
	S $n, H, W; \
	VPSRLD $4, P, Y4; \
	VPAND ·mask30(SB), W, W; \
	VPAND ·mask0f(SB), Y4, Y4; \
	VPOR Y4, W, W

// FRAMESCALES leaves the scales of the block in the frame: four times 8 rows of four.
#define FRAMESCALES \
	ROWS8(192); \
	TRANSPOSE(Y8, Y9, Y10, Y11); \
	VMOVDQU Y8, four-384(SP); \
	VMOVDQU Y9, four-352(SP); \
	VMOVDQU Y10, four-320(SP); \
	VMOVDQU Y11, four-288(SP)

// SCALE loads scale i of the block to Y, as 32-bit numbers.
#define SCALE(i, Y) \
	VMOVDQU four-(384-32*((i)/4))(SP), Y; \
	VPSLLD $(24-8*((i)%4)), Y, Y; \
	VPSRAD $24, Y, Y

// DOT leaves the scaled products of half c of group g with the token at x in Y4; Y7 is
// the scale.
#define DOT(g, c, x) \
	VPBROADCASTD (64*g+16*c) x, Y4; \
	VPBROADCASTD (64*g+16*c+4) x, Y5; \
	VPMADDUBSW Y4, Y0, Y4; \
	VPMADDUBSW Y5, Y1, Y5; \
	VPADDW Y5, Y4, Y4; \
	VPBROADCASTD (64*g+16*c+8) x, Y5; \
	VPBROADCASTD (64*g+16*c+12) x, Y6; \
	VPMADDUBSW Y5, Y2, Y5; \
	VPMADDUBSW Y6, Y3, Y6; \
	VPADDW Y6, Y5, Y5; \
	VPBROADCASTD (actBlock_n32+64*g+4*c) x, Y6; \
	VPMADDWD ·ones16(SB), Y4, Y4; \
	VPMADDWD ·ones16(SB), Y5, Y5; \
	VPADDD Y6, Y4, Y4; \
	VPADDD Y5, Y4, Y4; \
	VPMULLD Y7, Y4, Y4

// The frame has a sum of integers for each group and token: part(g, t).
#define TOKEN0_FIRST(g) \
	DOT(g, 0, (SI)); \
	VMOVDQU Y4, part-(640-64*g)(SP)
#define TOKEN1_FIRST(g) \
	DOT(g, 0, (SI)(DX*1)); \
	VMOVDQU Y4, part-(608-64*g)(SP)
#define TOKEN0_SECOND(g) \
	DOT(g, 1, (SI)); \
	VPADDD part-(640-64*g)(SP), Y4, Y4; \
	VMOVDQU Y4, part-(640-64*g)(SP)
#define TOKEN1_SECOND(g) \
	DOT(g, 1, (SI)(DX*1)); \
	VPADDD part-(608-64*g)(SP), Y4, Y4; \
	VMOVDQU Y4, part-(608-64*g)(SP)

#define FIRST1(g, i) \
	SCALE(i, Y7); \
	TOKEN0_FIRST(g)
#define FIRST2(g, i) \
	FIRST1(g, i); \
	TOKEN1_FIRST(g)
#define SECOND1(g, i) \
	SCALE(i+1, Y7); \
	TOKEN0_SECOND(g)
#define SECOND2(g, i) \
	SECOND1(g, i); \
	TOKEN1_SECOND(g)

// GROUPS gives the weights of half c of the four groups, in Y0-Y3, to OP(g, number of
// the group's first scale). It prefetches 420 bytes of the rows ahead, a quarter of a
// block of its 8 rows.
#define GROUPS(h, c, OP) \
	ROWS8(128+32*h+16*c); \
	TRANSPOSE(Y8, Y9, Y10, Y11); \
	PREFETCHT1 (R15); \
	ROWS8(64*h+16*c); \
	TRANSPOSE(Y12, Y13, Y14, Y15); \
	PREFETCHT1 64(R15); \
	LOWER(VPSLLD, 4); \
	OP(0, 8*h); \
	PREFETCHT1 128(R15); \
	UPPER(VPSLLD, 0); \
	OP(2, 8*h+4); \
	PREFETCHT1 192(R15); \
	ROWS8(64*h+32+16*c); \
	TRANSPOSE(Y12, Y13, Y14, Y15); \
	PREFETCHT1 256(R15); \
	LOWER(VPSLLD, 2); \
	OP(1, 8*h+2); \
	PREFETCHT1 320(R15); \
	UPPER(VPSRLD, 2); \
	OP(3, 8*h+6); \
	PREFETCHT1 384(R15); \
	ADDQ $420, R15

// SUM adds the integer sums of the four groups to a token's float32 sum; Y7 is d.
#define SUM(x, t, A) \
	VMOVUPS sum-(704-32*t)(SP), A; \
	ADDAT(0, x, t, A); \
	ADDAT(1, x, t, A); \
	ADDAT(2, x, t, A); \
	ADDAT(3, x, t, A); \
	VMOVUPS A, sum-(704-32*t)(SP)
#define ADDAT(g, x, t, A) \
	VBROADCASTSS (actBlock_d+64*g) x, Y1; \
	VCVTDQ2PS part-(640-64*g-32*t)(SP), Y0; \
	VMULPS Y7, Y1, Y1; \
	VFMADD231PS Y1, Y0, A
#define SUM1 \
	SUM((SI), 0, Y12)
#define SUM2 \
	SUM1; \
	SUM((SI)(DX*1), 1, Y13)

#define NARROW(FIRST, SECOND, SUM, STORE) \
	MOVQ a+0(FP), DI; \
	LOAD_ROWS; \
	SHRQ $3, CX; \
	LOAD_TOKENS; \
	ZERO2; \
	VMOVUPS Y12, sum-704(SP); \
	VMOVUPS Y13, sum-672(SP); \
chunk: \
	CHUNK(208, 210); \
block: \
	FRAMESCALES; \
	GROUPS(0, 0, FIRST); \
	GROUPS(0, 1, SECOND); \
	VCVTPH2PS (BX), Y7; \
	SUM; \
	ADDQ $256, SI; \
	GROUPS(1, 0, FIRST); \
	GROUPS(1, 1, SECOND); \
	VCVTPH2PS (BX), Y7; \
	SUM; \
	ADDQ $256, SI; \
	ADDQ $16, BX; \
	ADDQ $210, R8; \
	DECQ DI; \
	JNZ block; \
	TESTQ CX, CX; \
	JNZ chunk; \
	MOVQ a+0(FP), DI; \
	STORE; \
	VZEROUPPER; \
	RET

// func q6_kx1AVX2(a *tileArgs)
TEXT ·q6_kx1AVX2(SB), 0, $704-8
	NARROW(FIRST1, SECOND1, SUM1, STORE1)

// func q6_kx2AVX2(a *tileArgs)
TEXT ·q6_kx2AVX2(SB), 0, $704-8
	NARROW(FIRST2, SECOND2, SUM2, STORE2)

// Records of the panel are 704 bytes.
#define KEEP(g, c) \
	VMOVDQU Y0, (704*g+256*c)(SI); \
	VMOVDQU Y1, (704*g+256*c+64)(SI); \
	VMOVDQU Y2, (704*g+256*c+128)(SI); \
	VMOVDQU Y3, (704*g+256*c+192)(SI)
#define KEEPFIRST(g, i) \
	KEEP(g, 0); \
	SCALE(i, Y7); \
	VMOVDQU Y7, (704*g+576)(SI)
#define KEEPSECOND(g, i) \
	KEEP(g, 1); \
	SCALE(i+1, Y7); \
	VMOVDQU Y7, (704*g+640)(SI); \
	VCVTPH2PS (BX), Y7; \
	VMOVUPS Y7, (704*g+512)(SI)

// func q6_kPanelAVX2(a *tileArgs)
TEXT ·q6_kPanelAVX2(SB), 0, $384-8
	MOVQ a+0(FP), DI
	LOAD_ROWS
	SHRQ $3, CX
	MOVQ tileArgs_panel(DI), SI
chunk:
	CHUNK(208, 210)
block:
	FRAMESCALES
	GROUPS(0, 0, KEEPFIRST)
	GROUPS(0, 1, KEEPSECOND)
	ADDQ $2816, SI
	GROUPS(1, 0, KEEPFIRST)
	GROUPS(1, 1, KEEPSECOND)
	ADDQ $2816, SI
	ADDQ $16, BX
	ADDQ $210, R8
	DECQ DI
	JNZ block
	TESTQ CX, CX
	JNZ chunk
	VZEROUPPER
	RET
