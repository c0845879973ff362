package bench

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"baton/internal/kernel"
	"baton/internal/quant"
)

// Every kind of case runs, and its figures fit together.
func TestMeasureKernels(t *testing.T) {
	o := KernelOptions{Types: []quant.Type{quant.Q8_0, quant.F32}, Shapes: [][2]int{{96, 256}}, Tokens: []int{1, 3}, Threads: []int{2}, Reps: 1,
		Kernels: []string{"matmul", "output", "quantize", "rmsnorm", "swiglu", "rope", "softmax"}}
	var reported int
	results, err := MeasureKernels(context.Background(), o, func(*KernelResult) { reported++ })
	if err != nil {
		t.Fatal(err)
	}
	if want := 2*2*2 + 5; len(results) != want || reported != want {
		t.Fatalf("%d results, %d reported, want %d", len(results), reported, want)
	}
	for _, r := range results {
		if r.Micros <= 0 || r.GBs <= 0 || r.FloorMicros <= 0 || r.Reached != r.FloorMicros/r.Micros || r.Kernels != kernel.Active() || r.Threads != 2 {
			t.Errorf("%+v", r)
		}
		if product := r.Kernel == "matmul" || r.Kernel == "output"; product != (r.GMACs > 0) {
			t.Errorf("%s: %g GMAC/s", r.Kernel, r.GMACs)
		}
	}
	var text bytes.Buffer
	if err := WriteKernels(&text, results); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"96x256", "Q8_0", "rmsnorm", kernel.Active() + " kernels"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
}

func TestMeasureKernelsRefusals(t *testing.T) {
	ctx := context.Background()
	for name, o := range map[string]KernelOptions{
		"no such kernel":  {Kernels: []string{"fft"}},
		"columns":         {Kernels: []string{"matmul"}, Types: []quant.Type{quant.Q4_K}, Shapes: [][2]int{{32, 32}}, Tokens: []int{1}, Threads: []int{1}},
		"an empty matrix": {Kernels: []string{"matmul"}, Types: []quant.Type{quant.Q8_0}, Shapes: [][2]int{{0, 32}}, Tokens: []int{1}, Threads: []int{1}},
	} {
		if _, err := MeasureKernels(ctx, o, nil); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// The multiply-adds of causal attention: each token sees the cells before it and its own.
func TestAttentionCase(t *testing.T) {
	p := kernel.NewPool(1)
	defer p.Close()
	c := attentionCase(p, 3, 2)
	if want := 2 * heads * headDim * (3 + 4 + 5); c.macs != want {
		t.Errorf("%d multiply-adds, want %d", c.macs, want)
	}
	size := 0
	for _, b := range c.read(0) {
		size += len(b)
	}
	if want := 5 * 2 * kvHeads * headDim * 2; size != want {
		t.Errorf("%d bytes to read, want %d", size, want)
	}
	if err := c.run(0); err != nil {
		t.Error(err)
	}
}
