package main

import "fmt"

// Distances in memory that the attention kernels know.
const (
	scoreStride = 4 * 256 // bytes between the score rows of two queries
	panelStride = 4 * 32  // bytes between two d of a transposed K panel
)

// The fields of rowsArgs: K or V rows in place, some query rows.
const (
	rowsS, rowsQ, rowsRows, rowsPtrs, rowsN = 0, 8, 16, 24, 32
	rowsOff, rowsDim, rowsNext, rowsStep    = 40, 48, 56, 64
)

// ask prefetches lines from the address in reg on and moves it: the rows that come next,
// spread over the work on the rows at hand, since the hardware does not foresee an order
// that jumps from row to row. To L2: L1 would lose what is being worked on.
func ask(a *asm, reg, step string, lines int) {
	for line := range lines {
		a.f("PREFETCHT1 %d(%s)", 64*line, reg)
	}
	if lines > 0 {
		a.f("ADDQ %s, %s", step, reg)
	}
}

// The fields of panelArgs: an unpacked tile, blockRows query rows.
const panelS, panelQ, panelKV, panelN, panelDim, panelFA, panelFB = 0, 8, 16, 24, 32, 40, 48

func attnAVX512(a *asm) {
	a.text("scoresRowsAVX512", "rowsArgs")
	dispatch(a, []int{1, 2}, 4, scoresRowsAVX512)
	a.text("weightedRowsAVX512", "rowsArgs")
	dispatch(a, []int{1, 2}, 4, func(a *asm, rows int) { weightedRows(a, rows, "Z") })
	a.text("packKAVX512", "rowsArgs")
	packKAVX512(a)
	a.text("scoresPanelAVX512", "panelArgs")
	scoresPanelAVX512(a)
	a.text("weightedPanelAVX512", "panelArgs")
	weightedPanel(a, "Z", 6, 24)
}

func attnAVX2(a *asm) {
	a.text("scoresRowsAVX2", "rowsArgs")
	dispatch(a, []int{1}, 2, scoresRowsAVX2)
	a.text("weightedRowsAVX2", "rowsArgs")
	dispatch(a, []int{1}, 2, func(a *asm, rows int) { weightedRows(a, rows, "Y") })
	a.text("packKAVX2", "rowsArgs")
	packKAVX2(a)
	a.text("scoresPanelAVX2", "panelArgs")
	scoresPanelAVX2(a)
	a.text("weightedPanelAVX2", "panelArgs")
	weightedPanel(a, "Y", 3, 12)
}

// dispatch branches on the number of query rows.
func dispatch(a *asm, some []int, last int, body func(a *asm, rows int)) {
	a.f("MOVQ %d(AX), R13", rowsRows)
	for _, n := range some {
		a.f("CMPQ R13, $%d", n)
		a.f("JEQ rows%d", n)
	}
	body(a, last)
	a.ret()
	for _, n := range some {
		a.at(fmt.Sprintf("rows%d", n))
		body(a, n)
		a.ret()
	}
}

// scoresRowsAVX512 computes the scores of 16 positions for 1, 2 or 4 query rows.
//
// Four positions g, g+4, g+8, g+12 share a register, four lanes each: four f16 of each
// row come together as quarters of a register, are widened, and multiplied with the same
// four elements of q in every quarter. Two such groups at a time hide the latency of
// the sums.
func scoresRowsAVX512(a *asm, rows int) {
	ptr := []string{"R8", "R9", "R10", "R11", "R12", "R13", "SI", "BX"}
	acc := func(g, r int) int { return g*rows + r } // up to 16
	queryAt := func(r, disp int) string {
		return fmt.Sprintf("%d%s", disp, []string{"(CX)", "(CX)(R14*1)", "(CX)(R14*2)", "(DI)"}[r])
	}
	a.f("MOVQ %d(AX), DX", rowsStep)
	a.f("MOVQ DX, step-8(SP)")
	for pass := range 2 {
		a.zero("Z", acc(2*pass, 0), acc(2*pass+2, 0))
		a.f("MOVQ %d(AX), DX", rowsPtrs)
		for i := range 8 {
			group, quarter := 2*pass+i/4, i%4
			a.f("MOVQ %d(DX), %s", 8*(4*quarter+group), ptr[i])
		}
		a.f("MOVQ %d(AX), DX", rowsOff)
		a.f("MOVQ %d(AX), CX", rowsQ)
		a.f("MOVQ %d(AX), R15", rowsDim)
		if rows > 1 {
			a.f("LEAQ (R15*4), R14")
		}
		if rows == 4 {
			a.f("LEAQ (R14)(R14*2), DI")
			a.f("ADDQ CX, DI")
		}
		a.f("MOVQ %d(AX), AX", rowsNext)
		loop := a.label("loop")
		a.at(loop)
		ask(a, "AX", "step-8(SP)", 4)
		for g := range 2 {
			// 16 elements of four rows: quads of each row side by side.
			p := ptr[4*g:]
			for i := range 4 {
				a.f("VMOVDQU64 (%s)(DX*1), Y%d", p[i], 16+i)
			}
			a.f("VPUNPCKLQDQ Y17, Y16, Y20")
			a.f("VPUNPCKHQDQ Y17, Y16, Y21")
			a.f("VPUNPCKLQDQ Y19, Y18, Y22")
			a.f("VPUNPCKHQDQ Y19, Y18, Y23")
			// Quads 0 to 3 of group g in Z(24+4g)...
			for quad := range 4 {
				lo, hi := 20+quad%2, 22+quad%2
				a.f("VSHUFI64X2 $%d, Y%d, Y%d, Y%d", quad/2*3, hi, lo, 24+4*g+quad)
				a.f("VCVTPH2PS Y%d, Z%d", 24+4*g+quad, 24+4*g+quad)
			}
		}
		for quad := range 4 {
			for r := range rows {
				a.f("VBROADCASTF32X4 %s, Z%d", queryAt(r, quad*16), 16+r)
				for g := range 2 {
					a.f("VFMADD231PS Z%d, Z%d, Z%d", 16+r, 24+4*g+quad, acc(2*pass+g, r))
				}
			}
		}
		a.f("ADDQ $32, DX")
		a.f("ADDQ $64, CX")
		if rows == 4 {
			a.f("ADDQ $64, DI")
		}
		a.f("SUBQ $16, R15")
		a.f("JNZ %s", loop)
		a.f("MOVQ AX, DX")
		a.f("MOVQ a+0(FP), AX")
		a.f("MOVQ DX, %d(AX)", rowsNext)
	}
	a.f("MOVQ %d(AX), DI", rowsS)
	for r := range rows {
		// In each quarter: lanes 0+2 and 1+3 of two groups, then of all four.
		a.f("VSHUFPS $0x44, Z%d, Z%d, Z16", acc(1, r), acc(0, r))
		a.f("VSHUFPS $0xee, Z%d, Z%d, Z17", acc(1, r), acc(0, r))
		a.f("VADDPS Z16, Z17, Z18")
		a.f("VSHUFPS $0x44, Z%d, Z%d, Z16", acc(3, r), acc(2, r))
		a.f("VSHUFPS $0xee, Z%d, Z%d, Z17", acc(3, r), acc(2, r))
		a.f("VADDPS Z16, Z17, Z19")
		a.f("VSHUFPS $0x88, Z19, Z18, Z16")
		a.f("VSHUFPS $0xdd, Z19, Z18, Z17")
		a.f("VADDPS Z16, Z17, Z16")
		a.f("VMOVUPS Z16, %d(DI)", r*scoreStride)
	}
}

// scoresRowsAVX2 is the same for 1 or 2 query rows with two positions p and p+4 in a
// register, four such pairs at a time.
func scoresRowsAVX2(a *asm, rows int) {
	ptr := []string{"R8", "R9", "R10", "R11", "R12", "R13", "SI", "BX"}
	for pass := range 2 {
		a.zero("Y", 0, 4*rows)
		a.f("MOVQ %d(AX), DX", rowsPtrs)
		for i, p := range ptr {
			a.f("MOVQ %d(DX), %s", 8*(8*pass+i), p)
		}
		a.f("MOVQ %d(AX), DX", rowsOff)
		a.f("MOVQ %d(AX), CX", rowsQ)
		a.f("MOVQ %d(AX), R15", rowsDim)
		if rows > 1 {
			a.f("LEAQ (CX)(R15*4), R14")
		}
		a.f("MOVQ %d(AX), DI", rowsStep)
		a.f("SHRQ $1, DI")
		a.f("MOVQ %d(AX), AX", rowsNext)
		loop := a.label("loop")
		a.at(loop)
		ask(a, "AX", "DI", 2)
		for quad := range 2 {
			a.f("VBROADCASTF128 %d(CX), Y8", quad*16)
			if rows > 1 {
				a.f("VBROADCASTF128 %d(R14), Y9", quad*16)
			}
			for pair := range 4 {
				x := 10 + pair%3
				a.f("VMOVQ %d(%s)(DX*1), X%d", quad*8, ptr[pair], x)
				a.f("VPINSRQ $1, %d(%s)(DX*1), X%d, X%d", quad*8, ptr[pair+4], x, x)
				a.f("VCVTPH2PS X%d, Y%d", x, x)
				for r := range rows {
					a.f("VFMADD231PS Y%d, Y%d, Y%d", 8+r, x, pair*rows+r)
				}
			}
		}
		a.f("ADDQ $16, DX")
		a.f("ADDQ $32, CX")
		if rows > 1 {
			a.f("ADDQ $32, R14")
		}
		a.f("SUBQ $8, R15")
		a.f("JNZ %s", loop)
		a.f("MOVQ AX, DX")
		a.f("MOVQ a+0(FP), AX")
		a.f("MOVQ DX, %d(AX)", rowsNext)
		a.f("MOVQ %d(AX), DI", rowsS)
		for r := range rows {
			for i := range 2 {
				a.f("VSHUFPS $0x44, Y%d, Y%d, Y13", (2*i+1)*rows+r, 2*i*rows+r)
				a.f("VSHUFPS $0xee, Y%d, Y%d, Y14", (2*i+1)*rows+r, 2*i*rows+r)
				a.f("VADDPS Y13, Y14, Y%d", 10+i)
			}
			a.f("VSHUFPS $0x88, Y11, Y10, Y13")
			a.f("VSHUFPS $0xdd, Y11, Y10, Y14")
			a.f("VADDPS Y13, Y14, Y13")
			a.f("VMOVUPS Y13, %d(DI)", r*scoreStride+pass*32)
		}
	}
}

// width is the number of float32 in a register of the kind.
func width(kind string) int { return map[string]int{"Y": 8, "Z": 16}[kind] }

// piecesOf calls body for pieces of n registers of d, n halving from the largest, until
// the head is done; dim is the field that holds its length. BX is the number of d left,
// DX the bytes of float32 done.
func piecesOf(a *asm, kind string, largest, dim int, body func(n int)) {
	a.f("MOVQ %d(AX), BX", dim)
	a.f("XORQ DX, DX")
	for n := largest; n*width(kind) >= 16; n /= 2 {
		next, again := a.label("next"), a.label("piece")
		a.at(again)
		a.f("CMPQ BX, $%d", n*width(kind))
		a.f("JLT %s", next)
		body(n)
		a.f("ADDQ $%d, DX", 4*n*width(kind))
		a.f("SUBQ $%d, BX", n*width(kind))
		a.f("JMP %s", again)
		a.at(next)
	}
}

// weightedRows adds the weighted V rows to the outputs, as many elements at a time as
// leave every sum in a register.
func weightedRows(a *asm, rows int, kind string) {
	largest := 8
	if rows == 4 || kind == "Y" {
		largest = 4
	}
	pReg := 24
	vReg := 28
	if kind == "Y" {
		pReg, vReg = 12, 14
	}
	outAt := func(r int) string { return []string{"(R8)", "(R8)(R14*1)", "(R8)(R14*2)", "(R9)"}[r] }
	a.f("MOVQ %d(AX), R14", rowsDim)
	a.f("SHLQ $2, R14")
	piecesOf(a, kind, largest, rowsDim, func(n int) {
		acc := func(r, i int) int { return r*n + i }
		size := 4 * width(kind)
		a.f("MOVQ %d(AX), R8", rowsQ)
		a.f("ADDQ DX, R8")
		if rows == 4 {
			a.f("LEAQ (R14)(R14*2), R9")
			a.f("ADDQ R8, R9")
		}
		for r := range rows {
			for i := range n {
				a.f("VMOVUPS %d%s, %s%d", i*size, outAt(r), kind, acc(r, i))
			}
		}
		a.f("MOVQ %d(AX), DI", rowsS)
		a.f("MOVQ %d(AX), SI", rowsPtrs)
		a.f("MOVQ %d(AX), CX", rowsN)
		a.f("MOVQ DX, R10")
		a.f("SHRQ $1, R10")
		a.f("ADDQ %d(AX), R10", rowsOff)
		a.f("MOVQ %d(AX), R12", rowsNext)
		lines := n * size / 2 / 64
		if lines > 0 {
			a.f("MOVQ %d(AX), R13", rowsStep)
			if lines < 4 {
				a.f("SHRQ $%d, R13", map[int]int{2: 1, 1: 2}[lines])
			}
		}
		loop := a.label("loop")
		a.at(loop)
		a.f("MOVQ (SI), R11")
		ask(a, "R12", "R13", lines)
		for r := range rows {
			a.f("VBROADCASTSS %d(DI), %s%d", r*scoreStride, kind, pReg+r)
		}
		for i := range n {
			v := vReg + i%2
			a.f("VCVTPH2PS %d(R11)(R10*1), %s%d", i*size/2, kind, v)
			for r := range rows {
				a.f("VFMADD231PS %s%d, %s%d, %s%d", kind, pReg+r, kind, v, kind, acc(r, i))
			}
		}
		a.f("ADDQ $8, SI")
		a.f("ADDQ $4, DI")
		a.f("DECQ CX")
		a.f("JNZ %s", loop)
		a.f("MOVQ R12, %d(AX)", rowsNext)
		for r := range rows {
			for i := range n {
				a.f("VMOVUPS %s%d, %d%s", kind, acc(r, i), i*size, outAt(r))
			}
		}
	})
}

// packKAVX512 widens and transposes 16 K rows, 16 elements at a time.
func packKAVX512(a *asm) {
	a.f("MOVQ %d(AX), DI", rowsS)
	a.f("MOVQ %d(AX), SI", rowsPtrs)
	a.f("MOVQ %d(AX), DX", rowsOff)
	a.f("MOVQ %d(AX), CX", rowsDim)
	loop := a.label("loop")
	a.at(loop)
	for i := range 16 {
		p := []string{"R8", "R9", "R10", "R11"}[i%4]
		a.f("MOVQ %d(SI), %s", 8*i, p)
		a.f("VCVTPH2PS (%s)(DX*1), Z%d", p, i)
	}
	// Transpose: pairs of rows, pairs of pairs, then quarters of registers.
	for i := 0; i < 16; i += 2 {
		a.f("VUNPCKLPS Z%d, Z%d, Z%d", i+1, i, 16+i)
		a.f("VUNPCKHPS Z%d, Z%d, Z%d", i+1, i, 17+i)
	}
	for i := 0; i < 16; i += 4 { // Z(i+k): elements k, k+4, k+8, k+12 of rows i to i+3
		for k := range 2 {
			a.f("VUNPCKLPD Z%d, Z%d, Z%d", 18+i+k, 16+i+k, i+2*k)
			a.f("VUNPCKHPD Z%d, Z%d, Z%d", 18+i+k, 16+i+k, i+2*k+1)
		}
	}
	for k := range 4 {
		a.f("VSHUFF32X4 $0x88, Z%d, Z%d, Z%d", 4+k, k, 16) // elements k, k+8 of rows 0-7
		a.f("VSHUFF32X4 $0xdd, Z%d, Z%d, Z%d", 4+k, k, 17) // k+4, k+12
		a.f("VSHUFF32X4 $0x88, Z%d, Z%d, Z%d", 12+k, 8+k, 18)
		a.f("VSHUFF32X4 $0xdd, Z%d, Z%d, Z%d", 12+k, 8+k, 19)
		for e, src := range [][2]int{{16, 18}, {17, 19}} {
			a.f("VSHUFF32X4 $0x88, Z%d, Z%d, Z%d", src[1], src[0], 20)
			a.f("VSHUFF32X4 $0xdd, Z%d, Z%d, Z%d", src[1], src[0], 21)
			a.f("VMOVUPS Z20, %d(DI)", (k+4*e)*panelStride)
			a.f("VMOVUPS Z21, %d(DI)", (k+4*e+8)*panelStride)
		}
	}
	a.f("ADDQ $32, DX")
	a.f("ADDQ $%d, DI", 16*panelStride)
	a.f("SUBQ $16, CX")
	a.f("JNZ %s", loop)
	a.ret()
}

// packKAVX2 does the same with 8 rows at a time.
func packKAVX2(a *asm) {
	for pass := range 2 {
		a.f("MOVQ %d(AX), DI", rowsS)
		a.f("MOVQ %d(AX), SI", rowsPtrs)
		a.f("MOVQ %d(AX), DX", rowsOff)
		a.f("MOVQ %d(AX), CX", rowsDim)
		loop := a.label("loop")
		a.at(loop)
		for i := range 8 {
			p := []string{"R8", "R9", "R10", "R11"}[i%4]
			a.f("MOVQ %d(SI), %s", 8*(8*pass+i), p)
			a.f("VCVTPH2PS (%s)(DX*1), Y%d", p, i)
		}
		for i := 0; i < 8; i += 2 {
			a.f("VUNPCKLPS Y%d, Y%d, Y%d", i+1, i, 8+i)
			a.f("VUNPCKHPS Y%d, Y%d, Y%d", i+1, i, 9+i)
		}
		for i := 0; i < 8; i += 4 { // Y(i+k): elements k and k+4 of rows i to i+3
			for k := range 2 {
				a.f("VUNPCKLPD Y%d, Y%d, Y%d", 10+i+k, 8+i+k, i+2*k)
				a.f("VUNPCKHPD Y%d, Y%d, Y%d", 10+i+k, 8+i+k, i+2*k+1)
			}
		}
		for k := range 4 {
			a.f("VPERM2F128 $0x20, Y%d, Y%d, Y8", 4+k, k)
			a.f("VPERM2F128 $0x31, Y%d, Y%d, Y9", 4+k, k)
			a.f("VMOVUPS Y8, %d(DI)", k*panelStride+pass*32)
			a.f("VMOVUPS Y9, %d(DI)", (k+4)*panelStride+pass*32)
		}
		a.f("ADDQ $16, DX")
		a.f("ADDQ $%d, DI", 8*panelStride)
		a.f("SUBQ $8, CX")
		a.f("JNZ %s", loop)
	}
	a.ret()
}

// scoresPanelAVX512 computes the scores of 6 query rows and 32 positions: the even
// lanes first (d mod 4 = 0 and 2), whose sum waits in the result, then the odd ones.
func scoresPanelAVX512(a *asm) {
	acc := func(lane, r, v int) int { return lane*12 + 2*r + v }
	for pass := range 2 {
		a.f("MOVQ %d(AX), R8", panelQ)
		a.f("MOVQ %d(AX), CX", panelDim)
		a.f("LEAQ (CX*4), BX")
		a.f("LEAQ (BX)(BX*2), R9")
		a.f("ADDQ R8, R9")
		a.f("MOVQ %d(AX), SI", panelKV)
		a.zero("Z", 0, 24)
		loop := a.label("loop")
		a.at(loop)
		for lane := range 2 {
			d := pass + 2*lane
			a.f("VMOVUPS %d(SI), Z24", d*panelStride)
			a.f("VMOVUPS %d(SI), Z25", d*panelStride+64)
			for r := range 6 {
				a.f("VBROADCASTSS %d%s, Z%d", 4*d, rowAt("R8", "R9", "BX", r), 26+r)
				a.f("VFMADD231PS Z%d, Z24, Z%d", 26+r, acc(lane, r, 0))
				a.f("VFMADD231PS Z%d, Z25, Z%d", 26+r, acc(lane, r, 1))
			}
		}
		a.f("ADDQ $%d, SI", 4*panelStride)
		a.f("ADDQ $16, R8")
		a.f("ADDQ $16, R9")
		a.f("SUBQ $4, CX")
		a.f("JNZ %s", loop)
		a.f("MOVQ %d(AX), DI", panelS)
		for r := range 6 {
			for v := range 2 {
				z, at := acc(0, r, v), fmt.Sprintf("%d(DI)", r*scoreStride+v*64)
				a.f("VADDPS Z%d, Z%d, Z%d", z, acc(1, r, v), z)
				if pass == 1 {
					a.f("VADDPS %s, Z%d, Z%d", at, z, z)
				}
				a.f("VMOVUPS Z%d, %s", z, at)
			}
		}
	}
	a.ret()
}

// scoresPanelAVX2 does the same for 3 query rows and 16 positions at a time.
func scoresPanelAVX2(a *asm) {
	acc := func(lane, r, v int) int { return lane*6 + 2*r + v }
	for part := range 4 {
		row, pos := part/2*3, part%2*16
		for pass := range 2 {
			a.f("MOVQ %d(AX), R8", panelQ)
			a.f("MOVQ %d(AX), CX", panelDim)
			a.f("LEAQ (CX*4), BX")
			if row > 0 {
				a.f("LEAQ (BX)(BX*2), R9")
				a.f("ADDQ R9, R8")
			}
			a.f("MOVQ %d(AX), SI", panelKV)
			a.zero("Y", 0, 12)
			loop := a.label("loop")
			a.at(loop)
			for lane := range 2 {
				d := pass + 2*lane
				a.f("VMOVUPS %d(SI), Y12", d*panelStride+4*pos)
				a.f("VMOVUPS %d(SI), Y13", d*panelStride+4*pos+32)
				for r := range 3 {
					a.f("VBROADCASTSS %d%s, Y%d", 4*d, rowAt("R8", "", "BX", r), 14+r%2)
					a.f("VFMADD231PS Y%d, Y12, Y%d", 14+r%2, acc(lane, r, 0))
					a.f("VFMADD231PS Y%d, Y13, Y%d", 14+r%2, acc(lane, r, 1))
				}
			}
			a.f("ADDQ $%d, SI", 4*panelStride)
			a.f("ADDQ $16, R8")
			a.f("SUBQ $4, CX")
			a.f("JNZ %s", loop)
			a.f("MOVQ %d(AX), DI", panelS)
			for r := range 3 {
				for v := range 2 {
					y, at := acc(0, r, v), fmt.Sprintf("%d(DI)", (row+r)*scoreStride+4*pos+v*32)
					a.f("VADDPS Y%d, Y%d, Y%d", y, acc(1, r, v), y)
					if pass == 1 {
						a.f("VADDPS %s, Y%d, Y%d", at, y, y)
					}
					a.f("VMOVUPS Y%d, %s", y, at)
				}
			}
		}
	}
	a.ret()
}

// weightedPanel sums weighted V rows for 6 query rows, so many rows at a time, 4
// registers of elements, and merges the sums into the outputs. Registers from acc on
// hold a value of V and the weights.
func weightedPanel(a *asm, kind string, rows, acc int) {
	size := 4 * width(kind)
	for first := 0; first < 6; first += rows {
		piecesOf(a, kind, 4, panelDim, func(n int) {
			sum := func(r, i int) int { return r*n + i }
			a.zero(kind, 0, rows*n)
			a.f("MOVQ %d(AX), DI", panelS)
			a.f("MOVQ %d(AX), SI", panelKV)
			a.f("ADDQ DX, SI")
			a.f("MOVQ %d(AX), R14", panelDim)
			a.f("SHLQ $2, R14")
			a.f("MOVQ %d(AX), CX", panelN)
			loop := a.label("loop")
			a.at(loop)
			if kind == "Z" {
				for i := range n {
					a.f("VMOVUPS %d(SI), Z%d", i*size, acc+i)
				}
				for r := range rows {
					p := acc + 4 + r%4
					a.f("VBROADCASTSS %d(DI), Z%d", (first+r)*scoreStride, p)
					for i := range n {
						a.f("VFMADD231PS Z%d, Z%d, Z%d", p, acc+i, sum(r, i))
					}
				}
			} else {
				for r := range rows {
					a.f("VBROADCASTSS %d(DI), Y%d", (first+r)*scoreStride, acc+1+r)
				}
				for i := range n {
					a.f("VMOVUPS %d(SI), Y%d", i*size, acc)
					for r := range rows {
						a.f("VFMADD231PS Y%d, Y%d, Y%d", acc+1+r, acc, sum(r, i))
					}
				}
			}
			a.f("ADDQ R14, SI")
			a.f("ADDQ $4, DI")
			a.f("DECQ CX")
			a.f("JNZ %s", loop)
			a.f("MOVQ %d(AX), R8", panelQ)
			a.f("ADDQ DX, R8")
			if first > 0 {
				a.f("LEAQ (R14)(R14*2), R9")
				a.f("ADDQ R9, R8")
			}
			a.f("MOVQ %d(AX), R9", panelFA)
			a.f("MOVQ %d(AX), R10", panelFB)
			for r := range rows {
				a.f("VBROADCASTSS %d(R9), %s%d", 4*(first+r), kind, acc)
				a.f("VBROADCASTSS %d(R10), %s%d", 4*(first+r), kind, acc+1)
				for i := range n {
					a.f("VMULPS %s%d, %s%d, %s%d", kind, acc+1, kind, sum(r, i), kind, sum(r, i))
					a.f("VMOVUPS %d(R8), %s%d", i*size, kind, acc+2)
					a.f("VFMADD213PS %s%d, %s%d, %s%d", kind, sum(r, i), kind, acc, kind, acc+2)
					a.f("VMOVUPS %s%d, %d(R8)", kind, acc+2, i*size)
				}
				a.f("ADDQ R14, R8")
			}
		})
	}
	a.ret()
}
