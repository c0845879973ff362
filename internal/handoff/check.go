package handoff

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// samples is how many positions are recomputed. Besides the first and the last claimed
// one they are random, so that a provider that leaves out a share f of the rows is found
// out with probability 1-(1-f)^14 at least.
const samples = 16

// checkContent compares cells with the tokens of the prompt: at some positions the K row
// of layer 0, which follows from the token and the position alone. Of a foreign provider
// it looks at every row that is claimed, whether it was written at all.
func (t *Table) checkContent(ctx context.Context, s *share, filled int) error {
	if filled <= s.pos0 {
		return nil
	}
	foreign := s.provider.policy.Foreign
	if foreign {
		pos := s.pos0
		for _, run := range s.runsOf(filled) {
			if err := run.Unwritten(); err != nil {
				return refuse(ContentDiffers, "cells from position %d on: %v", pos, err)
			}
			pos += run.Len
		}
	}
	positions := samplePositions(s.pos0, filled)
	tokens := make([]int32, len(positions))
	for i, pos := range positions {
		tokens[i] = s.tokens[pos]
	}
	n := t.opt.Pool.Layout().RowElems
	want := make([]uint16, len(positions)*n)
	if err := t.opt.KeyRows(ctx, tokens, positions, want); err != nil {
		return fmt.Errorf("recompute rows: %w", err)
	}
	tolerance := 0.0
	if foreign {
		tolerance = t.opt.Tolerance
	}
	cells := t.opt.Pool.Layout().CellsPerBlock
	for i, pos := range positions {
		at := pos - s.pos0
		row := s.blocks[at/cells].K(0)[at%cells*n:][:n]
		if err := compareRows(row, want[i*n:(i+1)*n], tolerance); err != nil {
			return refuse(ContentDiffers, "position %d, token %d: the K row of layer 0 %v", pos, tokens[i], err)
		}
	}
	return nil
}

// samplePositions draws different positions from from to to-1, in order: all if there
// are few, else the two ends and random ones.
func samplePositions(from, to int) []int {
	if to-from <= samples {
		all := make([]int, to-from)
		for i := range all {
			all[i] = from + i
		}
		return all
	}
	chosen := map[int]bool{from: true, to - 1: true}
	for len(chosen) < samples {
		chosen[from+rand.IntN(to-from)] = true
	}
	list := make([]int, 0, samples)
	for pos := range chosen {
		list = append(list, pos)
	}
	slices.Sort(list)
	return list
}

// compareRows compares a row in half precision with what was computed: equal bits, or,
// with a tolerance, a relative error of at most that much.
func compareRows(got, want []uint16, tolerance float64) error {
	if tolerance == 0 {
		for i := range got {
			if got[i] != want[i] {
				return fmt.Errorf("has %g as element %d, want %g", half(got[i]), i, half(want[i]))
			}
		}
		return nil
	}
	var difference, norm float64
	for i := range got {
		d := half(got[i]) - half(want[i])
		difference += d * d
		norm += half(want[i]) * half(want[i])
	}
	e := math.Sqrt(difference / norm)
	if difference == 0 {
		e = 0
	}
	if !(e <= tolerance) { // so that a NaN does not pass
		return fmt.Errorf("has a relative error of %.3g, at most %g is allowed", e, tolerance)
	}
	return nil
}

// half is the value of an IEEE 754 half precision number.
func half(h uint16) float64 {
	sign, exponent, fraction := 1.0, int(h>>10&0x1f), float64(h&0x3ff)
	if h&0x8000 != 0 {
		sign = -1
	}
	switch exponent {
	case 0:
		return sign * math.Ldexp(fraction, -24)
	case 31:
		if fraction != 0 {
			return math.NaN()
		}
		return math.Inf(int(sign))
	}
	return sign * math.Ldexp(1024+fraction, exponent-25)
}
