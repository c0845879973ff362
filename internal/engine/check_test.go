package engine_test

import (
	"errors"
	"testing"

	"baton/internal/engine"
)

func TestCheck(t *testing.T) {
	info := engine.Info{VocabSize: 10, CtxSlot: 4, Slots: 2}
	for _, tt := range []struct {
		name  string
		edit  func(*engine.Request)
		code  engine.Code // empty: fine
		param string
	}{
		{"fine", func(*engine.Request) {}, "", ""},
		{"last token and slot", func(r *engine.Request) { r.Prompt, r.Slot = []int32{9}, 1 }, "", ""},
		{"any slot", func(r *engine.Request) { r.Slot = -1 }, "", ""},
		{"a banned token", func(r *engine.Request) { r.Sampling.LogitBias = []engine.TokenBias{{Token: 9}} }, "", ""},
		{"no prompt", func(r *engine.Request) { r.Prompt = nil }, engine.CodeBadRequest, "prompt"},
		{"no room for an answer", func(r *engine.Request) { r.Prompt = []int32{1, 2, 3, 4} }, engine.CodeTooLong, "prompt"},
		{"negative token", func(r *engine.Request) { r.Prompt = []int32{-1} }, engine.CodeBadRequest, "prompt"},
		{"token out of the vocabulary", func(r *engine.Request) { r.Prompt = []int32{1, 10} }, engine.CodeBadRequest, "prompt"},
		{"no such slot", func(r *engine.Request) { r.Slot = 2 }, engine.CodeBadRequest, "id_slot"},
		{"bias of no token", func(r *engine.Request) { r.Sampling.LogitBias = []engine.TokenBias{{Token: 10}} }, engine.CodeBadRequest, "logit_bias"},
		{"empty stop", func(r *engine.Request) { r.Stop = []string{"a", ""} }, engine.CodeBadRequest, "stop"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := engine.NewRequest([]int32{1, 2, 3})
			tt.edit(r)
			err := info.Check(r)
			if tt.code == "" {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			var e *engine.Error
			if !errors.As(err, &e) || e.Code != tt.code || e.Param != tt.param {
				t.Errorf("%#v, want code %s about %s", err, tt.code, tt.param)
			}
		})
	}
}
