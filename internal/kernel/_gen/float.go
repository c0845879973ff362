package main

import "fmt"

// The fields of dotArgs (float_amd64.go).
const (
	dotW, dotWStride, dotX, dotXStride, dotN = 0, 8, 16, 24, 32
	dotDst, dotLD, dotSums                   = 40, 48, 56
	dotTokens, dotCarryIn, dotCarryOut       = 64, 72, 80
)

// A weightType says how 16 weights of a row are loaded as float32.
type weightType struct {
	name  string
	bytes int  // of 16 weights
	panel bool // rows interleaved: 16 weights of each of 4 rows, then the next 16
}

var weightTypes = []weightType{
	{"F32", 64, false}, {"F16", 32, false}, {"BF16", 32, false}, {"Panel", 64, true},
}

// The index registers of up to 6 rows with a common stride: base, base+stride,
// base+2*stride in one register, base+3*stride and so on in another.
func rowAt(base, base3, stride string, i int) string {
	b := base
	if i >= 3 {
		b, i = base3, i-3
	}
	if i == 0 {
		return "(" + b + ")"
	}
	return fmt.Sprintf("(%s)(%s*%d)", b, stride, i)
}

// dotSetup loads the arguments: SI, BX, DX weights, their stride and three times it;
// R8, R9, R10 activations, stride, R8+3*stride; CX the count; DI, R11 results and
// their stride; R12 the sums carried.
func dotSetup(a *asm, t weightType) {
	a.f("MOVQ %d(AX), SI", dotW)
	if !t.panel {
		a.f("MOVQ %d(AX), BX", dotWStride)
		a.f("LEAQ (BX)(BX*2), DX")
	}
	a.f("MOVQ %d(AX), R8", dotX)
	a.f("MOVQ %d(AX), R9", dotXStride)
	a.f("LEAQ (R9)(R9*2), R10")
	a.f("ADDQ R8, R10")
	a.f("MOVQ %d(AX), CX", dotN)
	a.f("MOVQ %d(AX), DI", dotDst)
	a.f("MOVQ %d(AX), R11", dotLD)
	a.f("MOVQ %d(AX), R12", dotSums)
}

// weightAt is the address of 16 weights of row r of 4, step times 16 further.
func (t weightType) weightAt(r, step int) string {
	if t.panel {
		return fmt.Sprintf("%d(SI)", step*256+r*64)
	}
	return fmt.Sprintf("%d%s", step*t.bytes, []string{"(SI)", "(SI)(BX*1)", "(SI)(BX*2)", "(SI)(DX*1)"}[r])
}

// advance moves on by steps times 16 columns.
func (t weightType) advance(a *asm, steps int) {
	n := t.bytes
	if t.panel {
		n *= 4
	}
	a.f("ADDQ $%d, SI", steps*n)
	a.f("ADDQ $%d, R8", steps*64)
	a.f("ADDQ $%d, R10", steps*64)
}

// askNext sets R13 to the next four rows. They follow in memory, but the hardware sees
// four short streams. Asking for them in the order of memory, evenly spread over the work
// on the rows at hand, nearly doubles the speed at which memory is read.
func askNext(a *asm) { a.f("LEAQ (SI)(BX*4), R13") }

// floatAVX512 writes the products of 4 rows with 1 to 6 tokens: register 4*t+r holds
// the 16 lanes of row r and token t.
func floatAVX512(a *asm) {
	fmt.Fprintf(a, "\n// The first lane of each quarter.\nDATA quarters<>+0(SB)/8, $0x0000000400000000\nDATA quarters<>+8(SB)/8, $0x0000000c00000008\nGLOBL quarters<>(SB), RODATA|NOPTR, $16\n")
	for _, t := range weightTypes {
		a.text("dot"+t.name+"AVX512", "dotArgs")
		dotSetup(a, t)
		a.f("MOVQ %d(AX), R13", dotTokens)
		for m := 1; m < 6; m++ {
			a.f("CMPQ R13, $%d", m)
			a.f("JEQ tokens%d", m)
		}
		for m := 6; m >= 1; m-- {
			a.at(fmt.Sprintf("tokens%d", m))
			dotAVX512(a, t, m)
		}
	}
}

func dotAVX512(a *asm, t weightType, m int) {
	load := func(r, step int) {
		switch at := t.weightAt(r, step); t.name {
		case "F16":
			a.f("VCVTPH2PS %s, Z%d", at, 24+r)
		case "BF16":
			a.f("VPMOVZXWD %s, Z%d", at, 24+r)
			a.f("VPSLLD $16, Z%d, Z%d", 24+r, 24+r)
		default:
			a.f("VMOVUPS %s, Z%d", at, 24+r)
		}
	}
	start, loop := a.label("start"), a.label("loop")
	a.zero("Z", 0, 4*m)
	carry := func(field int, skip string, op func(reg int)) {
		a.f("CMPQ %d(AX), $0", field)
		a.f("JEQ %s", skip)
		for i := range 4 * m {
			op(i)
		}
	}
	if t.panel {
		carry(dotCarryIn, start, func(i int) { a.f("VMOVUPS %d(R12), Z%d", i*64, i) })
		a.at(start)
	} else {
		askNext(a)
	}
	a.at(loop)
	for step := range 2 {
		for r := range 4 {
			if !t.panel && (step == 0 || t.bytes == 64) {
				a.f("PREFETCHT1 %d(R13)", 64*r+256*step)
			}
			load(r, step)
		}
		for tok := range m {
			x := 28 + tok%2
			a.f("VMOVUPS %d%s, Z%d", step*64, rowAt("R8", "R10", "R9", tok), x)
			for r := range 4 {
				a.f("VFMADD231PS Z%d, Z%d, Z%d", x, 24+r, 4*tok+r)
			}
		}
	}
	t.advance(a, 2)
	if !t.panel {
		a.f("ADDQ $%d, R13", 2*4*t.bytes)
	}
	a.f("SUBQ $2, CX")
	a.f("JNZ %s", loop)
	if t.panel {
		reduce := a.label("reduce")
		carry(dotCarryOut, reduce, func(i int) { a.f("VMOVUPS Z%d, %d(R12)", i, i*64) })
		a.ret()
		a.at(reduce)
	}
	a.f("VMOVUPS quarters<>(SB), X31")
	for tok := range m {
		z := 4 * tok
		// Lane l and l+8 of two rows each, then l and l+4 of all four.
		for i := range 2 {
			a.f("VSHUFF64X2 $0x44, Z%d, Z%d, Z%d", z+2*i+1, z+2*i, 24)
			a.f("VSHUFF64X2 $0xee, Z%d, Z%d, Z%d", z+2*i+1, z+2*i, 25)
			a.f("VADDPS Z24, Z25, Z%d", 26+i)
		}
		a.f("VSHUFF64X2 $0x88, Z27, Z26, Z24")
		a.f("VSHUFF64X2 $0xdd, Z27, Z26, Z25")
		a.f("VADDPS Z24, Z25, Z24")
		a.f("VPERMILPS $0x4e, Z24, Z25")
		a.f("VADDPS Z24, Z25, Z24")
		a.f("VPERMILPS $0xb1, Z24, Z25")
		a.f("VADDPS Z24, Z25, Z24")
		a.f("VPERMPS Z24, Z31, Z24")
		a.f("VMOVUPS X24, (DI)")
		if tok < m-1 {
			a.f("ADDQ R11, DI")
		}
	}
	a.ret()
}

// floatAVX2 writes the products of 4 rows with 1 to 3 tokens. One token: all four rows
// at once, 8 registers of 8 lanes each. More: two rows at a time.
func floatAVX2(a *asm) {
	for _, t := range weightTypes {
		a.text("dot"+t.name+"AVX2", "dotArgs")
		dotSetup(a, t)
		a.f("MOVQ %d(AX), R13", dotTokens)
		for m := 1; m < 3; m++ {
			a.f("CMPQ R13, $%d", m)
			a.f("JEQ tokens%d", m)
		}
		for m := 3; m >= 1; m-- {
			a.at(fmt.Sprintf("tokens%d", m))
			if m == 1 {
				dotAVX2(a, t, 1, 0, 4)
			} else {
				dotAVX2(a, t, m, 0, 2)
				dotSetup(a, t)
				dotAVX2(a, t, m, 2, 2)
			}
			a.ret()
		}
	}
}

// dotAVX2 multiplies rows from first on with m tokens. Register 2*(rows*tok+r)+half.
func dotAVX2(a *asm, t weightType, m, first, rows int) {
	const wReg, xReg = 12, 14 // one token: the weights of one row at a time
	acc := func(tok, r, half int) int { return 2*(rows*tok+r) + half }
	start, loop := a.label("start"), a.label("loop")
	a.zero("Y", 0, 2*rows*m)
	carry := func(field int, skip string, op func(at string, reg int)) {
		a.f("CMPQ %d(AX), $0", field)
		a.f("JEQ %s", skip)
		for tok := range m {
			for r := range rows {
				for half := range 2 {
					op(fmt.Sprintf("%d(R12)", (4*tok+first+r)*64+half*32), acc(tok, r, half))
				}
			}
		}
	}
	if t.panel {
		carry(dotCarryIn, start, func(at string, reg int) { a.f("VMOVUPS %s, Y%d", at, reg) })
		a.at(start)
	}
	load := func(r, half, reg int) {
		at := t.weightAt(first+r, 0)
		if half == 1 { // every address begins with its displacement
			var disp int
			var rest string
			fmt.Sscanf(at, "%d%s", &disp, &rest)
			at = fmt.Sprintf("%d%s", disp+t.bytes/2, rest)
		}
		switch t.name {
		case "F16":
			a.f("VCVTPH2PS %s, Y%d", at, reg)
		case "BF16":
			a.f("VPMOVZXWD %s, Y%d", at, reg)
			a.f("VPSLLD $16, Y%d, Y%d", reg, reg)
		default:
			a.f("VMOVUPS %s, Y%d", at, reg)
		}
	}
	ahead := !t.panel && first == 0
	if ahead {
		askNext(a)
	}
	a.at(loop)
	if ahead {
		for line := range t.bytes * 4 / 64 {
			a.f("PREFETCHT1 %d(R13)", 64*line)
		}
		a.f("ADDQ $%d, R13", 4*t.bytes)
	}
	for half := range 2 {
		if m == 1 {
			a.f("VMOVUPS %d(R8), Y%d", half*32, xReg)
			for r := range rows {
				load(r, half, wReg+r%2)
				a.f("VFMADD231PS Y%d, Y%d, Y%d", xReg, wReg+r%2, acc(0, r, half))
			}
			continue
		}
		for r := range rows {
			load(r, half, wReg+r)
		}
		for tok := range m {
			a.f("VMOVUPS %d%s, Y%d", half*32, rowAt("R8", "R10", "R9", tok), xReg+tok%2)
			for r := range rows {
				a.f("VFMADD231PS Y%d, Y%d, Y%d", xReg+tok%2, wReg+r, acc(tok, r, half))
			}
		}
	}
	t.advance(a, 1)
	a.f("DECQ CX")
	a.f("JNZ %s", loop)
	end := a.label("end")
	if t.panel {
		reduce := a.label("reduce")
		carry(dotCarryOut, reduce, func(at string, reg int) { a.f("VMOVUPS Y%d, %s", reg, at) })
		a.f("JMP %s", end)
		a.at(reduce)
	}
	for tok := range m {
		for r := range rows {
			z := acc(tok, r, 0)
			a.f("VADDPS Y%d, Y%d, Y%d", z, z+1, z)
			a.f("VEXTRACTF128 $1, Y%d, X12", z)
			a.f("VADDPS X12, X%d, X12", z)
			a.f("VPERMILPS $0x4e, X12, X13")
			a.f("VADDPS X12, X13, X12")
			a.f("VPERMILPS $0xb1, X12, X13")
			a.f("VADDSS X12, X13, X12")
			a.f("VMOVSS X12, %d(DI)", 4*(first+r))
		}
		if tok < m-1 {
			a.f("ADDQ R11, DI")
		}
	}
	a.at(end)
}
