package model_test

import (
	"slices"
	"testing"

	"baton/internal/model"
)

// Key rows are those that a forward pass stored, bit for bit, at any position.
func TestKeyRowsAreThoseOfForward(t *testing.T) {
	m := demoModel(t)
	r := newRig(t, m, 2, 256, 0)
	tokens := golden(t)[2].Tokens
	seq := r.blocks.NewSequence()
	defer seq.Free()
	r.feed(t, seq, tokens, 256)

	k := model.NewKeyRows(m)
	defer k.Close()
	var at []int
	var ids []int32
	for pos := 0; pos < len(tokens); pos += 7 {
		at, ids = append(at, pos), append(ids, tokens[pos])
	}
	kvDim := m.KVHeads * m.HeadDim
	rows := make([]uint16, len(at)*kvDim)
	if err := k.Compute(ids, at, rows); err != nil {
		t.Fatal(err)
	}
	runs := seq.Runs(0, seq.Len(), nil)
	for i, pos := range at {
		for _, run := range runs {
			if pos >= run.Len {
				pos -= run.Len
				continue
			}
			stored := run.Block.K(0)[(run.Cell+pos)*kvDim : (run.Cell+pos+1)*kvDim]
			if !slices.Equal(stored, rows[i*kvDim:(i+1)*kvDim]) {
				t.Fatalf("row of position %d differs", at[i])
			}
			break
		}
	}
	if err := k.Compute([]int32{int32(m.Vocab)}, []int{0}, rows); err == nil {
		t.Error("a token outside the vocabulary: no error")
	}
	if err := k.Compute([]int32{1, 2}, []int{0}, rows); err == nil {
		t.Error("two tokens at one position: no error")
	}
}

func TestFingerprintTellsModelsApart(t *testing.T) {
	a, err := demoModel(t).Fingerprint()
	if err != nil {
		t.Fatal(err)
	}
	b, err := demoModel(t).Fingerprint()
	if err != nil || a != b || len(a) != 64 {
		t.Errorf("one model, two fingerprints: %s and %s (%v)", a, b, err)
	}
	other := changedDemo(t)
	if c, err := other.Fingerprint(); err != nil || c == a {
		t.Errorf("a model with other weights has the fingerprint %s (%v)", c, err)
	}
}
