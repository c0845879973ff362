//go:build !purego

#include "go_asm.h"
#include "textflag.h"

// Products of a panel (its layout is described at tileKernels) with groups of 2, 4 or
// 6 tokens and 32 rows. Rows 0-15 and 16-31 lie in the lanes of two registers; a token
// has two float32 sums A0, A1 and two integer sums I0, I1.
//
//	SI panel at the current block; CX blocks left
//	R8, R10 tokens 0 and 3 at the current block; R9 bytes of a token
//	DX, R11 row 0 of tokens 0 and 3 in dst; BX bytes of a token in dst
//	Z24, Z25 weights, then scales; Z26-Z31 short-lived

#define LOAD_ARGS \
	MOVQ a+0(FP), DI; \
	MOVQ tileArgs_panel(DI), SI; \
	MOVQ tileArgs_blocks(DI), CX; \
	MOVQ tileArgs_x(DI), R8; \
	MOVQ tileArgs_stride(DI), R9; \
	LEAQ (R9)(R9*2), R10; \
	ADDQ R8, R10; \
	MOVQ tileArgs_dst(DI), DX; \
	MOVQ tileArgs_ld(DI), BX; \
	LEAQ (BX)(BX*2), R11; \
	ADDQ DX, R11

// OUT2, OUT4, OUT6 apply OP to the place in dst and the float32 sums of each token.
#define OUT2(OP) \
	OP((DX), Z0, Z1); \
	OP((DX)(BX*1), Z2, Z3)
#define OUT4(OP) \
	OUT2(OP); \
	OP((DX)(BX*2), Z4, Z5); \
	OP((R11), Z6, Z7)
#define OUT6(OP) \
	OUT4(OP); \
	OP((R11)(BX*1), Z8, Z9); \
	OP((R11)(BX*2), Z10, Z11)

#define ZERO(at, A0, A1) \
	VPXORD A0, A0, A0; \
	VPXORD A1, A1, A1
#define LOAD(at, A0, A1) \
	VMOVUPS 0 at, A0; \
	VMOVUPS 64 at, A1
#define STORE(at, A0, A1) \
	VMOVUPS A0, 0 at; \
	VMOVUPS A1, 64 at

// START starts the float32 sums at zero, or where an earlier piece of the columns left
// them in dst.
#define START(OUT) \
	CMPQ tileArgs_more(DI), $0; \
	JNE more; \
	OUT(ZERO); \
	JMP block; \
more: \
	OUT(LOAD)

// NEXT goes to the next block of a panel with blocks of so many bytes.
#define NEXT(bytes) \
	ADDQ $bytes, SI; \
	ADDQ $actBlock__size, R8; \
	ADDQ $actBlock__size, R10; \
	DECQ CX; \
	JNZ block

// EACH2, EACH4, EACH6 apply OP to k and each token's address and sums.
#define EACH2(OP, k) \
	OP(k, (R8), Z0, Z1, Z12, Z13); \
	OP(k, (R8)(R9*1), Z2, Z3, Z14, Z15)
#define EACH4(OP, k) \
	EACH2(OP, k); \
	OP(k, (R8)(R9*2), Z4, Z5, Z16, Z17); \
	OP(k, (R10), Z6, Z7, Z18, Z19)
#define EACH6(OP, k) \
	EACH4(OP, k); \
	OP(k, (R10)(R9*1), Z8, Z9, Z20, Z21); \
	OP(k, (R10)(R9*2), Z10, Z11, Z22, Z23)

// INIT starts integer sums with the correction at off of the actBlock.
#define INIT(off, x, A0, A1, I0, I1) \
	VPBROADCASTD off x, I0; \
	VMOVDQA64 I0, I1
#define CLEAR(k, x, A0, A1, I0, I1) \
	VPXORD I0, I0, I0; \
	VPXORD I1, I1, I1

// DOT adds the products of columns 4k to 4k+3.
#define DOT(k, x, A0, A1, I0, I1) \
	VPBROADCASTD (4*k) x, Z26; \
	VPDPBUSD Z26, Z24, I0; \
	VPDPBUSD Z26, Z25, I1

// COLUMNS does so for all tokens; bytes is the size of a block of 16 rows.
#define COLUMNS(EACH, k, bytes) \
	VMOVDQU64 (64*k)(SI), Z24; \
	VMOVDQU64 (64*k+bytes)(SI), Z25; \
	EACH(DOT, k)

#define ALL_COLUMNS(EACH, bytes) \
	COLUMNS(EACH, 0, bytes); \
	COLUMNS(EACH, 1, bytes); \
	COLUMNS(EACH, 2, bytes); \
	COLUMNS(EACH, 3, bytes); \
	COLUMNS(EACH, 4, bytes); \
	COLUMNS(EACH, 5, bytes); \
	COLUMNS(EACH, 6, bytes); \
	COLUMNS(EACH, 7, bytes)

// SCALE adds the integer sums, times the weights' scales in Z24 and Z25 and the
// token's, to the float32 sums.
#define SCALE(k, x, A0, A1, I0, I1) \
	VMULPS.BCST actBlock_d x, Z24, Z28; \
	VMULPS.BCST actBlock_d x, Z25, Z29; \
	VCVTDQ2PS   I0, I0; \
	VCVTDQ2PS   I1, I1; \
	VFMADD231PS Z28, I0, A0; \
	VFMADD231PS Z29, I1, A1

// MINIMUM takes the minima in Z30 and Z31 times the sum of the activations off.
#define MINIMUM(k, x, A0, A1, I0, I1) \
	VFNMADD231PS.BCST actBlock_sd x, Z30, A0; \
	VFNMADD231PS.BCST actBlock_sd x, Z31, A1

#define PLAIN(EACH, OUT) \
	LOAD_ARGS; \
	START(OUT); \
block: \
	EACH(INIT, actBlock_n128); \
	ALL_COLUMNS(EACH, 576); \
	VMOVUPS 512(SI), Z24; \
	VMOVUPS 1088(SI), Z25; \
	EACH(SCALE, 0); \
	NEXT(1152); \
	OUT(STORE); \
	VZEROUPPER; \
	RET

// func plain32x2AVX512(a *tileArgs)
TEXT ·plain32x2AVX512(SB), NOSPLIT, $0-8
	PLAIN(EACH2, OUT2)

// func plain32x4AVX512(a *tileArgs)
TEXT ·plain32x4AVX512(SB), NOSPLIT, $0-8
	PLAIN(EACH4, OUT4)

// func plain32x6AVX512(a *tileArgs)
TEXT ·plain32x6AVX512(SB), NOSPLIT, $0-8
	PLAIN(EACH6, OUT6)

#define MINS(EACH, OUT) \
	LOAD_ARGS; \
	START(OUT); \
block: \
	EACH(CLEAR, 0); \
	ALL_COLUMNS(EACH, 640); \
	VMOVUPS 512(SI), Z24; \
	VMOVUPS 1152(SI), Z25; \
	VMOVUPS 576(SI), Z30; \
	VMOVUPS 1216(SI), Z31; \
	EACH(SCALE, 0); \
	EACH(MINIMUM, 0); \
	NEXT(1280); \
	OUT(STORE); \
	VZEROUPPER; \
	RET

// func mins32x2AVX512(a *tileArgs)
TEXT ·mins32x2AVX512(SB), NOSPLIT, $0-8
	MINS(EACH2, OUT2)

// func mins32x4AVX512(a *tileArgs)
TEXT ·mins32x4AVX512(SB), NOSPLIT, $0-8
	MINS(EACH4, OUT4)

// func mins32x6AVX512(a *tileArgs)
TEXT ·mins32x6AVX512(SB), NOSPLIT, $0-8
	MINS(EACH6, OUT6)

// Q6_K has two integer sums for each 32 columns, one for each scale, and so room for
// four tokens only: I0, I1 for the columns 0-15, J0, J1 for 16-31.

#define GROUPS2(OP, k) \
	OP(k, (R8), Z0, Z1, Z8, Z9, Z16, Z17); \
	OP(k, (R8)(R9*1), Z2, Z3, Z10, Z11, Z18, Z19)
#define GROUPS4(OP, k) \
	GROUPS2(OP, k); \
	OP(k, (R8)(R9*2), Z4, Z5, Z12, Z13, Z20, Z21); \
	OP(k, (R10), Z6, Z7, Z14, Z15, Z22, Z23)

#define INITBOTH(k, x, A0, A1, I0, I1, J0, J1) \
	VPBROADCASTD actBlock_n32 x, I0; \
	VPBROADCASTD (actBlock_n32+4) x, J0; \
	VMOVDQA64 I0, I1; \
	VMOVDQA64 J0, J1
#define DOTI(k, x, A0, A1, I0, I1, J0, J1) \
	DOT(k, x, A0, A1, I0, I1)
#define DOTJ(k, x, A0, A1, I0, I1, J0, J1) \
	DOT(k, x, A0, A1, J0, J1)
#define SIXCOLUMNS(GROUPS, OP, k) \
	VMOVDQU64 (64*k)(SI), Z24; \
	VMOVDQU64 (64*k+704)(SI), Z25; \
	GROUPS(OP, k)

// JOIN makes s0*i0 + s1*i1 of the two sums; the scales are in Z28-Z31.
#define JOIN(k, x, A0, A1, I0, I1, J0, J1) \
	VPMULLD Z28, I0, I0; \
	VPMULLD Z29, I1, I1; \
	VPMULLD Z30, J0, J0; \
	VPMULLD Z31, J1, J1; \
	VPADDD J0, I0, I0; \
	VPADDD J1, I1, I1
#define SCALEI(k, x, A0, A1, I0, I1, J0, J1) \
	SCALE(k, x, A0, A1, I0, I1)

#define SIX(GROUPS, OUT) \
	LOAD_ARGS; \
	START(OUT); \
block: \
	GROUPS(INITBOTH, 0); \
	SIXCOLUMNS(GROUPS, DOTI, 0); \
	SIXCOLUMNS(GROUPS, DOTI, 1); \
	SIXCOLUMNS(GROUPS, DOTI, 2); \
	SIXCOLUMNS(GROUPS, DOTI, 3); \
	SIXCOLUMNS(GROUPS, DOTJ, 4); \
	SIXCOLUMNS(GROUPS, DOTJ, 5); \
	SIXCOLUMNS(GROUPS, DOTJ, 6); \
	SIXCOLUMNS(GROUPS, DOTJ, 7); \
	VMOVDQU64 576(SI), Z28; \
	VMOVDQU64 1280(SI), Z29; \
	VMOVDQU64 640(SI), Z30; \
	VMOVDQU64 1344(SI), Z31; \
	GROUPS(JOIN, 0); \
	VMOVUPS 512(SI), Z24; \
	VMOVUPS 1216(SI), Z25; \
	GROUPS(SCALEI, 0); \
	NEXT(1408); \
	OUT(STORE); \
	VZEROUPPER; \
	RET

// func six32x2AVX512(a *tileArgs)
TEXT ·six32x2AVX512(SB), NOSPLIT, $0-8
	SIX(GROUPS2, OUT2)

// func six32x4AVX512(a *tileArgs)
TEXT ·six32x4AVX512(SB), NOSPLIT, $0-8
	SIX(GROUPS4, OUT4)
