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

// A narrow kernel keeps the scales and minima of the sub-blocks in its frame, from BX on,
// which is a multiple of 64: a store or load of 64 bytes should not cross cache lines.
#define FRAME \
	LEAQ scales-1024(SP), BX; \
	ANDQ $-64, BX
#define TOFRAME(j, S, M) \
	VMOVUPS S, (128*(j))(BX); \
	VMOVUPS M, (128*(j)+64)(BX)

#define CLEAR2 \
	VPXORD Z16, Z16, Z16; \
	VPXORD Z17, Z17, Z17
#define CLEAR4 \
	CLEAR2; \
	VPXORD Z18, Z18, Z18; \
	VPXORD Z19, Z19, Z19

// UNDO2 and UNDO4 divide the integer sums by 16, which leaves no rest.
#define UNDO2 \
	VPSRAD $4, Z16, Z16; \
	VPSRAD $4, Z17, Z17
#define UNDO4 \
	UNDO2; \
	VPSRAD $4, Z18, Z18; \
	VPSRAD $4, Z19, Z19

// MIN2 and MIN4 take the minima in Z29 times the activations' sums off.
#define MIN2 \
	VFNMADD231PS.BCST actBlock_sd(SI), Z29, Z20; \
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
	VMOVUPS (128*(j))(BX), Z24; \
	VMOVUPS (128*(j)+64)(BX), Z29; \
	ADD; \
	MIN; \
	ADDQ $actBlock__size, SI; \
	CLEAR; \
	HIGH(DOT); \
	UNDO; \
	VMOVUPS (128*(j)+128)(BX), Z24; \
	VMOVUPS (128*(j)+192)(BX), Z29; \
	ADD; \
	MIN; \
	ADDQ $actBlock__size, SI

#define NARROW(ZERO, CLEAR, DOT, UNDO, ADD, MIN, STORE) \
	MOVQ a+0(FP), DI; \
	LOAD_ROWS; \
	SHRQ $3, CX; \
	LOAD_TOKENS; \
	FRAME; \
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

// One token: a register holds 64 bytes of a row, two pairs of sub-blocks. Its low halves
// belong to the first of either pair, its high ones to the second; the activations in
// Z26 and Z27 likewise.

// ROW leaves the partial sums of a row's half h: of the first sub-blocks in L, of the
// second in H.
#define ROW(h, x, L, H) \
	VMOVDQU64 (16+64*h) x, Z0; \
	VPXORD L, L, L; \
	VPXORD H, H, H; \
	VPSRLW $4, Z0, Z1; \
	VPANDD Z31, Z0, Z0; \
	VPANDD Z31, Z1, Z1; \
	VPDPBUSD Z26, Z0, L; \
	VPDPBUSD Z27, Z1, H

// ROWS4 does so for four rows and leaves their sums in RL and RH, lanes 0 and 1 of these
// being of the first pair. It prefetches 288 bytes of the rows ahead.
#define ROWS4(h, x0, x1, x2, x3, RL, RH) \
	ROW(h, x0, Z2, Z4); \
	PREFETCHT1 (R15); \
	ROW(h, x1, Z3, Z5); \
	PREFETCHT1 64(R15); \
	TWOROWS(Z2, Z3); \
	TWOROWS(Z4, Z5); \
	PREFETCHT1 128(R15); \
	ROW(h, x2, Z3, Z5); \
	PREFETCHT1 192(R15); \
	ROW(h, x3, Z6, Z7); \
	PREFETCHT1 256(R15); \
	TWOROWS(Z3, Z6); \
	TWOROWS(Z5, Z7); \
	ADDQ $288, R15; \
	FOURROWS(Z2, Z3, RL); \
	FOURROWS(Z4, Z5, RH)

// ADDSUB adds the integer sums I of sub-block j, which is the activations' block k from
// SI on, to the float32 sums.
#define ADDSUB(j, k, I) \
	VMOVUPS (128*(j))(BX), Z24; \
	VMULPS.BCST (actBlock_d+64*(k))(SI), Z24, Z24; \
	VCVTDQ2PS I, I; \
	VMOVUPS (128*(j)+64)(BX), Z25; \
	VFMADD231PS Z24, I, Z20; \
	VFNMADD231PS.BCST (actBlock_sd+64*(k))(SI), Z25, Z20

// ONEHALF multiplies half a block, 128 columns, and leaves the integer sums of its
// sub-blocks in Z16-Z19. Meanwhile ADD0 to ADD3 add those of the half before, one after
// the other: a chain that the CPU can then work on beside.
#define ONEHALF(h, ADD0, ADD1, ADD2, ADD3) \
	VMOVDQU64 (SI), Y26; \
	VMOVDQU64 64(SI), Y27; \
	VINSERTI64X4 $1, 128(SI), Z26, Z26; \
	VINSERTI64X4 $1, 192(SI), Z27, Z27; \
	ROWS4(h, (R8), (R8)(R9*1), (R8)(R9*2), (R8)(R10*1), Z8, Z12); \
	ADD0; \
	ROWS4(h, (R8)(R9*4), (R8)(R11*1), (R8)(R10*2), (R8)(R12*1), Z9, Z13); \
	ADD1; \
	ROWS4(h, (R13), (R13)(R9*1), (R13)(R9*2), (R13)(R10*1), Z10, Z14); \
	ADD2; \
	ROWS4(h, (R13)(R9*4), (R13)(R11*1), (R13)(R10*2), (R13)(R12*1), Z11, Z15); \
	ADD3; \
	LANES(Z8, Z9, Z10, Z11, Z16, Z18); \
	LANES(Z12, Z13, Z14, Z15, Z17, Z19); \
	ADDQ $256, SI
#define NOTHING

// func q4_kx1AVX512(a *tileArgs)
TEXT ·q4_kx1AVX512(SB), 0, $1088-8
	MOVQ a+0(FP), DI
	LOAD_ROWS
	SHRQ $3, CX
	LOAD_TOKENS
	FRAME
	MASKS
	ONES
	ZERO1
block:
	SCALES(TOFRAME)
	ONEHALF(0, NOTHING, NOTHING, NOTHING, NOTHING)
	ONEHALF(1, ADDSUB(0, -4, Z16), ADDSUB(1, -3, Z17), ADDSUB(2, -2, Z18), ADDSUB(3, -1, Z19))
	ADDSUB(4, -4, Z16)
	ADDSUB(5, -3, Z17)
	ADDSUB(6, -2, Z18)
	ADDSUB(7, -1, Z19)
	STEP(144)
	DECQ CX
	JNZ block
	STORE1
	VZEROUPPER
	RET

// func q4_kx2AVX512(a *tileArgs)
TEXT ·q4_kx2AVX512(SB), 0, $1088-8
	NARROW(ZERO2, CLEAR2, DOT2, UNDO2, ADD2, MIN2, STORE2)

// func q4_kx4AVX512(a *tileArgs)
TEXT ·q4_kx4AVX512(SB), 0, $1088-8
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
