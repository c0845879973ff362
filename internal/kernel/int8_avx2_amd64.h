// Macros of the AVX2 int8 kernels: as those for AVX-512, with tiles of 8 rows. There is
// no VPDPBUSD; VPMADDUBSW multiplies unsigned weights with signed activations and adds
// two of the products in 16 bits, and VPMADDWD adds two of these in 32.
//
// Registers with one meaning throughout:
//	DI  arguments (tileArgs)
//	R8  row 0 at the current block
//	R9, R10, R11, R12  1, 3, 5 and 7 times the bytes of a row
//	SI  token 0 at the current block; DX  the bytes of a token
//	CX  blocks left; where scales are copied to the frame first: after this chunk
//	R15 where to prefetch: the same block of the rows ahead

#define LOAD_ROWS \
	MOVQ tileArgs_w(DI), R8; \
	MOVQ tileArgs_rowBytes(DI), R9; \
	LEAQ (R9)(R9*2), R10; \
	LEAQ (R9)(R9*4), R11; \
	LEAQ (R10)(R9*4), R12; \
	MOVQ tileArgs_ahead(DI), R15; \
	MOVQ tileArgs_blocks(DI), CX

#define LOAD_TOKENS \
	MOVQ tileArgs_x(DI), SI; \
	MOVQ tileArgs_stride(DI), DX

// ROWS8 loads 16 bytes of each row: the low lane of Y0-Y3 gets rows 0-3, the high lane
// rows 4-7.
#define ROWS8(off) \
	VMOVDQU (off)(R8), X0; \
	VMOVDQU (off)(R8)(R9*1), X1; \
	VMOVDQU (off)(R8)(R9*2), X2; \
	VMOVDQU (off)(R8)(R10*1), X3; \
	VINSERTI128 $1, (off)(R8)(R9*4), Y0, Y0; \
	VINSERTI128 $1, (off)(R8)(R11*1), Y1, Y1; \
	VINSERTI128 $1, (off)(R8)(R10*2), Y2, Y2; \
	VINSERTI128 $1, (off)(R8)(R12*1), Y3, Y3

// TRANSPOSE turns what ROWS8 loaded into four registers with bytes 0-3, 4-7, 8-11 and
// 12-15 of row l in 32-bit lane l. Clobbers Y0-Y4.
#define TRANSPOSE(W0, W1, W2, W3) \
	VPUNPCKLDQ  Y1, Y0, Y4; \
	VPUNPCKHDQ  Y1, Y0, Y0; \
	VPUNPCKLDQ  Y3, Y2, Y1; \
	VPUNPCKHDQ  Y3, Y2, Y2; \
	VPUNPCKLQDQ Y1, Y4, W0; \
	VPUNPCKHQDQ Y1, Y4, W1; \
	VPUNPCKLQDQ Y2, Y0, W2; \
	VPUNPCKHQDQ Y2, Y0, W3

// HALVES8 copies the half-precision number at off of each row to 8 successive ones at
// BX, well ahead of the load that takes all 8 at once.
#define HALVES8(off) \
	MOVWLZX off(R8), AX; \
	MOVW    AX, 0(BX); \
	MOVWLZX off(R8)(R9*1), AX; \
	MOVW    AX, 2(BX); \
	MOVWLZX off(R8)(R9*2), AX; \
	MOVW    AX, 4(BX); \
	MOVWLZX off(R8)(R10*1), AX; \
	MOVW    AX, 6(BX); \
	MOVWLZX off(R8)(R9*4), AX; \
	MOVW    AX, 8(BX); \
	MOVWLZX off(R8)(R11*1), AX; \
	MOVW    AX, 10(BX); \
	MOVWLZX off(R8)(R10*2), AX; \
	MOVW    AX, 12(BX); \
	MOVWLZX off(R8)(R12*1), AX; \
	MOVW    AX, 14(BX)

// CHUNK takes up to 16 blocks off CX and copies their scales, at off of blocks of so
// many bytes, to the frame. The number of blocks is left in DI, the place of the first
// scales in BX.
#define CHUNK(off, bytes) \
	MOVQ $16, DI; \
	CMPQ CX, DI; \
	CMOVQLT CX, DI; \
	SUBQ DI, CX; \
	MOVQ DI, R13; \
	LEAQ scales-256(SP), BX; \
copy: \
	HALVES8(off); \
	ADDQ $bytes, R8; \
	ADDQ $16, BX; \
	DECQ R13; \
	JNZ copy; \
	IMUL3Q $bytes, DI, AX; \
	SUBQ AX, R8; \
	LEAQ scales-256(SP), BX

// The kernels sum float32 in Y12 (token 0) and Y13 (token 1).

#define ZERO1 \
	VPXOR Y12, Y12, Y12
#define ZERO2 \
	VPXOR Y12, Y12, Y12; \
	VPXOR Y13, Y13, Y13

// ADD adds the integer sums I of the token at x, times the weights' scale S and the
// token's, to its float32 sums.
#define ADD(x, S, I, A, T) \
	VBROADCASTSS actBlock_d x, T; \
	VMULPS S, T, T; \
	VCVTDQ2PS I, I; \
	VFMADD231PS T, I, A

#define STORE1 \
	MOVQ tileArgs_dst(DI), AX; \
	VMOVUPS Y12, (AX)
#define STORE2 \
	MOVQ tileArgs_dst(DI), AX; \
	MOVQ tileArgs_ld(DI), BX; \
	VMOVUPS Y12, (AX); \
	VMOVUPS Y13, (AX)(BX*1)
