package modelfile_test

import (
	"bytes"
	"context"
	"testing"

	"baton/internal/gguf"
	"baton/internal/gguf/gguftest"
	"baton/internal/modelfile"
)

// FuzzReports describes and verifies whatever parses: neither may panic, and Verify must
// come to an end with a result.
func FuzzReports(f *testing.F) {
	small := gguf.NewBuilder()
	small.SetString("general.architecture", "qwen2")
	small.SetUint32("qwen2.block_count", 1)
	small.SetUint32("qwen2.attention.head_count", 0)
	small.SetUint64("qwen2.embedding_length", 1<<63)
	small.SetString("tokenizer.ggml.model", "gpt2")
	small.AddTensor("token_embd.weight", 2, []uint64{32, 2}, make([]byte, 36))
	f.Add(gguftest.Bytes(small))
	f.Add(gguftest.Bytes(gguf.NewBuilder()))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := gguf.Parse(data, "fuzz")
		if err != nil {
			return
		}
		for _, o := range []modelfile.Options{{}, {JSON: true}} {
			if err := modelfile.Inspect(new(bytes.Buffer), file, o); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := modelfile.Verify(context.Background(), file, nil); err != nil {
			t.Fatal(err)
		}
	})
}
