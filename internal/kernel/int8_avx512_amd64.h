// Macros of the AVX-512 int8 kernels.
//
// They work on tiles of 16 rows with one row in each 32-bit lane: a register W holds
// four consecutive weights of each row, and VPDPBUSD multiplies them with four
// activations that are the same for all rows. No sums across lanes are needed, and the
// float32 accumulators grow block by block in the order that the plain-Go twin has.
//
// Registers with one meaning throughout:
//	DI  arguments (tileArgs)
//	R8  row 0 at the current block; R13 row 8
//	R9, R10, R11, R12  1, 3, 5 and 7 times the bytes of a row
//	SI  token 0 at the current block; DX, R14  1 and 3 times the bytes of a token
//	CX  blocks left; where scales are copied to the frame first: after this chunk
//	R15 where to prefetch: the same block of the rows ahead

#define LOAD_ROWS \
	MOVQ tileArgs_w(DI), R8; \
	MOVQ tileArgs_rowBytes(DI), R9; \
	LEAQ (R9)(R9*2), R10; \
	LEAQ (R9)(R9*4), R11; \
	LEAQ (R10)(R9*4), R12; \
	LEAQ (R8)(R9*8), R13; \
	MOVQ tileArgs_ahead(DI), R15; \
	MOVQ tileArgs_blocks(DI), CX

#define LOAD_TOKENS \
	MOVQ tileArgs_x(DI), SI; \
	MOVQ tileArgs_stride(DI), DX; \
	LEAQ (DX)(DX*2), R14

// ROWS16 loads 16 bytes of each row: lane l (128 bits) of Z0 gets row 4l, of Z1 row
// 4l+1, of Z2 row 4l+2, of Z3 row 4l+3.
#define ROWS16(off) \
	VMOVDQU (off)(R8), X0; \
	VMOVDQU (off)(R8)(R9*1), X1; \
	VMOVDQU (off)(R8)(R9*2), X2; \
	VMOVDQU (off)(R8)(R10*1), X3; \
	VINSERTI32X4 $1, (off)(R8)(R9*4), Z0, Z0; \
	VINSERTI32X4 $1, (off)(R8)(R11*1), Z1, Z1; \
	VINSERTI32X4 $1, (off)(R8)(R10*2), Z2, Z2; \
	VINSERTI32X4 $1, (off)(R8)(R12*1), Z3, Z3; \
	VINSERTI32X4 $2, (off)(R13), Z0, Z0; \
	VINSERTI32X4 $2, (off)(R13)(R9*1), Z1, Z1; \
	VINSERTI32X4 $2, (off)(R13)(R9*2), Z2, Z2; \
	VINSERTI32X4 $2, (off)(R13)(R10*1), Z3, Z3; \
	VINSERTI32X4 $3, (off)(R13)(R9*4), Z0, Z0; \
	VINSERTI32X4 $3, (off)(R13)(R11*1), Z1, Z1; \
	VINSERTI32X4 $3, (off)(R13)(R10*2), Z2, Z2; \
	VINSERTI32X4 $3, (off)(R13)(R12*1), Z3, Z3

// TRANSPOSE turns what ROWS16 loaded into four registers with bytes 0-3, 4-7, 8-11
// and 12-15 of row l in 32-bit lane l. Clobbers Z4-Z7.
#define TRANSPOSE(W0, W1, W2, W3) \
	VPUNPCKLDQ  Z1, Z0, Z4; \
	VPUNPCKHDQ  Z1, Z0, Z5; \
	VPUNPCKLDQ  Z3, Z2, Z6; \
	VPUNPCKHDQ  Z3, Z2, Z7; \
	VPUNPCKLQDQ Z6, Z4, W0; \
	VPUNPCKHQDQ Z6, Z4, W1; \
	VPUNPCKLQDQ Z7, Z5, W2; \
	VPUNPCKHQDQ Z7, Z5, W3

// HALVES16 copies the half-precision number at off of each row to 16 successive ones
// at D.
#define HALVES16(off, D) \
	MOVWLZX (off)(R8), AX; \
	MOVW    AX, 0(D); \
	MOVWLZX (off)(R8)(R9*1), AX; \
	MOVW    AX, 2(D); \
	MOVWLZX (off)(R8)(R9*2), AX; \
	MOVW    AX, 4(D); \
	MOVWLZX (off)(R8)(R10*1), AX; \
	MOVW    AX, 6(D); \
	MOVWLZX (off)(R8)(R9*4), AX; \
	MOVW    AX, 8(D); \
	MOVWLZX (off)(R8)(R11*1), AX; \
	MOVW    AX, 10(D); \
	MOVWLZX (off)(R8)(R10*2), AX; \
	MOVW    AX, 12(D); \
	MOVWLZX (off)(R8)(R12*1), AX; \
	MOVW    AX, 14(D); \
	MOVWLZX (off)(R13), AX; \
	MOVW    AX, 16(D); \
	MOVWLZX (off)(R13)(R9*1), AX; \
	MOVW    AX, 18(D); \
	MOVWLZX (off)(R13)(R9*2), AX; \
	MOVW    AX, 20(D); \
	MOVWLZX (off)(R13)(R10*1), AX; \
	MOVW    AX, 22(D); \
	MOVWLZX (off)(R13)(R9*4), AX; \
	MOVW    AX, 24(D); \
	MOVWLZX (off)(R13)(R11*1), AX; \
	MOVW    AX, 26(D); \
	MOVWLZX (off)(R13)(R10*2), AX; \
	MOVW    AX, 28(D); \
	MOVWLZX (off)(R13)(R12*1), AX; \
	MOVW    AX, 30(D)

// STEP moves all row pointers by one block.
#define STEP(bytes) \
	ADDQ $bytes, R8; \
	ADDQ $bytes, R13

// The scales of a block's 16 rows pass through a ring of 8 blocks in the frame, four
// blocks before they are used: a load cannot take its bytes from several stores that
// are still under way. BX is the place of the current block in the ring.

// RING_START copies the scales of the first four blocks, at off of blocks of so many
// bytes.
#define RING_START(off, bytes) \
	MOVQ $4, AX; \
	CMPQ CX, AX; \
	CMOVQLT CX, AX; \
	SHLQ $5, AX; \
	MOVQ AX, limit-264(SP); \
	MOVQ R8, start-272(SP); \
	XORL BX, BX; \
first: \
	LEAQ ring-256(SP)(BX*1), DI; \
	HALVES16(off, DI); \
	STEP(bytes); \
	ADDQ $32, BX; \
	CMPQ BX, limit-264(SP); \
	JLT first; \
	MOVQ start-272(SP), R8; \
	LEAQ (R8)(R9*8), R13; \
	XORL BX, BX

// RING_AHEAD copies the scales of the block four on, if there is one.
#define RING_AHEAD(off, bytes) \
	CMPQ CX, $4; \
	JLE last; \
	MOVQ BX, DI; \
	XORQ $128, DI; \
	LEAQ ring-256(SP)(DI*1), DI; \
	HALVES16(off+4*bytes, DI); \
last:

// RING_NEXT goes to the next block.
#define RING_NEXT \
	ADDL $32, BX; \
	ANDL $255, BX

// CHUNK takes up to 16 blocks off CX and copies their scales, at off of blocks of so
// many bytes, to the frame. The number of blocks is left in DI, the place of the first
// scales in BX. It serves where scales are few.
#define CHUNK(off, bytes) \
	MOVQ $16, DI; \
	CMPQ CX, DI; \
	CMOVQLT CX, DI; \
	SUBQ DI, CX; \
	MOVQ DI, left-8(SP); \
	LEAQ scales-520(SP), BX; \
copy: \
	HALVES16(off, BX); \
	STEP(bytes); \
	ADDQ $32, BX; \
	DECQ left-8(SP); \
	JNZ copy; \
	IMUL3Q $bytes, DI, AX; \
	SUBQ AX, R8; \
	SUBQ AX, R13; \
	LEAQ scales-520(SP), BX

// Tokens t = 0-3 sum integers in Z16-Z19 and float32 in Z20-Z23.

// DOT2 and DOT4 add the products of step k (columns 4k to 4k+3) for so many tokens.
#define DOT2(k, W) \
	VPDPBUSD.BCST (4*(k))(SI), W, Z16; \
	VPDPBUSD.BCST (4*(k))(SI)(DX*1), W, Z17
#define DOT4(k, W) \
	VPDPBUSD.BCST (4*(k))(SI), W, Z16; \
	VPDPBUSD.BCST (4*(k))(SI)(DX*1), W, Z17; \
	VPDPBUSD.BCST (4*(k))(SI)(DX*2), W, Z18; \
	VPDPBUSD.BCST (4*(k))(SI)(R14*1), W, Z19

// INIT2 and INIT4 start the integer sums with the correction at off of the actBlock.
#define INIT2(off) \
	VPBROADCASTD off(SI), Z16; \
	VPBROADCASTD off(SI)(DX*1), Z17
#define INIT4(off) \
	VPBROADCASTD off(SI), Z16; \
	VPBROADCASTD off(SI)(DX*1), Z17; \
	VPBROADCASTD off(SI)(DX*2), Z18; \
	VPBROADCASTD off(SI)(R14*1), Z19

// ADD1, ADD2, ADD4 add the integer sums, times the weights' scale in Z24 and the
// token's, to the float32 sums.
#define ADD1 \
	VMULPS.BCST actBlock_d(SI), Z24, Z25; \
	VCVTDQ2PS   Z16, Z16; \
	VFMADD231PS Z25, Z16, Z20
#define ADD2 \
	VMULPS.BCST actBlock_d(SI), Z24, Z25; \
	VMULPS.BCST actBlock_d(SI)(DX*1), Z24, Z26; \
	VCVTDQ2PS   Z16, Z16; \
	VCVTDQ2PS   Z17, Z17; \
	VFMADD231PS Z25, Z16, Z20; \
	VFMADD231PS Z26, Z17, Z21
#define ADD4 \
	ADD2; \
	VMULPS.BCST actBlock_d(SI)(DX*2), Z24, Z27; \
	VMULPS.BCST actBlock_d(SI)(R14*1), Z24, Z28; \
	VCVTDQ2PS   Z18, Z18; \
	VCVTDQ2PS   Z19, Z19; \
	VFMADD231PS Z27, Z18, Z22; \
	VFMADD231PS Z28, Z19, Z23

#define ZERO1 \
	VPXORD Z20, Z20, Z20
#define ZERO2 \
	VPXORD Z20, Z20, Z20; \
	VPXORD Z21, Z21, Z21
#define ZERO4 \
	ZERO2; \
	VPXORD Z22, Z22, Z22; \
	VPXORD Z23, Z23, Z23

// STORE1, STORE2, STORE4 write the float32 sums of the 16 rows.
#define STORE1 \
	MOVQ tileArgs_dst(DI), AX; \
	VMOVUPS Z20, (AX)
#define STORE2 \
	MOVQ tileArgs_dst(DI), AX; \
	MOVQ tileArgs_ld(DI), BX; \
	VMOVUPS Z20, (AX); \
	VMOVUPS Z21, (AX)(BX*1)
#define STORE4 \
	STORE2; \
	LEAQ (AX)(BX*2), AX; \
	VMOVUPS Z22, (AX); \
	VMOVUPS Z23, (AX)(BX*1)

// The kernels for one token do not transpose the weights. A register holds weights of one
// row (Q4_K, Q6_K) or 16 bytes of each of four rows, VPDPBUSD leaves partial sums in its
// 16 lanes, and these are added up for 16 rows together. While they fit 16 bits, packing
// halves the registers and VPMADDWD with Z29, 1 in each 16 bits, adds neighbours: less
// than half as many shuffles as transposing the weights takes.

// TWOROWS adds neighbours among the sums of two rows: each 128-bit lane of A then has
// two of them for either row.
#define TWOROWS(A, B) \
	VPACKSSDW B, A, A; \
	VPMADDWD Z29, A, A

// FOURROWS does so again with those of two more: lane l of R has the sum of lane l of
// four rows.
#define FOURROWS(A, C, R) \
	VPACKSSDW C, A, A; \
	VPMADDWD Z29, A, R

// LANES takes R0-R3, four rows each, to the sums of lanes 0 and 1 of 16 rows in I and
// those of lanes 2 and 3 in J. Clobbers R0, R1 and Z0.
#define LANES(R0, R1, R2, R3, I, J) \
	VSHUFI32X4 $0x88, R1, R0, Z0; \
	VSHUFI32X4 $0xdd, R1, R0, R1; \
	VPADDD R1, Z0, Z0; \
	VSHUFI32X4 $0x88, R3, R2, R0; \
	VSHUFI32X4 $0xdd, R3, R2, R1; \
	VPADDD R1, R0, R0; \
	VSHUFI32X4 $0x88, R0, Z0, I; \
	VSHUFI32X4 $0xdd, R0, Z0, J

#define ONES \
	MOVL $0x00010001, AX; \
	VPBROADCASTD AX, Z29
