//go:build !purego

#include "textflag.h"

// Vector kernels on 16 elements a round, in two registers: the avx2 and the avx512
// implementations share those that wait for memory or for the latency of one chain.

#define ARGS2 \
	MOVQ dst+0(FP), DI \
	MOVQ x+8(FP), SI \
	MOVQ n+16(FP), CX

// func addAVX2(dst, x *float32, n int)
TEXT ·addAVX2(SB), NOSPLIT, $0-24
	ARGS2
loop:
	VMOVUPS (DI), Y0
	VMOVUPS 32(DI), Y1
	VADDPS  (SI), Y0, Y0
	VADDPS  32(SI), Y1, Y1
	VMOVUPS Y0, (DI)
	VMOVUPS Y1, 32(DI)
	ADDQ    $64, SI
	ADDQ    $64, DI
	SUBQ    $16, CX
	JNZ     loop
	VZEROUPPER
	RET

// func mulAVX2(dst, x *float32, n int)
TEXT ·mulAVX2(SB), NOSPLIT, $0-24
	ARGS2
loop:
	VMOVUPS (DI), Y0
	VMOVUPS 32(DI), Y1
	VMULPS  (SI), Y0, Y0
	VMULPS  32(SI), Y1, Y1
	VMOVUPS Y0, (DI)
	VMOVUPS Y1, 32(DI)
	ADDQ    $64, SI
	ADDQ    $64, DI
	SUBQ    $16, CX
	JNZ     loop
	VZEROUPPER
	RET

// func scaleAVX2(dst, x *float32, n int, s float32)
TEXT ·scaleAVX2(SB), NOSPLIT, $0-28
	ARGS2
	VBROADCASTSS s+24(FP), Y2
loop:
	VMULPS  (SI), Y2, Y0
	VMULPS  32(SI), Y2, Y1
	VMOVUPS Y0, (DI)
	VMOVUPS Y1, 32(DI)
	ADDQ    $64, SI
	ADDQ    $64, DI
	SUBQ    $16, CX
	JNZ     loop
	VZEROUPPER
	RET

// func scaleMulAVX2(dst, x, w *float32, n int, s float32)
TEXT ·scaleMulAVX2(SB), NOSPLIT, $0-36
	MOVQ         dst+0(FP), DI
	MOVQ         x+8(FP), SI
	MOVQ         w+16(FP), DX
	MOVQ         n+24(FP), CX
	VBROADCASTSS s+32(FP), Y2
loop:
	VMULPS  (SI), Y2, Y0
	VMULPS  32(SI), Y2, Y1
	VMULPS  (DX), Y0, Y0
	VMULPS  32(DX), Y1, Y1
	VMOVUPS Y0, (DI)
	VMOVUPS Y1, 32(DI)
	ADDQ    $64, SI
	ADDQ    $64, DX
	ADDQ    $64, DI
	SUBQ    $16, CX
	JNZ     loop
	VZEROUPPER
	RET

// func sumSquaresAVX2(l *lanes, x *float32, n int)
TEXT ·sumSquaresAVX2(SB), NOSPLIT, $0-24
	MOVQ   l+0(FP), DI
	MOVQ   x+8(FP), SI
	MOVQ   n+16(FP), CX
	VXORPS Y0, Y0, Y0
	VXORPS Y1, Y1, Y1
loop:
	VMOVUPS     (SI), Y2
	VMOVUPS     32(SI), Y3
	VFMADD231PS Y2, Y2, Y0
	VFMADD231PS Y3, Y3, Y1
	ADDQ        $64, SI
	SUBQ        $16, CX
	JNZ         loop
	VMOVUPS     Y0, (DI)
	VMOVUPS     Y1, 32(DI)
	VZEROUPPER
	RET

// VMAXPS gives its first operand (in this order) when one is a NaN: the running
// maximum comes first.

// func maxAVX2(x *float32, n int) float32
TEXT ·maxAVX2(SB), NOSPLIT, $0-20
	MOVQ         x+0(FP), SI
	MOVQ         n+8(FP), CX
	MOVL         $0xff800000, AX
	MOVL         AX, X0
	VPBROADCASTD X0, Y0
	VMOVAPS      Y0, Y1
loop:
	VMOVUPS (SI), Y2
	VMOVUPS 32(SI), Y3
	VMAXPS  Y0, Y2, Y0
	VMAXPS  Y1, Y3, Y1
	ADDQ    $64, SI
	SUBQ    $16, CX
	JNZ     loop
	VMAXPS       Y0, Y1, Y0
	VEXTRACTF128 $1, Y0, X1
	VMAXPS       X0, X1, X0
	VPERMILPS    $0x4e, X0, X1
	VMAXPS       X0, X1, X0
	VPERMILPS    $0xb1, X0, X1
	VMAXSS       X0, X1, X0
	VMOVSS       X0, ret+16(FP)
	VZEROUPPER
	RET

// func indexAVX2(x *float32, n int, v float32) int
TEXT ·indexAVX2(SB), NOSPLIT, $0-32
	MOVQ         x+0(FP), SI
	MOVQ         n+8(FP), CX
	VBROADCASTSS v+16(FP), Y2
	XORQ         DX, DX
loop:
	VCMPPS    $0, (SI)(DX*4), Y2, Y0
	VCMPPS    $0, 32(SI)(DX*4), Y2, Y1
	VMOVMSKPS Y0, AX
	VMOVMSKPS Y1, BX
	SHLL      $8, BX
	ORL       BX, AX
	JNZ       found
	ADDQ      $16, DX
	CMPQ      DX, CX
	JLT       loop
	MOVQ      $-1, ret+24(FP)
	VZEROUPPER
	RET
found:
	BSFL AX, AX
	ADDQ AX, DX
	MOVQ DX, ret+24(FP)
	VZEROUPPER
	RET

// func ropeNeoXAVX2(a, b, cos, sin *float32, n int)
TEXT ·ropeNeoXAVX2(SB), NOSPLIT, $0-40
	MOVQ a+0(FP), DI
	MOVQ b+8(FP), SI
	MOVQ cos+16(FP), R8
	MOVQ sin+24(FP), R9
	MOVQ n+32(FP), CX
	XORQ DX, DX
loop:
	VMOVUPS (DI)(DX*4), Y0
	VMOVUPS (SI)(DX*4), Y1
	VMOVUPS (R8)(DX*4), Y2
	VMOVUPS (R9)(DX*4), Y3
	VMULPS  Y0, Y2, Y4
	VMULPS  Y1, Y3, Y5
	VMULPS  Y1, Y2, Y6
	VMULPS  Y0, Y3, Y7
	VSUBPS  Y5, Y4, Y4
	VADDPS  Y7, Y6, Y6
	VMOVUPS Y4, (DI)(DX*4)
	VMOVUPS Y6, (SI)(DX*4)
	ADDQ    $8, DX
	CMPQ    DX, CX
	JLT     loop
	VZEROUPPER
	RET

// func ropeNormAVX2(x, cos, sin *float32, n int)
TEXT ·ropeNormAVX2(SB), NOSPLIT, $0-32
	MOVQ x+0(FP), DI
	MOVQ cos+8(FP), R8
	MOVQ sin+16(FP), R9
	MOVQ n+24(FP), CX
loop:
	VPMOVZXDQ  (R8), Y2
	VPMOVZXDQ  (R9), Y3
	VMOVSLDUP  Y2, Y2
	VMOVSLDUP  Y3, Y3
	VMOVUPS    (DI), Y0
	VPERMILPS  $0xb1, Y0, Y1
	VMULPS     Y0, Y2, Y0
	VMULPS     Y1, Y3, Y1
	VADDSUBPS  Y1, Y0, Y0
	VMOVUPS    Y0, (DI)
	ADDQ       $16, R8
	ADDQ       $16, R9
	ADDQ       $32, DI
	SUBQ       $4, CX
	JNZ        loop
	VZEROUPPER
	RET

// func storeF16AVX2(dst *uint16, src *float32, n int)
TEXT ·storeF16AVX2(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
loop:
	VMOVUPS   (SI), Y0
	VMOVUPS   32(SI), Y1
	VCVTPS2PH $0, Y0, X0
	VCVTPS2PH $0, Y1, X1
	VMOVUPS   X0, (DI)
	VMOVUPS   X1, 16(DI)
	ADDQ      $64, SI
	ADDQ      $32, DI
	SUBQ      $16, CX
	JNZ       loop
	VZEROUPPER
	RET

// func loadF16AVX2(dst *float32, src *uint16, n int)
TEXT ·loadF16AVX2(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
loop:
	VCVTPH2PS (SI), Y0
	VCVTPH2PS 16(SI), Y1
	VMOVUPS   Y0, (DI)
	VMOVUPS   Y1, 32(DI)
	ADDQ      $32, SI
	ADDQ      $64, DI
	SUBQ      $16, CX
	JNZ       loop
	VZEROUPPER
	RET

// The widening kernels leave room for the same columns of three other rows.

// func widenF32AVX2(dst *float32, src unsafe.Pointer, n int)
TEXT ·widenF32AVX2(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
loop:
	VMOVUPS (SI), Y0
	VMOVUPS 32(SI), Y1
	VMOVUPS Y0, (DI)
	VMOVUPS Y1, 32(DI)
	ADDQ    $64, SI
	ADDQ    $256, DI
	SUBQ    $16, CX
	JNZ     loop
	VZEROUPPER
	RET

// func widenF16AVX2(dst *float32, src unsafe.Pointer, n int)
TEXT ·widenF16AVX2(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
loop:
	VCVTPH2PS (SI), Y0
	VCVTPH2PS 16(SI), Y1
	VMOVUPS   Y0, (DI)
	VMOVUPS   Y1, 32(DI)
	ADDQ      $32, SI
	ADDQ      $256, DI
	SUBQ      $16, CX
	JNZ       loop
	VZEROUPPER
	RET

// func widenBF16AVX2(dst *float32, src unsafe.Pointer, n int)
TEXT ·widenBF16AVX2(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
loop:
	VPMOVZXWD (SI), Y0
	VPMOVZXWD 16(SI), Y1
	VPSLLD    $16, Y0, Y0
	VPSLLD    $16, Y1, Y1
	VMOVUPS   Y0, (DI)
	VMOVUPS   Y1, 32(DI)
	ADDQ      $32, SI
	ADDQ      $256, DI
	SUBQ      $16, CX
	JNZ       loop
	VZEROUPPER
	RET

// func mergeRowAVX2(o, tile *float32, n int, fa, fb float32)
TEXT ·mergeRowAVX2(SB), NOSPLIT, $0-32
	MOVQ         o+0(FP), DI
	MOVQ         tile+8(FP), SI
	MOVQ         n+16(FP), CX
	VBROADCASTSS fa+24(FP), Y4
	VBROADCASTSS fb+28(FP), Y5
loop:
	VMULPS      (SI), Y5, Y0
	VMULPS      32(SI), Y5, Y1
	VFMADD231PS (DI), Y4, Y0
	VFMADD231PS 32(DI), Y4, Y1
	VMOVUPS     Y0, (DI)
	VMOVUPS     Y1, 32(DI)
	ADDQ        $64, SI
	ADDQ        $64, DI
	SUBQ        $16, CX
	JNZ         loop
	VZEROUPPER
	RET
