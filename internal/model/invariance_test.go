package model_test

import (
	"slices"
	"testing"

	"baton/internal/model"
)

// A token's logits do not depend on the pieces its prompt came in, on the number of
// threads, on the borders of blocks, or on who else is in the batch: to the last bit.
func TestResultDoesNotDependOnTheBatch(t *testing.T) {
	m := demoModel(t)
	g := golden(t)
	prompt := g[2].Tokens
	if len(prompt) < 257 { // more than one tile of attention
		t.Fatalf("prompt of %d tokens", len(prompt))
	}
	other := g[1].Tokens

	base := newRig(t, m, 1, 512, 0)
	seq := base.blocks.NewSequence()
	want := slices.Clone(base.feed(t, seq, prompt, 512))
	next := argmax(want)
	wantNext := slices.Clone(base.feed(t, seq, []int32{next}, 1))
	seq.Free()

	for _, c := range []struct {
		name                   string
		threads, pieces, cells int
	}{
		{"one token at a time", 1, 1, 0},
		{"two tokens", 2, 2, 0},
		{"sevens", 2, 7, 64},
		{"sixty-fours", 1, 64, 32},
		{"two threads", 2, 512, 0},
		{"three threads", 3, 300, 128},
		{"511", 2, 511, 16},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, m, c.threads, 512, c.cells)
			seq := r.blocks.NewSequence()
			defer seq.Free()
			p := prompt
			if c.pieces == 1 { // every product with a single token: a part is enough
				p = prompt[:40]
				s := base.blocks.NewSequence()
				defer s.Free()
				want := slices.Clone(base.feed(t, s, p, 512))
				if got := r.feed(t, seq, p, 1); !slices.Equal(got, want) {
					t.Fatal("logits differ")
				}
				return
			}
			if got := r.feed(t, seq, p, c.pieces); !slices.Equal(got, want) {
				t.Fatal("logits differ")
			}
			// The next token, beside another sequence's prompt.
			o := r.blocks.NewSequence()
			defer o.Free()
			a, b := chunk(t, o, other), chunk(t, seq, []int32{next})
			a.Logits, b.Logits = true, true
			logits, err := r.runner.Forward([]model.Chunk{a, b})
			if err != nil {
				t.Fatal(err)
			}
			if got := logits[m.Vocab:]; !slices.Equal(got, wantNext) {
				t.Fatal("logits differ beside another sequence")
			}
		})
	}
}

// Asking for the logits of every token changes none of them.
func TestAllLogits(t *testing.T) {
	m := demoModel(t)
	tokens := golden(t)[0].Tokens
	r := newRig(t, m, 2, 64, 0)
	seq := r.blocks.NewSequence()
	defer seq.Free()
	c := chunk(t, seq, tokens)
	c.All = true
	all, err := r.runner.Forward([]model.Chunk{c})
	if err != nil {
		t.Fatal(err)
	}
	all = slices.Clone(all)
	s := r.blocks.NewSequence()
	defer s.Free()
	for i := range tokens {
		if got := r.feed(t, s, tokens[i:i+1], 1); !slices.Equal(got, all[i*m.Vocab:(i+1)*m.Vocab]) {
			t.Fatalf("token %d: logits differ", i)
		}
	}
}

func TestForwardRefusesBadChunks(t *testing.T) {
	m := demoModel(t)
	r := newRig(t, m, 1, 8, 0)
	seq := r.blocks.NewSequence()
	defer seq.Free()
	good := chunk(t, seq, []int32{1, 2, 3})
	for name, c := range map[string]model.Chunk{
		"no tokens":        {},
		"too many":         {Tokens: make([]int32, 9), Runs: good.Runs},
		"outside":          {Tokens: []int32{1, 2, int32(m.Vocab)}, Runs: good.Runs},
		"negative":         {Tokens: []int32{1, -2, 3}, Runs: good.Runs},
		"too few cells":    {Tokens: []int32{1, 2, 3}, Pos0: 1, Runs: good.Runs},
		"negative place":   {Tokens: []int32{1, 2, 3, 4}, Pos0: -1, Runs: good.Runs},
		"cells of nothing": {Tokens: []int32{1}},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := r.runner.Forward([]model.Chunk{c}); err == nil {
				t.Error("no error")
			}
		})
	}
	if _, err := r.runner.Forward([]model.Chunk{good}); err != nil {
		t.Errorf("a good batch after the bad ones: %v", err)
	}
}
