//go:build !purego

#include "textflag.h"

// exp32 and exp2neg (vec_exp.go) on 8 elements, operation by operation.

#define CONST(i, reg) VBROADCASTSS ·expTable+(4*i)(SB), reg
#define CONST2(i, reg) VBROADCASTSS ·exp2Table+(4*i)(SB), reg
#define HORNER(i) \
	CONST(i, Y4) \
	VFMADD213PS Y4, Y2, Y3

// EXP: Y3 = exp(Y0), with Y1 to Y5 used.
#define EXP \
	CONST(2, Y4) \
	VMULPS Y4, Y0, Y1 \
	VROUNDPS $8, Y1, Y1 \
	CONST(3, Y4) \
	VMOVAPS Y0, Y2 \
	VFMADD231PS Y4, Y1, Y2 \
	CONST(4, Y4) \
	VFMADD231PS Y4, Y1, Y2 \
	CONST(5, Y3) \
	HORNER(6) \
	HORNER(7) \
	HORNER(8) \
	HORNER(9) \
	HORNER(10) \
	HORNER(11) \
	VCVTPS2DQ Y1, Y1 \
	VPSLLD $23, Y1, Y1 \
	VPADDD Y1, Y3, Y3 \
	CONST(0, Y4) \
	VCMPPS $1, Y4, Y0, Y5 \
	VANDNPS Y3, Y5, Y3 \
	CONST(1, Y4) \
	VCMPPS $14, Y4, Y0, Y5 \
	CONST(12, Y4) \
	VBLENDVPS Y5, Y4, Y3, Y3

// func expAVX2(dst, x *float32, n int)
TEXT ·expAVX2(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ x+8(FP), SI
	MOVQ n+16(FP), CX
loop:
	VMOVUPS (SI), Y0
	EXP
	VMOVUPS Y3, (DI)
	ADDQ    $32, SI
	ADDQ    $32, DI
	SUBQ    $8, CX
	JNZ     loop
	VZEROUPPER
	RET

// func expSumAVX2(l *lanes, x *float32, n int, m float32)
TEXT ·expSumAVX2(SB), NOSPLIT, $0-28
	MOVQ         l+0(FP), DI
	MOVQ         x+8(FP), SI
	MOVQ         n+16(FP), CX
	VBROADCASTSS m+24(FP), Y8
	VXORPS       Y6, Y6, Y6
	VXORPS       Y7, Y7, Y7
loop:
	VMOVUPS (SI), Y0
	VSUBPS  Y8, Y0, Y0
	EXP
	VMOVUPS Y3, (SI)
	VADDPS  Y3, Y6, Y6
	VMOVUPS 32(SI), Y0
	VSUBPS  Y8, Y0, Y0
	EXP
	VMOVUPS Y3, 32(SI)
	VADDPS  Y3, Y7, Y7
	ADDQ    $64, SI
	SUBQ    $16, CX
	JNZ     loop
	VMOVUPS Y6, (DI)
	VMOVUPS Y7, 32(DI)
	VZEROUPPER
	RET

// func swiGLUAVX2(dst, gate, up *float32, n int)
TEXT ·swiGLUAVX2(SB), NOSPLIT, $0-32
	MOVQ dst+0(FP), DI
	MOVQ gate+8(FP), SI
	MOVQ up+16(FP), DX
	MOVQ n+24(FP), CX
	VPCMPEQD Y6, Y6, Y6
	VPSLLD   $31, Y6, Y6
	CONST(11, Y7)
loop:
	VXORPS  (SI), Y6, Y0
	EXP
	VADDPS  Y7, Y3, Y3
	VMOVUPS (SI), Y0
	VDIVPS  Y3, Y0, Y0
	VMULPS  (DX), Y0, Y0
	VMOVUPS Y0, (DI)
	ADDQ    $32, SI
	ADDQ    $32, DX
	ADDQ    $32, DI
	SUBQ    $8, CX
	JNZ     loop
	VZEROUPPER
	RET

#define HORNER2(i) \
	CONST2(i, Y4) \
	VFMADD213PS Y4, Y0, Y3

// EXP2: Y3 = exp2neg(Y0), with Y0, Y1, Y4 and Y5 used.
#define EXP2 \
	CONST2(0, Y4) \
	VCMPPS $1, Y4, Y0, Y5 \
	VROUNDPS $8, Y0, Y1 \
	VSUBPS Y1, Y0, Y0 \
	CONST2(1, Y3) \
	HORNER2(2) \
	HORNER2(3) \
	HORNER2(4) \
	HORNER2(5) \
	HORNER2(6) \
	HORNER2(7) \
	VCVTPS2DQ Y1, Y1 \
	VPSLLD $23, Y1, Y1 \
	VPADDD Y1, Y3, Y3 \
	VANDNPS Y3, Y5, Y3

// func exp2SumAVX2(s *float32, n int) (m, l float32)
TEXT ·exp2SumAVX2(SB), NOSPLIT, $0-24
	MOVQ         s+0(FP), SI
	MOVQ         n+8(FP), CX
	MOVQ         SI, R8
	MOVQ         CX, R9
	MOVL         $0xff800000, AX
	MOVL         AX, X0
	VPBROADCASTD X0, Y0
	VMOVAPS      Y0, Y1
max:
	VMOVUPS (R8), Y2
	VMOVUPS 32(R8), Y3
	VMAXPS  Y0, Y2, Y0
	VMAXPS  Y1, Y3, Y1
	ADDQ    $64, R8
	SUBQ    $16, R9
	JNZ     max
	VMAXPS       Y0, Y1, Y0
	VEXTRACTF128 $1, Y0, X1
	VMAXPS       X0, X1, X0
	VPERMILPS    $0x4e, X0, X1
	VMAXPS       X0, X1, X0
	VPERMILPS    $0xb1, X0, X1
	VMAXSS       X0, X1, X0
	VMOVSS       X0, m+16(FP)
	VBROADCASTSS X0, Y8
	VXORPS       Y6, Y6, Y6
	VXORPS       Y7, Y7, Y7
loop:
	VMOVUPS (SI), Y0
	VSUBPS  Y8, Y0, Y0
	EXP2
	VMOVUPS Y3, (SI)
	VADDPS  Y3, Y6, Y6
	VMOVUPS 32(SI), Y0
	VSUBPS  Y8, Y0, Y0
	EXP2
	VMOVUPS Y3, 32(SI)
	VADDPS  Y3, Y7, Y7
	ADDQ    $64, SI
	SUBQ    $16, CX
	JNZ     loop
	VADDPS       Y7, Y6, Y0 // lanes l and l+8, then as reduceSum goes on
	VEXTRACTF128 $1, Y0, X1
	VADDPS       X1, X0, X0
	VPERMILPS    $0x4e, X0, X1
	VADDPS       X1, X0, X0
	VPERMILPS    $0xb1, X0, X1
	VADDSS       X1, X0, X0
	VMOVSS       X0, l+20(FP)
	VZEROUPPER
	RET
