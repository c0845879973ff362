//go:build !purego

#include "go_asm.h"
#include "textflag.h"
#include "int8_avx2_amd64.h"

// Q4_K: a block of 144 bytes for 8 sub-blocks of 32 columns: f16 d, f16 dmin, 12 bytes
// of 6-bit scales and minima, then for each pair of sub-blocks 32 bytes, the first
// sub-block in the low halves. The products of a whole sub-block, eight times two of at
// most 15*127, fit 16 bits.

// SCALES computes, for each sub-block j, the scales and minima of the 8 rows and gives
// them to OP(j, scale, minimum). Clobbers Y0-Y11.
#define SCALES(OP) \
	ROWS8(0); \
	TRANSPOSE(Y8, Y9, Y10, Y11); \
	VPSLLD $16, Y8, Y0; \
	VPSRLD $16, Y8, Y1; \
	VPSRLD $16, Y0, Y0; \
	VPACKUSDW Y1, Y0, Y0; \
	VPERMQ $0xd8, Y0, Y0; \
	VEXTRACTI128 $1, Y0, X1; \
	VCVTPH2PS X0, Y0; \
	VCVTPH2PS X1, Y1; \
	MOVL $0x3f3f3f3f, AX; \
	VMOVD AX, X8; \
	VPBROADCASTD X8, Y8; \
	VPSRLD $2, Y9, Y2; \
	VPSRLD $2, Y10, Y3; \
	VPSRLD $4, Y11, Y4; \
	VPAND Y8, Y2, Y2; \
	VPAND Y8, Y3, Y3; \
	VPANDN Y2, Y14, Y2; \
	VPANDN Y3, Y14, Y3; \
	VPAND Y14, Y11, Y11; \
	VPAND Y14, Y4, Y4; \
	VPOR Y11, Y2, Y2; \
	VPOR Y4, Y3, Y3; \
	VPAND Y8, Y9, Y9; \
	VPAND Y8, Y10, Y10; \
	VPCMPEQD Y8, Y8, Y8; \
	VPSRLD $24, Y8, Y8; \
	VPAND Y8, Y9, Y4; \
	VPAND Y8, Y10, Y5; \
	PRODUCT(OP, 0); \
	VPSRLD $8, Y9, Y4; \
	VPSRLD $8, Y10, Y5; \
	VPAND Y8, Y4, Y4; \
	VPAND Y8, Y5, Y5; \
	PRODUCT(OP, 1); \
	VPSRLD $16, Y9, Y4; \
	VPSRLD $16, Y10, Y5; \
	VPAND Y8, Y4, Y4; \
	VPAND Y8, Y5, Y5; \
	PRODUCT(OP, 2); \
	VPSRLD $24, Y9, Y4; \
	VPSRLD $24, Y10, Y5; \
	PRODUCT(OP, 3); \
	VPAND Y8, Y2, Y4; \
	VPAND Y8, Y3, Y5; \
	PRODUCT(OP, 4); \
	VPSRLD $8, Y2, Y4; \
	VPSRLD $8, Y3, Y5; \
	VPAND Y8, Y4, Y4; \
	VPAND Y8, Y5, Y5; \
	PRODUCT(OP, 5); \
	VPSRLD $16, Y2, Y4; \
	VPSRLD $16, Y3, Y5; \
	VPAND Y8, Y4, Y4; \
	VPAND Y8, Y5, Y5; \
	PRODUCT(OP, 6); \
	VPSRLD $24, Y2, Y4; \
	VPSRLD $24, Y3, Y5; \
	PRODUCT(OP, 7)

#define PRODUCT(OP, j) \
	VCVTDQ2PS Y4, Y4; \
	VCVTDQ2PS Y5, Y5; \
	VMULPS Y0, Y4, Y4; \
	VMULPS Y1, Y5, Y5; \
	OP(j, Y4, Y5)

// Y14 is 0x0f in each byte. 16-bit sums of the first and second sub-block of a pair:
// Y5 and Y7 for token 0, Y6 and Y15 for token 1.

#define FIRST(off, x, I) \
	VPBROADCASTD (off) x, Y1; \
	VPMADDUBSW Y1, Y0, I
#define DOT(off, x, I) \
	VPBROADCASTD (off) x, Y1; \
	VPMADDUBSW Y1, Y0, Y1; \
	VPADDW Y1, I, I

// HALF1 and HALF2 multiply 16 columns of both sub-blocks of a pair, from column 4k on,
// with the macros F for the first four columns and DOT for the others.
#define HALF1(off, k, F) \
	ROWS8(off); \
	TRANSPOSE(Y8, Y9, Y10, Y11); \
	STEP1(F, Y8, k); \
	STEP1(DOT, Y9, k+1); \
	STEP1(DOT, Y10, k+2); \
	STEP1(DOT, Y11, k+3)
#define HALF2(off, k, F) \
	ROWS8(off); \
	TRANSPOSE(Y8, Y9, Y10, Y11); \
	STEP2(F, Y8, k); \
	STEP2(DOT, Y9, k+1); \
	STEP2(DOT, Y10, k+2); \
	STEP2(DOT, Y11, k+3)
#define STEP1(F, W, k) \
	VPAND Y14, W, Y0; \
	F(4*(k), (SI), Y5); \
	VPSRLW $4, W, Y0; \
	VPAND Y14, Y0, Y0; \
	F(64+4*(k), (SI), Y7)
#define STEP2(F, W, k) \
	VPAND Y14, W, Y0; \
	F(4*(k), (SI), Y5); \
	F(4*(k), (SI)(DX*1), Y6); \
	VPSRLW $4, W, Y0; \
	VPAND Y14, Y0, Y0; \
	F(64+4*(k), (SI), Y7); \
	F(64+4*(k), (SI)(DX*1), Y15)

// FINISH adds the sums of sub-block j to the float32 sums of a token and takes its
// minimum times the activations' sum off.
#define FINISH(j, x, I, A) \
	VPMADDWD ·ones16(SB), I, I; \
	VMOVUPS scales-(512-64*(j))(SP), Y1; \
	ADD(x, Y1, I, A, Y2); \
	VBROADCASTSS actBlock_sd x, Y2; \
	VFNMADD231PS minima-(480-64*(j))(SP), Y2, A
#define FINISH1(j) \
	FINISH(j, (SI), Y5, Y12); \
	ADDQ $actBlock__size, SI; \
	FINISH(j+1, (SI), Y7, Y12); \
	ADDQ $actBlock__size, SI
#define FINISH2(j) \
	FINISH(j, (SI), Y5, Y12); \
	FINISH(j, (SI)(DX*1), Y6, Y13); \
	ADDQ $actBlock__size, SI; \
	FINISH(j+1, (SI), Y7, Y12); \
	FINISH(j+1, (SI)(DX*1), Y15, Y13); \
	ADDQ $actBlock__size, SI

// AHEAD prefetches 288 bytes of the rows ahead, a quarter of a block of its 8 rows.
#define AHEAD \
	PREFETCHT1 (R15); \
	PREFETCHT1 64(R15); \
	PREFETCHT1 128(R15); \
	PREFETCHT1 192(R15); \
	PREFETCHT1 256(R15); \
	ADDQ $288, R15

#define TOFRAME(j, S, M) \
	VMOVUPS S, scales-(512-64*j)(SP); \
	VMOVUPS M, minima-(480-64*j)(SP)

#define TWO(j, HALF, FINISH) \
	HALF(16+16*j, 0, FIRST); \
	AHEAD; \
	HALF(32+16*j, 4, DOT); \
	FINISH(j)

#define MASK \
	MOVL $0x0f0f0f0f, AX; \
	VMOVD AX, X14; \
	VPBROADCASTD X14, Y14

#define NARROW(ZERO, HALF, FINISH, STORE) \
	MOVQ a+0(FP), DI; \
	LOAD_ROWS; \
	SHRQ $3, CX; \
	LOAD_TOKENS; \
	MASK; \
	ZERO; \
block: \
	SCALES(TOFRAME); \
	TWO(0, HALF, FINISH); \
	TWO(2, HALF, FINISH); \
	TWO(4, HALF, FINISH); \
	TWO(6, HALF, FINISH); \
	ADDQ $144, R8; \
	DECQ CX; \
	JNZ block; \
	STORE; \
	VZEROUPPER; \
	RET

// func q4_kx1AVX2(a *tileArgs)
TEXT ·q4_kx1AVX2(SB), 0, $512-8
	NARROW(ZERO1, HALF1, FINISH1, STORE1)

// func q4_kx2AVX2(a *tileArgs)
TEXT ·q4_kx2AVX2(SB), 0, $512-8
	NARROW(ZERO2, HALF2, FINISH2, STORE2)

#define TOPANEL(j, S, M) \
	VMOVUPS S, (640*j+512)(SI); \
	VMOVUPS M, (640*j+576)(SI)

#define KEEP(W, k) \
	VPAND Y14, W, Y0; \
	VPSRLW $4, W, Y1; \
	VPAND Y14, Y1, Y1; \
	VMOVDQU Y0, (64*k)(SI); \
	VMOVDQU Y1, (640+64*k)(SI)

#define KEEPTWO(j) \
	ROWS8(16+16*j); \
	TRANSPOSE(Y8, Y9, Y10, Y11); \
	AHEAD; \
	KEEP(Y8, 0); \
	KEEP(Y9, 1); \
	KEEP(Y10, 2); \
	KEEP(Y11, 3); \
	ROWS8(32+16*j); \
	TRANSPOSE(Y8, Y9, Y10, Y11); \
	KEEP(Y8, 4); \
	KEEP(Y9, 5); \
	KEEP(Y10, 6); \
	KEEP(Y11, 7); \
	ADDQ $1280, SI

// func q4_kPanelAVX2(a *tileArgs)
TEXT ·q4_kPanelAVX2(SB), NOSPLIT, $0-8
	MOVQ a+0(FP), DI
	LOAD_ROWS
	SHRQ $3, CX
	MOVQ tileArgs_panel(DI), SI
	MASK
block:
	SCALES(TOPANEL)
	KEEPTWO(0)
	KEEPTWO(2)
	KEEPTWO(4)
	KEEPTWO(6)
	ADDQ $144, R8
	DECQ CX
	JNZ block
	VZEROUPPER
	RET
