//go:build !purego

#include "go_asm.h"
#include "textflag.h"

DATA ·ones16+0(SB)/8, $0x0001000100010001
DATA ·ones16+8(SB)/8, $0x0001000100010001
DATA ·ones16+16(SB)/8, $0x0001000100010001
DATA ·ones16+24(SB)/8, $0x0001000100010001
GLOBL ·ones16(SB), RODATA|NOPTR, $32

DATA ·mask0f+0(SB)/8, $0x0f0f0f0f0f0f0f0f
DATA ·mask0f+8(SB)/8, $0x0f0f0f0f0f0f0f0f
DATA ·mask0f+16(SB)/8, $0x0f0f0f0f0f0f0f0f
DATA ·mask0f+24(SB)/8, $0x0f0f0f0f0f0f0f0f
GLOBL ·mask0f(SB), RODATA|NOPTR, $32

DATA ·mask30+0(SB)/8, $0x3030303030303030
DATA ·mask30+8(SB)/8, $0x3030303030303030
DATA ·mask30+16(SB)/8, $0x3030303030303030
DATA ·mask30+24(SB)/8, $0x3030303030303030
GLOBL ·mask30(SB), RODATA|NOPTR, $32

// Products of a panel (its layout is described at tileKernels) with two tokens and 16
// rows. Rows 0-7 and 8-15 lie in the lanes of two registers; the float32 sums of token 0
// are Y0 and Y1, those of token 1 Y2 and Y3; the integer sums Y4 to Y7 likewise.
//
//	SI panel at the current block; CX blocks left
//	R8 token 0 at the current block; R9 bytes of a token
//	DX row 0 of token 0 in dst; BX bytes of a token in dst

#define LOAD_ARGS \
	MOVQ a+0(FP), DI; \
	MOVQ tileArgs_panel(DI), SI; \
	MOVQ tileArgs_blocks(DI), CX; \
	MOVQ tileArgs_x(DI), R8; \
	MOVQ tileArgs_stride(DI), R9; \
	MOVQ tileArgs_dst(DI), DX; \
	MOVQ tileArgs_ld(DI), BX

// START starts the float32 sums at zero, or where an earlier piece of the columns left
// them in dst.
#define START \
	VPXOR Y0, Y0, Y0; \
	VPXOR Y1, Y1, Y1; \
	VPXOR Y2, Y2, Y2; \
	VPXOR Y3, Y3, Y3; \
	CMPQ tileArgs_more(DI), $0; \
	JEQ block; \
	VMOVUPS (DX), Y0; \
	VMOVUPS 32(DX), Y1; \
	VMOVUPS (DX)(BX*1), Y2; \
	VMOVUPS 32(DX)(BX*1), Y3

#define END(bytes) \
	ADDQ $bytes, SI; \
	ADDQ $actBlock__size, R8; \
	DECQ CX; \
	JNZ block; \
	VMOVUPS Y0, (DX); \
	VMOVUPS Y1, 32(DX); \
	VMOVUPS Y2, (DX)(BX*1); \
	VMOVUPS Y3, 32(DX)(BX*1); \
	VZEROUPPER; \
	RET

// SCALE adds the integer sums I0, I1, times the weights' scales and the token's, to the
// float32 sums A0, A1. Clobbers Y10-Y12.
#define SCALE(x, I0, I1, A0, A1) \
	VBROADCASTSS actBlock_d x, Y10; \
	VCVTDQ2PS I0, I0; \
	VCVTDQ2PS I1, I1; \
	VMULPS 512(SI), Y10, Y11; \
	VMULPS 544(SI), Y10, Y12; \
	VFMADD231PS Y11, I0, A0; \
	VFMADD231PS Y12, I1, A1

// Q8_0: signed weights; see q8_0_avx2_amd64.s for the signs.
#define SIGNED(k, x, I0, I1) \
	VPBROADCASTD (4*k) x, Y12; \
	VPSIGNB Y8, Y12, Y13; \
	VPSIGNB Y9, Y12, Y14; \
	VPMADDUBSW Y13, Y10, Y13; \
	VPMADDUBSW Y14, Y11, Y14; \
	VPMADDWD Y15, Y13, Y13; \
	VPMADDWD Y15, Y14, Y14; \
	VPADDD Y13, I0, I0; \
	VPADDD Y14, I1, I1
#define SIGNEDCOLUMNS(k) \
	VMOVDQU (64*k)(SI), Y8; \
	VMOVDQU (64*k+32)(SI), Y9; \
	VPABSB Y8, Y10; \
	VPABSB Y9, Y11; \
	SIGNED(k, (R8), Y4, Y5); \
	SIGNED(k, (R8)(R9*1), Y6, Y7)

// func q8_0Wide16x2AVX2(a *tileArgs)
TEXT ·q8_0Wide16x2AVX2(SB), NOSPLIT, $0-8
	LOAD_ARGS
	VMOVDQU ·ones16(SB), Y15
	START
block:
	VPXOR Y4, Y4, Y4
	VPXOR Y5, Y5, Y5
	VPXOR Y6, Y6, Y6
	VPXOR Y7, Y7, Y7
	SIGNEDCOLUMNS(0)
	SIGNEDCOLUMNS(1)
	SIGNEDCOLUMNS(2)
	SIGNEDCOLUMNS(3)
	SIGNEDCOLUMNS(4)
	SIGNEDCOLUMNS(5)
	SIGNEDCOLUMNS(6)
	SIGNEDCOLUMNS(7)
	SCALE((R8), Y4, Y5, Y0, Y1)
	SCALE((R8)(R9*1), Y6, Y7, Y2, Y3)
	END(576)

// Four-bit weights: a whole block's products are added in 16 bits.
#define FIRST(k, x, I0, I1) \
	VPBROADCASTD (4*k) x, Y10; \
	VPMADDUBSW Y10, Y8, I0; \
	VPMADDUBSW Y10, Y9, I1
#define NEXT(k, x, I0, I1) \
	VPBROADCASTD (4*k) x, Y10; \
	VPMADDUBSW Y10, Y8, Y11; \
	VPMADDUBSW Y10, Y9, Y12; \
	VPADDW Y11, I0, I0; \
	VPADDW Y12, I1, I1
#define COLUMNS(k, OP) \
	VMOVDQU (64*k)(SI), Y8; \
	VMOVDQU (64*k+32)(SI), Y9; \
	OP(k, (R8), Y4, Y5); \
	OP(k, (R8)(R9*1), Y6, Y7)
#define ALLCOLUMNS \
	COLUMNS(0, FIRST); \
	COLUMNS(1, NEXT); \
	COLUMNS(2, NEXT); \
	COLUMNS(3, NEXT); \
	COLUMNS(4, NEXT); \
	COLUMNS(5, NEXT); \
	COLUMNS(6, NEXT); \
	COLUMNS(7, NEXT); \
	VPMADDWD Y15, Y4, Y4; \
	VPMADDWD Y15, Y5, Y5; \
	VPMADDWD Y15, Y6, Y6; \
	VPMADDWD Y15, Y7, Y7

// func q4_0Wide16x2AVX2(a *tileArgs)
TEXT ·q4_0Wide16x2AVX2(SB), NOSPLIT, $0-8
	LOAD_ARGS
	VMOVDQU ·ones16(SB), Y15
	START
block:
	ALLCOLUMNS
	VPBROADCASTD actBlock_n8(R8), Y10
	VPBROADCASTD actBlock_n8(R8)(R9*1), Y11
	VPADDD Y10, Y4, Y4
	VPADDD Y10, Y5, Y5
	VPADDD Y11, Y6, Y6
	VPADDD Y11, Y7, Y7
	SCALE((R8), Y4, Y5, Y0, Y1)
	SCALE((R8)(R9*1), Y6, Y7, Y2, Y3)
	END(576)

// func q4_kWide16x2AVX2(a *tileArgs)
TEXT ·q4_kWide16x2AVX2(SB), NOSPLIT, $0-8
	LOAD_ARGS
	VMOVDQU ·ones16(SB), Y15
	START
block:
	ALLCOLUMNS
	SCALE((R8), Y4, Y5, Y0, Y1)
	SCALE((R8)(R9*1), Y6, Y7, Y2, Y3)
	VBROADCASTSS actBlock_sd(R8), Y10
	VBROADCASTSS actBlock_sd(R8)(R9*1), Y11
	VFNMADD231PS 576(SI), Y10, Y0
	VFNMADD231PS 608(SI), Y10, Y1
	VFNMADD231PS 576(SI), Y11, Y2
	VFNMADD231PS 608(SI), Y11, Y3
	END(640)

// Six-bit weights: I for the columns 0-15 in Y4-Y7, J for 16-31 in Y8-Y11.
#define SIX(k, x, I0, I1) \
	VPBROADCASTD (4*k) x, Y14; \
	VPMADDUBSW Y14, Y12, Y15; \
	VPMADDUBSW Y14, Y13, Y14; \
	VPMADDWD ·ones16(SB), Y15, Y15; \
	VPMADDWD ·ones16(SB), Y14, Y14; \
	VPADDD Y15, I0, I0; \
	VPADDD Y14, I1, I1
#define SIXCOLUMNS(k, I0, I1, I2, I3) \
	VMOVDQU (64*k)(SI), Y12; \
	VMOVDQU (64*k+32)(SI), Y13; \
	SIX(k, (R8), I0, I1); \
	SIX(k, (R8)(R9*1), I2, I3)

// func q6_kWide16x2AVX2(a *tileArgs)
TEXT ·q6_kWide16x2AVX2(SB), NOSPLIT, $0-8
	LOAD_ARGS
	START
block:
	VPBROADCASTD actBlock_n32(R8), Y4
	VPBROADCASTD actBlock_n32(R8)(R9*1), Y6
	VMOVDQA Y4, Y5
	VMOVDQA Y6, Y7
	VPBROADCASTD (actBlock_n32+4)(R8), Y8
	VPBROADCASTD (actBlock_n32+4)(R8)(R9*1), Y10
	VMOVDQA Y8, Y9
	VMOVDQA Y10, Y11
	SIXCOLUMNS(0, Y4, Y5, Y6, Y7)
	SIXCOLUMNS(1, Y4, Y5, Y6, Y7)
	SIXCOLUMNS(2, Y4, Y5, Y6, Y7)
	SIXCOLUMNS(3, Y4, Y5, Y6, Y7)
	SIXCOLUMNS(4, Y8, Y9, Y10, Y11)
	SIXCOLUMNS(5, Y8, Y9, Y10, Y11)
	SIXCOLUMNS(6, Y8, Y9, Y10, Y11)
	SIXCOLUMNS(7, Y8, Y9, Y10, Y11)
	VMOVDQU 576(SI), Y12
	VMOVDQU 608(SI), Y13
	VMOVDQU 640(SI), Y14
	VMOVDQU 672(SI), Y15
	VPMULLD Y12, Y4, Y4
	VPMULLD Y13, Y5, Y5
	VPMULLD Y12, Y6, Y6
	VPMULLD Y13, Y7, Y7
	VPMULLD Y14, Y8, Y8
	VPMULLD Y15, Y9, Y9
	VPMULLD Y14, Y10, Y10
	VPMULLD Y15, Y11, Y11
	VPADDD Y8, Y4, Y4
	VPADDD Y9, Y5, Y5
	VPADDD Y10, Y6, Y6
	VPADDD Y11, Y7, Y7
	SCALE((R8), Y4, Y5, Y0, Y1)
	SCALE((R8)(R9*1), Y6, Y7, Y2, Y3)
	END(704)
