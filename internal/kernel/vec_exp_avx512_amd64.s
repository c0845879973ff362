//go:build !purego

#include "textflag.h"

// exp32 and exp2neg (vec_exp.go) on 16 elements, operation by operation. The constants
// stay in registers.

#define CONST(i, reg) VBROADCASTSS ·expTable+(4*i)(SB), reg
#define CONST2(i, reg) VBROADCASTSS ·exp2Table+(4*i)(SB), reg

#define EXPCONSTS \
	CONST(0, Z16) \
	CONST(1, Z17) \
	CONST(2, Z18) \
	CONST(3, Z19) \
	CONST(4, Z20) \
	CONST(5, Z21) \
	CONST(6, Z22) \
	CONST(7, Z23) \
	CONST(8, Z24) \
	CONST(9, Z25) \
	CONST(10, Z26) \
	CONST(12, Z28)

// EXP: Z3 = exp(Z0), with Z1, Z2, K1 and K2 used. Comparison 5 is true for a NaN.
#define EXP \
	VMULPS Z18, Z0, Z1 \
	VRNDSCALEPS $8, Z1, Z1 \
	VMOVAPS Z0, Z2 \
	VFMADD231PS Z19, Z1, Z2 \
	VFMADD231PS Z20, Z1, Z2 \
	VMOVAPS Z21, Z3 \
	VFMADD213PS Z22, Z2, Z3 \
	VFMADD213PS Z23, Z2, Z3 \
	VFMADD213PS Z24, Z2, Z3 \
	VFMADD213PS Z25, Z2, Z3 \
	VFMADD213PS Z26, Z2, Z3 \
	VFMADD213PS Z26, Z2, Z3 \
	VCVTPS2DQ Z1, Z1 \
	VPSLLD $23, Z1, Z1 \
	VCMPPS $5, Z16, Z0, K1 \
	VPADDD.Z Z1, Z3, K1, Z3 \
	VCMPPS $14, Z17, Z0, K2 \
	VMOVAPS Z28, K2, Z3

// func expAVX512(dst, x *float32, n int)
TEXT ·expAVX512(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ x+8(FP), SI
	MOVQ n+16(FP), CX
	EXPCONSTS
loop:
	VMOVUPS (SI), Z0
	EXP
	VMOVUPS Z3, (DI)
	ADDQ    $64, SI
	ADDQ    $64, DI
	SUBQ    $16, CX
	JNZ     loop
	VZEROUPPER
	RET

// func expSumAVX512(l *lanes, x *float32, n int, m float32)
TEXT ·expSumAVX512(SB), NOSPLIT, $0-28
	MOVQ         l+0(FP), DI
	MOVQ         x+8(FP), SI
	MOVQ         n+16(FP), CX
	VBROADCASTSS m+24(FP), Z8
	VPXORD       Z6, Z6, Z6
	EXPCONSTS
loop:
	VMOVUPS (SI), Z0
	VSUBPS  Z8, Z0, Z0
	EXP
	VMOVUPS Z3, (SI)
	VADDPS  Z3, Z6, Z6
	ADDQ    $64, SI
	SUBQ    $16, CX
	JNZ     loop
	VMOVUPS Z6, (DI)
	VZEROUPPER
	RET

// func swiGLUAVX512(dst, gate, up *float32, n int)
TEXT ·swiGLUAVX512(SB), NOSPLIT, $0-32
	MOVQ         dst+0(FP), DI
	MOVQ         gate+8(FP), SI
	MOVQ         up+16(FP), DX
	MOVQ         n+24(FP), CX
	MOVL         $0x80000000, AX
	VPBROADCASTD AX, Z6
	EXPCONSTS
loop:
	VMOVUPS (SI), Z4
	VPXORD  Z4, Z6, Z0
	EXP
	VADDPS  Z26, Z3, Z3
	VDIVPS  Z3, Z4, Z4
	VMULPS  (DX), Z4, Z4
	VMOVUPS Z4, (DI)
	ADDQ    $64, SI
	ADDQ    $64, DX
	ADDQ    $64, DI
	SUBQ    $16, CX
	JNZ     loop
	VZEROUPPER
	RET

// func exp2SumAVX512(s *float32, n int) (m, l float32)
TEXT ·exp2SumAVX512(SB), NOSPLIT, $0-24
	MOVQ         s+0(FP), SI
	MOVQ         n+8(FP), CX
	MOVQ         SI, R8
	MOVQ         CX, R9
	MOVL         $0xff800000, AX
	VPBROADCASTD AX, Z0
max:
	VMOVUPS (R8), Z2
	VMAXPS  Z0, Z2, Z0
	ADDQ    $64, R8
	SUBQ    $16, R9
	JNZ     max
	VEXTRACTF64X4 $1, Z0, Y1
	VMAXPS        Y0, Y1, Y0
	VEXTRACTF128  $1, Y0, X1
	VMAXPS        X0, X1, X0
	VPERMILPS     $0x4e, X0, X1
	VMAXPS        X0, X1, X0
	VPERMILPS     $0xb1, X0, X1
	VMAXSS        X0, X1, X0
	VMOVSS        X0, m+16(FP)
	VBROADCASTSS  X0, Z8
	VPXORD        Z6, Z6, Z6
	CONST2(0, Z16)
	CONST2(1, Z17)
	CONST2(2, Z18)
	CONST2(3, Z19)
	CONST2(4, Z20)
	CONST2(5, Z21)
	CONST2(6, Z22)
	CONST2(7, Z23)
loop:
	VMOVUPS     (SI), Z0
	VSUBPS      Z8, Z0, Z0
	VRNDSCALEPS $8, Z0, Z1
	VSUBPS      Z1, Z0, Z2
	VMOVAPS     Z17, Z3
	VFMADD213PS Z18, Z2, Z3
	VFMADD213PS Z19, Z2, Z3
	VFMADD213PS Z20, Z2, Z3
	VFMADD213PS Z21, Z2, Z3
	VFMADD213PS Z22, Z2, Z3
	VFMADD213PS Z23, Z2, Z3
	VCVTPS2DQ   Z1, Z1
	VPSLLD      $23, Z1, Z1
	VCMPPS      $5, Z16, Z0, K1
	VPADDD.Z    Z1, Z3, K1, Z3
	VMOVUPS     Z3, (SI)
	VADDPS      Z3, Z6, Z6
	ADDQ        $64, SI
	SUBQ        $16, CX
	JNZ         loop
	VEXTRACTF64X4 $1, Z6, Y0 // lanes l and l+8, then as reduceSum goes on
	VADDPS        Y0, Y6, Y0
	VEXTRACTF128  $1, Y0, X1
	VADDPS        X1, X0, X0
	VPERMILPS     $0x4e, X0, X1
	VADDPS        X1, X0, X0
	VPERMILPS     $0xb1, X0, X1
	VADDSS        X1, X0, X0
	VMOVSS        X0, l+20(FP)
	VZEROUPPER
	RET
