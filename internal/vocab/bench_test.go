package vocab_test

import (
	"os"
	"strings"
	"testing"

	"baton/internal/vocab"
)

// benchText is English prose and some code, about 64 KB.
func benchText(b *testing.B) string {
	b.Helper()
	var s strings.Builder
	for _, f := range []string{"../demo/model/README.md", "../demo/model/synth.py", "../demo/model/tales.py"} {
		data, err := os.ReadFile(f)
		if err != nil {
			b.Fatal(err)
		}
		s.Write(data)
	}
	return s.String()
}

// benchVocabs calls f with the demo model's vocabulary and, where BATON_PEER has them, real
// ones of 32,000 to 262,000 tokens.
func benchVocabs(b *testing.B, f func(b *testing.B, md vocab.Metadata)) {
	b.Run("demo", func(b *testing.B) { f(b, demoFile(b)) })
	cache := os.Getenv("BATON_PEER")
	if cache == "" {
		return
	}
	for _, m := range peerModels {
		b.Run(m.name, func(b *testing.B) { f(b, m.metadata(b, cache)) })
	}
}

func BenchmarkNew(b *testing.B) {
	benchVocabs(b, func(b *testing.B, md vocab.Metadata) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := vocab.New(md); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkEncode(b *testing.B) {
	text := benchText(b)
	benchVocabs(b, func(b *testing.B, md vocab.Metadata) {
		benchEncode(b, md, text)
	})
}

// BenchmarkEncodeUnbroken encodes a megabyte that no pre-tokenizer can cut.
func BenchmarkEncodeUnbroken(b *testing.B) {
	benchEncode(b, demoFile(b), strings.Repeat("onceuponatime", 1<<20/13))
}

func benchEncode(b *testing.B, md vocab.Metadata, text string) {
	v, err := vocab.New(md)
	if err != nil {
		b.Fatal(err)
	}
	dst := v.Encode(nil, text, vocab.EncodeOptions{ParseSpecial: true})
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	b.ReportMetric(float64(len(text))/float64(len(dst)), "bytes/token")
	for b.Loop() {
		dst = v.Encode(dst[:0], text, vocab.EncodeOptions{ParseSpecial: true})
	}
}

func BenchmarkDetokenizer(b *testing.B) {
	v := newDemo(b)
	ids := v.Encode(nil, benchText(b), vocab.EncodeOptions{})
	b.ReportAllocs()
	d := vocab.NewDetokenizer(v, false)
	i := 0
	for b.Loop() {
		d.Push(ids[i])
		if i++; i == len(ids) {
			i = 0
		}
	}
}
