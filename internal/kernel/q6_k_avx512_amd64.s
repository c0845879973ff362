//go:build !purego

#include "go_asm.h"
#include "textflag.h"
#include "int8_avx512_amd64.h"

// Q6_K: a block of 210 bytes for 256 columns: 128 bytes of lower four bits, 64 bytes of
// upper two bits, 16 signed scales, f16 d. A weight stands for itself minus 32; n32 of
// the activations undoes that, for each half of 32 columns since these have a scale each.
//
// Half h of the block (128 columns) has four groups g of 32 columns, and a group two
// halves c of 16. Half c of all four groups lies in the same 3 times 16 bytes:
//	low bits of groups 0 and 2 in Z8-Z11, of 1 and 3 in Z12-Z15, high bits in Z0-Z3.

#define HALVES(h, c) \
	ROWS16(64*h+16*c); \
	TRANSPOSE(Z8, Z9, Z10, Z11); \
	ROWS16(64*h+32+16*c); \
	TRANSPOSE(Z12, Z13, Z14, Z15); \
	ROWS16(128+32*h+16*c); \
	TRANSPOSE(Z0, Z1, Z2, Z3)

// GROUP0 to GROUP3 give the four registers of half c of a group to OP(g, c, k, W), k
// being the columns 4k to 4k+3 of the half. Z31 is 0x0f in each byte, Z30 is 0x3f.
// Each two of them prefetch 420 bytes of the rows ahead, an eighth of a block of its 16
// rows; spread out, since a burst of prefetches holds up the loads behind it.
#define GROUP0(OP, c) \
	VPSLLD $4, Z0, Z4; \
	VPSLLD $4, Z1, Z5; \
	VPSLLD $4, Z2, Z6; \
	VPSLLD $4, Z3, Z7; \
	VPTERNLOGD $0xd8, Z31, Z8, Z4; \
	VPTERNLOGD $0xd8, Z31, Z9, Z5; \
	VPTERNLOGD $0xd8, Z31, Z10, Z6; \
	VPTERNLOGD $0xd8, Z31, Z11, Z7; \
	FOUR(OP, 0, c); \
	PREFETCHT1 192(R15)
#define GROUP1(OP, c) \
	VPSLLD $2, Z0, Z4; \
	VPSLLD $2, Z1, Z5; \
	VPSLLD $2, Z2, Z6; \
	VPSLLD $2, Z3, Z7; \
	VPTERNLOGD $0xd8, Z31, Z12, Z4; \
	VPTERNLOGD $0xd8, Z31, Z13, Z5; \
	VPTERNLOGD $0xd8, Z31, Z14, Z6; \
	VPTERNLOGD $0xd8, Z31, Z15, Z7; \
	FOUR(OP, 1, c); \
	ADDQ $420, R15
#define GROUP2(OP, c) \
	VPSRLD $4, Z8, Z4; \
	VPSRLD $4, Z9, Z5; \
	VPSRLD $4, Z10, Z6; \
	VPSRLD $4, Z11, Z7; \
	VPTERNLOGD $0xe4, Z31, Z0, Z4; \
	VPTERNLOGD $0xe4, Z31, Z1, Z5; \
	VPTERNLOGD $0xe4, Z31, Z2, Z6; \
	VPTERNLOGD $0xe4, Z31, Z3, Z7; \
	FOUR(OP, 2, c); \
	PREFETCHT1 192(R15)
#define GROUP3(OP, c) \
	VPSRLD $2, Z0, Z0; \
	VPSRLD $2, Z1, Z1; \
	VPSRLD $2, Z2, Z2; \
	VPSRLD $2, Z3, Z3; \
	VPSRLD $4, Z12, Z4; \
	VPSRLD $4, Z13, Z5; \
	VPSRLD $4, Z14, Z6; \
	VPSRLD $4, Z15, Z7; \
	VPTERNLOGD $0xe4, Z31, Z0, Z4; \
	VPTERNLOGD $0xe4, Z31, Z1, Z5; \
	VPTERNLOGD $0xe4, Z31, Z2, Z6; \
	VPTERNLOGD $0xe4, Z31, Z3, Z7; \
	FOUR(OP, 3, c); \
	ADDQ $420, R15

#define FOUR(OP, g, c) \
	PREFETCHT1 (256*(g%2))(R15); \
	VPANDD Z30, Z4, Z4; \
	VPANDD Z30, Z5, Z5; \
	VPANDD Z30, Z6, Z6; \
	VPANDD Z30, Z7, Z7; \
	PREFETCHT1 (256*(g%2)+64)(R15); \
	OP(g, c, 0, Z4); \
	OP(g, c, 1, Z5); \
	PREFETCHT1 (256*(g%2)+128)(R15); \
	OP(g, c, 2, Z6); \
	OP(g, c, 3, Z7)
#define MASKS \
	MOVL $0x0f0f0f0f, AX; \
	VPBROADCASTD AX, Z31; \
	MOVL $0x3f3f3f3f, AX; \
	VPBROADCASTD AX, Z30

// FRAMESCALES leaves the scales of the block in the frame: four times 16 rows of four.
#define FRAMESCALES \
	ROWS16(192); \
	TRANSPOSE(Z8, Z9, Z10, Z11); \
	VMOVDQU64 Z8, four-776(SP); \
	VMOVDQU64 Z9, four-712(SP); \
	VMOVDQU64 Z10, four-648(SP); \
	VMOVDQU64 Z11, four-584(SP)

// SCALE loads scale i of the block to Z, as 32-bit numbers.
#define SCALE(i, Z) \
	VPSLLD $(24-8*((i)%4)), four-(776-64*((i)/4))(SP), Z; \
	VPSRAD $24, Z, Z

// The kernel for two tokens has the integer sums in Z16 and Z17, the float32 sums in Z20
// and Z21, d in Z18 and, for each group, s0*i0 in Z22-Z25 and Z26-Z29. That for four
// tokens has integer sums in Z16, Z17, Z24 and Z25, float32 sums in Z20-Z23 and s0*i0 in
// the frame.

#define START2(g, c) \
	VPBROADCASTD (actBlock_n32+64*g+4*c)(SI), Z16; \
	VPBROADCASTD (actBlock_n32+64*g+4*c)(SI)(DX*1), Z17
#define DOTS2(g, c, k, W) \
	VPDPBUSD.BCST (64*g+16*c+4*k)(SI), W, Z16; \
	VPDPBUSD.BCST (64*g+16*c+4*k)(SI)(DX*1), W, Z17

#define START4(g, c) \
	START2(g, c); \
	VPBROADCASTD (actBlock_n32+64*g+4*c)(SI)(DX*2), Z24; \
	VPBROADCASTD (actBlock_n32+64*g+4*c)(SI)(R14*1), Z25
#define DOTS4(g, c, k, W) \
	DOTS2(g, c, k, W); \
	VPDPBUSD.BCST (64*g+16*c+4*k)(SI)(DX*2), W, Z24; \
	VPDPBUSD.BCST (64*g+16*c+4*k)(SI)(R14*1), W, Z25

// FIRST2 and FIRST4 keep s0*i0 of group g; i is the scale's number in the block.
#define FIRST2(i, P, Q) \
	SCALE(i, Z19); \
	VPMULLD Z19, Z16, P; \
	VPMULLD Z19, Z17, Q

#define FIRST4(i, P, Q) \
	SCALE(i, Z19); \
	VPMULLD Z19, Z16, Z16; \
	VPMULLD Z19, Z17, Z17; \
	VPMULLD Z19, Z24, Z24; \
	VPMULLD Z19, Z25, Z25; \
	VMOVDQU64 Z16, part-(1800-256*((i)/2%4))(SP); \
	VMOVDQU64 Z17, part-(1736-256*((i)/2%4))(SP); \
	VMOVDQU64 Z24, part-(1672-256*((i)/2%4))(SP); \
	VMOVDQU64 Z25, part-(1608-256*((i)/2%4))(SP)

// SECOND2 and SECOND4 add s1*i1 and then the whole, scaled, to the float32 sums.
#define SECOND2(g, i, P, Q) \
	SCALE(i, Z19); \
	VPMULLD Z19, Z16, Z16; \
	VPMULLD Z19, Z17, Z17; \
	VMULPS.BCST (actBlock_d+64*g)(SI), Z18, Z4; \
	VMULPS.BCST (actBlock_d+64*g)(SI)(DX*1), Z18, Z5; \
	VPADDD P, Z16, Z16; \
	VPADDD Q, Z17, Z17; \
	VCVTDQ2PS Z16, Z16; \
	VCVTDQ2PS Z17, Z17; \
	VFMADD231PS Z4, Z16, Z20; \
	VFMADD231PS Z5, Z17, Z21

#define SECOND4(g, i, P, Q) \
	SCALE(i, Z19); \
	VPMULLD Z19, Z24, Z24; \
	VPMULLD Z19, Z25, Z25; \
	VMULPS.BCST (actBlock_d+64*g)(SI)(DX*2), Z18, Z6; \
	VMULPS.BCST (actBlock_d+64*g)(SI)(R14*1), Z18, Z7; \
	VPADDD part-(1672-256*g)(SP), Z24, Z24; \
	VPADDD part-(1608-256*g)(SP), Z25, Z25; \
	VCVTDQ2PS Z24, Z24; \
	VCVTDQ2PS Z25, Z25; \
	VFMADD231PS Z6, Z24, Z22; \
	VFMADD231PS Z7, Z25, Z23; \
	SECOND2(g, i, part-(1800-256*g)(SP), part-(1736-256*g)(SP))

// HALF multiplies 128 columns.
#define HALF(h, INIT, DOTS, FIRST, SECOND) \
	HALVES(h, 0); \
	INIT(0, 0); \
	GROUP0(DOTS, 0); \
	FIRST(8*h+0, Z22, Z26); \
	INIT(1, 0); \
	GROUP1(DOTS, 0); \
	FIRST(8*h+2, Z23, Z27); \
	INIT(2, 0); \
	GROUP2(DOTS, 0); \
	FIRST(8*h+4, Z24, Z28); \
	INIT(3, 0); \
	GROUP3(DOTS, 0); \
	FIRST(8*h+6, Z25, Z29); \
	HALVES(h, 1); \
	INIT(0, 1); \
	GROUP0(DOTS, 1); \
	SECOND(0, 8*h+1, Z22, Z26); \
	INIT(1, 1); \
	GROUP1(DOTS, 1); \
	SECOND(1, 8*h+3, Z23, Z27); \
	INIT(2, 1); \
	GROUP2(DOTS, 1); \
	SECOND(2, 8*h+5, Z24, Z28); \
	INIT(3, 1); \
	GROUP3(DOTS, 1); \
	SECOND(3, 8*h+7, Z25, Z29); \
	ADDQ $256, SI

#define NARROW(ZERO, INIT, DOTS, FIRST, SECOND, STORE) \
	MOVQ a+0(FP), DI; \
	LOAD_ROWS; \
	SHRQ $3, CX; \
	LOAD_TOKENS; \
	MASKS; \
	ZERO; \
chunk: \
	CHUNK(208, 210); \
block: \
	VCVTPH2PS (BX), Z18; \
	FRAMESCALES; \
	HALF(0, INIT, DOTS, FIRST, SECOND); \
	HALF(1, INIT, DOTS, FIRST, SECOND); \
	ADDQ $32, BX; \
	STEP(210); \
	DECQ DI; \
	JNZ block; \
	TESTQ CX, CX; \
	JNZ chunk; \
	MOVQ a+0(FP), DI; \
	STORE; \
	VZEROUPPER; \
	RET

// One token: a register holds 64 bytes of a row, the low halves of groups 0 and 1 and
// the high halves of groups 2 and 3; each 128-bit lane has a scale of its own. The
// activations of groups 0 and 1 are in Z23, -32 times the sums of four of them in Z25;
// of groups 2 and 3 in Z24 and Z26. With this correction sums of 8 products fit 16 bits.

// ROW leaves the partial sums of half h of a row's block: of groups 0 and 1 in L, of 2
// and 3 in H. Z28 has the shifts left for the high bits of groups 0 and 1, Z27 the shifts
// right for those of 2 and 3.
#define ROW(h, x, L, H) \
	VMOVDQU64 (64*h) x, Z0; \
	VBROADCASTI64X4 (128+32*h) x, Z1; \
	VMOVDQA64 Z25, L; \
	VMOVDQA64 Z26, H; \
	VPSLLVD Z28, Z1, Z2; \
	VPSRLVD Z27, Z1, Z1; \
	VPSRLD $4, Z0, Z3; \
	VPTERNLOGD $0xd8, Z31, Z0, Z2; \
	VPTERNLOGD $0xe4, Z31, Z1, Z3; \
	VPANDD Z30, Z2, Z2; \
	VPANDD Z30, Z3, Z3; \
	VPDPBUSD Z23, Z2, L; \
	VPDPBUSD Z24, Z3, H

// ROWS4 does so for rows 4q to 4q+3 and leaves, in each lane, their sums times the
// lane's scales in RL and RH. It prefetches 420 bytes of the rows ahead.
#define ROWS4(h, q, x0, x1, x2, x3, RL, RH) \
	ROW(h, x0, Z4, Z6); \
	PREFETCHT1 (R15); \
	PREFETCHT1 64(R15); \
	ROW(h, x1, Z5, Z7); \
	TWOROWS(Z4, Z5); \
	TWOROWS(Z6, Z7); \
	PREFETCHT1 128(R15); \
	PREFETCHT1 192(R15); \
	ROW(h, x2, Z5, Z7); \
	PREFETCHT1 256(R15); \
	PREFETCHT1 320(R15); \
	ROW(h, x3, Z16, Z17); \
	TWOROWS(Z5, Z16); \
	TWOROWS(Z7, Z17); \
	PREFETCHT1 384(R15); \
	ADDQ $420, R15; \
	VPMOVSXBD four-(776-64*q-32*h)(SP), Z0; \
	VPMOVSXBD four-(760-64*q-32*h)(SP), Z1; \
	FOURROWS(Z4, Z5, RL); \
	FOURROWS(Z6, Z7, RH); \
	VPMULLD Z0, RL, RL; \
	VPMULLD Z1, RH, RH

// LANESCALES leaves the scales of rows 4q to 4q+3 in the frame, number i of all four
// before number i+1.
#define LANESCALES(q, x0, x1, x2, x3) \
	VMOVDQU 192 x0, X0; \
	VINSERTI32X4 $1, 192 x1, Z0, Z0; \
	VINSERTI32X4 $2, 192 x2, Z0, Z0; \
	VINSERTI32X4 $3, 192 x3, Z0, Z0; \
	VPERMD Z0, Z21, Z0; \
	VPSHUFB Z22, Z0, Z0; \
	VMOVDQU64 Z0, four-(776-64*q)(SP)

// ADDGROUP adds the scaled integer sums I of group g to the float32 sums.
#define ADDGROUP(g, I) \
	VMULPS.BCST (actBlock_d+64*g)(SI), Z18, Z0; \
	VCVTDQ2PS I, I; \
	VFMADD231PS Z0, I, Z20

// ONEHALF multiplies 128 columns.
#define ONEHALF(h) \
	VMOVDQU64 (SI), Y23; \
	VMOVDQU64 128(SI), Y24; \
	VINSERTI64X4 $1, 64(SI), Z23, Z23; \
	VINSERTI64X4 $1, 192(SI), Z24, Z24; \
	VPXORD Z0, Z0, Z0; \
	VPXORD Z1, Z1, Z1; \
	VPXORD Z2, Z2, Z2; \
	VPDPBUSD Z23, Z19, Z1; \
	VPDPBUSD Z24, Z19, Z2; \
	VPSUBD Z1, Z0, Z25; \
	VPSUBD Z2, Z0, Z26; \
	ROWS4(h, 0, (R8), (R8)(R9*1), (R8)(R9*2), (R8)(R10*1), Z8, Z12); \
	ROWS4(h, 1, (R8)(R9*4), (R8)(R11*1), (R8)(R10*2), (R8)(R12*1), Z9, Z13); \
	ROWS4(h, 2, (R13), (R13)(R9*1), (R13)(R9*2), (R13)(R10*1), Z10, Z14); \
	ROWS4(h, 3, (R13)(R9*4), (R13)(R11*1), (R13)(R10*2), (R13)(R12*1), Z11, Z15); \
	LANES(Z8, Z9, Z10, Z11, Z4, Z5); \
	LANES(Z12, Z13, Z14, Z15, Z6, Z7); \
	ADDGROUP(0, Z4); \
	ADDGROUP(1, Z5); \
	ADDGROUP(2, Z6); \
	ADDGROUP(3, Z7); \
	ADDQ $256, SI

// Columns of a 4 by 4 matrix before its rows: of bytes, and of 32-bit numbers.
DATA ·transposed4+0(SB)/8, $0x0d0905010c080400
DATA ·transposed4+8(SB)/8, $0x0f0b07030e0a0602
GLOBL ·transposed4(SB), RODATA|NOPTR, $16

// func q6_kx1AVX512(a *tileArgs)
TEXT ·q6_kx1AVX512(SB), 0, $776-8
	MOVQ a+0(FP), DI
	LOAD_ROWS
	SHRQ $3, CX
	LOAD_TOKENS
	MASKS
	ONES
	ZERO1
	VBROADCASTI32X4 ·transposed4(SB), Z22
	VPMOVZXBD ·transposed4(SB), Z21
	MOVL $0x20202020, AX
	VPBROADCASTD AX, Z19
	MOVL $2, AX
	VPBROADCASTD AX, Z28
	VPXORD Z27, Z27, Z27
	VINSERTI64X4 $1, Y28, Z27, Z27
	VPADDD Y28, Y28, Y0
	VINSERTI64X4 $0, Y0, Z28, Z28
chunk:
	CHUNK(208, 210)
block:
	VCVTPH2PS (BX), Z18
	LANESCALES(0, (R8), (R8)(R9*1), (R8)(R9*2), (R8)(R10*1))
	LANESCALES(1, (R8)(R9*4), (R8)(R11*1), (R8)(R10*2), (R8)(R12*1))
	LANESCALES(2, (R13), (R13)(R9*1), (R13)(R9*2), (R13)(R10*1))
	LANESCALES(3, (R13)(R9*4), (R13)(R11*1), (R13)(R10*2), (R13)(R12*1))
	ONEHALF(0)
	ONEHALF(1)
	ADDQ $32, BX
	STEP(210)
	DECQ DI
	JNZ block
	TESTQ CX, CX
	JNZ chunk
	MOVQ a+0(FP), DI
	STORE1
	VZEROUPPER
	RET

// func q6_kx2AVX512(a *tileArgs)
TEXT ·q6_kx2AVX512(SB), 0, $776-8
	NARROW(ZERO2, START2, DOTS2, FIRST2, SECOND2, STORE2)

// func q6_kx4AVX512(a *tileArgs)
TEXT ·q6_kx4AVX512(SB), 0, $1800-8
	NARROW(ZERO4, START4, DOTS4, FIRST4, SECOND4, STORE4)

// Records of the panel are 704 bytes, so 1408 from a group to the next.
#define KEEP(g, c, k, W) \
	VMOVDQU64 W, (1408*g+256*c+64*k)(SI)

#define KEEPSCALES(h, g) \
	SCALE(8*h+2*g, Z4); \
	SCALE(8*h+2*g+1, Z5); \
	VMOVUPS Z18, (1408*g+512)(SI); \
	VMOVDQU64 Z4, (1408*g+576)(SI); \
	VMOVDQU64 Z5, (1408*g+640)(SI)

#define KEEPHALF(h) \
	HALVES(h, 0); \
	GROUP0(KEEP, 0); \
	GROUP1(KEEP, 0); \
	GROUP2(KEEP, 0); \
	GROUP3(KEEP, 0); \
	HALVES(h, 1); \
	GROUP0(KEEP, 1); \
	GROUP1(KEEP, 1); \
	GROUP2(KEEP, 1); \
	GROUP3(KEEP, 1); \
	KEEPSCALES(h, 0); \
	KEEPSCALES(h, 1); \
	KEEPSCALES(h, 2); \
	KEEPSCALES(h, 3); \
	ADDQ $5632, SI

// func q6_kPanelAVX512(a *tileArgs)
TEXT ·q6_kPanelAVX512(SB), 0, $776-8
	MOVQ a+0(FP), DI
	LOAD_ROWS
	SHRQ $3, CX
	MOVQ tileArgs_panel(DI), SI
	MASKS
chunk:
	CHUNK(208, 210)
block:
	VCVTPH2PS (BX), Z18
	FRAMESCALES
	KEEPHALF(0)
	KEEPHALF(1)
	ADDQ $32, BX
	STEP(210)
	DECQ DI
	JNZ block
	TESTQ CX, CX
	JNZ chunk
	VZEROUPPER
	RET
