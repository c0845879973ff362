//go:build !purego

#include "go_asm.h"
#include "textflag.h"
#include "int8_avx512_amd64.h"

// Q4_K: a block of 144 bytes for 8 sub-blocks of 32 columns: f16 d, f16 dmin, 12 bytes
// of 6-bit scales and minima, then for each pair of sub-blocks 32 bytes, the first
// sub-block in the low halves.

// SCALES computes, for each sub-block j, the scales and minima of the 16 rows and gives
// them to OP(j, scale, minimum). Clobbers Z0-Z11.
#define SCALES(OP) \
	ROWS16(0); \
	TRANSPOSE(Z8, Z9, Z10, Z11); \
	VPMOVDW Z8, Y0; \
	VPSRLD $16, Z8, Z8; \
	VPMOVDW Z8, Y1; \
	VCVTPH2PS Y0, Z0; \
	VCVTPH2PS Y1, Z1; \
	MOVL $0x3f3f3f3f, AX; \
	VPBROADCASTD AX, Z8; \
	VPSRLD $2, Z9, Z2; \
	VPSRLD $2, Z10, Z3; \
	VPSRLD $4, Z11, Z4; \
	VPTERNLOGD $0xd8, Z31, Z11, Z2; \
	VPTERNLOGD $0xd8, Z31, Z4, Z3; \
	VPANDD Z8, Z2, Z2; \
	VPANDD Z8, Z3, Z3; \
	VPANDD Z8, Z9, Z9; \
	VPANDD Z8, Z10, Z10; \
	MOVL $0xff, AX; \
	VPBROADCASTD AX, Z8; \
	VPANDD Z8, Z9, Z4; \
	VPANDD Z8, Z10, Z5; \
	PRODUCT(OP, 0); \
	VPSRLD $8, Z9, Z4; \
	VPSRLD $8, Z10, Z5; \
	VPANDD Z8, Z4, Z4; \
	VPANDD Z8, Z5, Z5; \
	PRODUCT(OP, 1); \
	VPSRLD $16, Z9, Z4; \
	VPSRLD $16, Z10, Z5; \
	VPANDD Z8, Z4, Z4; \
	VPANDD Z8, Z5, Z5; \
	PRODUCT(OP, 2); \
	VPSRLD $24, Z9, Z4; \
	VPSRLD $24, Z10, Z5; \
	PRODUCT(OP, 3); \
	VPANDD Z8, Z2, Z4; \
	VPANDD Z8, Z3, Z5; \
	PRODUCT(OP, 4); \
	VPSRLD $8, Z2, Z4; \
	VPSRLD $8, Z3, Z5; \
	VPANDD Z8, Z4, Z4; \
	VPANDD Z8, Z5, Z5; \
	PRODUCT(OP, 5); \
	VPSRLD $16, Z2, Z4; \
	VPSRLD $16, Z3, Z5; \
	VPANDD Z8, Z4, Z4; \
	VPANDD Z8, Z5, Z5; \
	PRODUCT(OP, 6); \
	VPSRLD $24, Z2, Z4; \
	VPSRLD $24, Z3, Z5; \
	PRODUCT(OP, 7)

#define PRODUCT(OP, j) \
	VCVTDQ2PS Z4, Z4; \
	VCVTDQ2PS Z5, Z5; \
	VMULPS Z0, Z4, Z4; \
	VMULPS Z1, Z5, Z5; \
	OP(j, Z4, Z5)

// PAIR loads the weights of two sub-blocks to Z8-Z15. LOW and HIGH give those of the
// first, and 16 times those of the second, to OP. Between them they prefetch 576 bytes
// of the rows ahead, a quarter of a block of its 16 rows; spread out, since a burst of
// prefetches holds up the loads behind it.
#define PAIR(off) \
	ROWS16(off); \
	TRANSPOSE(Z8, Z9, Z10, Z11); \
	ROWS16(off+16); \
	TRANSPOSE(Z12, Z13, Z14, Z15)
#define LOW(OP) HALF(OP, Z31, 0, 64, 128, 192, 256)
#define HIGH(OP) HALF(OP, Z30, 320, 384, 448, 512, 512); \
	ADDQ $576, R15
#define HALF(OP, MASK, P0, P1, P2, P3, P4) \
	VPANDD MASK, Z8, Z0; \
	VPANDD MASK, Z9, Z1; \
	VPANDD MASK, Z10, Z2; \
	VPANDD MASK, Z11, Z3; \
	PREFETCHT1 P0(R15); \
	VPANDD MASK, Z12, Z4; \
	VPANDD MASK, Z13, Z5; \
	VPANDD MASK, Z14, Z6; \
	VPANDD MASK, Z15, Z7; \
	PREFETCHT1 P1(R15); \
	OP(0, Z0); \
	OP(1, Z1); \
	PREFETCHT1 P2(R15); \
	OP(2, Z2); \
	OP(3, Z3); \
	PREFETCHT1 P3(R15); \
	OP(4, Z4); \
	OP(5, Z5); \
	OP(6, Z6); \
	PREFETCHT1 P4(R15); \
	OP(7, Z7)

#define MASKS \
	MOVL $0x0f0f0f0f, AX; \
	VPBROADCASTD AX, Z31; \
	VPSLLW $4, Z31, Z30

// A narrow kernel keeps the scales and minima of the sub-blocks in its frame.
#define TOFRAME(j, S, M) \
	VMOVUPS S, scales-(1024-128*(j))(SP); \
	VMOVUPS M, minima-(960-128*(j))(SP)

#define CLEAR1 \
	VPXORD Z16, Z16, Z16
#define CLEAR2 \
	CLEAR1; \
	VPXORD Z17, Z17, Z17
#define CLEAR4 \
	CLEAR2; \
	VPXORD Z18, Z18, Z18; \
	VPXORD Z19, Z19, Z19

// UNDO1, UNDO2, UNDO4 divide the integer sums by 16, which leaves no rest.
#define UNDO1 \
	VPSRAD $4, Z16, Z16
#define UNDO2 \
	UNDO1; \
	VPSRAD $4, Z17, Z17
#define UNDO4 \
	UNDO2; \
	VPSRAD $4, Z18, Z18; \
	VPSRAD $4, Z19, Z19

// MIN1, MIN2, MIN4 take the minima in Z29 times the activations' sums off.
#define MIN1 \
	VFNMADD231PS.BCST actBlock_sd(SI), Z29, Z20
#define MIN2 \
	MIN1; \
	VFNMADD231PS.BCST actBlock_sd(SI)(DX*1), Z29, Z21
#define MIN4 \
	MIN2; \
	VFNMADD231PS.BCST actBlock_sd(SI)(DX*2), Z29, Z22; \
	VFNMADD231PS.BCST actBlock_sd(SI)(R14*1), Z29, Z23

// TWO multiplies sub-blocks j and j+1.
#define TWO(j, CLEAR, DOT, UNDO, ADD, MIN) \
	PAIR(16+16*(j)); \
	CLEAR; \
	LOW(DOT); \
	VMOVUPS scales-(1024-128*(j))(SP), Z24; \
	VMOVUPS minima-(960-128*(j))(SP), Z29; \
	ADD; \
	MIN; \
	ADDQ $actBlock__size, SI; \
	CLEAR; \
	HIGH(DOT); \
	UNDO; \
	VMOVUPS scales-(896-128*(j))(SP), Z24; \
	VMOVUPS minima-(832-128*(j))(SP), Z29; \
	ADD; \
	MIN; \
	ADDQ $actBlock__size, SI

#define NARROW(ZERO, CLEAR, DOT, UNDO, ADD, MIN, STORE) \
	MOVQ a+0(FP), DI; \
	LOAD_ROWS; \
	SHRQ $3, CX; \
	LOAD_TOKENS; \
	MASKS; \
	ZERO; \
block: \
	SCALES(TOFRAME); \
	TWO(0, CLEAR, DOT, UNDO, ADD, MIN); \
	TWO(2, CLEAR, DOT, UNDO, ADD, MIN); \
	TWO(4, CLEAR, DOT, UNDO, ADD, MIN); \
	TWO(6, CLEAR, DOT, UNDO, ADD, MIN); \
	STEP(144); \
	DECQ CX; \
	JNZ block; \
	STORE; \
	VZEROUPPER; \
	RET

// func q4_kx1AVX512(a *tileArgs)
TEXT ·q4_kx1AVX512(SB), 0, $1024-8
	NARROW(ZERO1, CLEAR1, DOT1, UNDO1, ADD1, MIN1, STORE1)

// func q4_kx2AVX512(a *tileArgs)
TEXT ·q4_kx2AVX512(SB), 0, $1024-8
	NARROW(ZERO2, CLEAR2, DOT2, UNDO2, ADD2, MIN2, STORE2)

// func q4_kx4AVX512(a *tileArgs)
TEXT ·q4_kx4AVX512(SB), 0, $1024-8
	NARROW(ZERO4, CLEAR4, DOT4, UNDO4, ADD4, MIN4, STORE4)

// Records of the panel are 640 bytes, so 1280 from a sub-block to the next.
#define TOPANEL(j, S, M) \
	VMOVUPS S, (1280*(j)+512)(SI); \
	VMOVUPS M, (1280*(j)+576)(SI)
#define KEEPLOW(k, W) \
	VMOVDQU64 W, (64*k)(SI)
#define KEEPHIGH(k, W) \
	VPSRLW $4, W, W; \
	VMOVDQU64 W, (1280+64*k)(SI)

#define KEEPTWO(j) \
	PAIR(16+16*(j)); \
	LOW(KEEPLOW); \
	HIGH(KEEPHIGH); \
	ADDQ $2560, SI

// func q4_kPanelAVX512(a *tileArgs)
TEXT ·q4_kPanelAVX512(SB), NOSPLIT, $0-8
	MOVQ a+0(FP), DI
	LOAD_ROWS
	SHRQ $3, CX
	MOVQ tileArgs_panel(DI), SI
	MASKS
block:
	SCALES(TOPANEL)
	KEEPTWO(0)
	KEEPTWO(2)
	KEEPTWO(4)
	KEEPTWO(6)
	STEP(144)
	DECQ CX
	JNZ block
	VZEROUPPER
	RET
