// Package modelfile reports on GGUF model files: what a file holds and what can be done
// with it (Inspect), and whether its contents are sound (Verify).
//
// It reads files only through package gguf. It does not know which architectures,
// tokenizers and templates can be run: its caller passes that in as Support.
package modelfile

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"baton/internal/gguf"
	"baton/internal/quant"
)

// Report is what Describe finds in a file. Its JSON form is the output of
// `baton model inspect --json`. Numbers that the file does not say are zero.
type Report struct {
	File       FileInfo     `json:"file"`
	Model      ModelInfo    `json:"model"`
	Vocabulary Vocabulary   `json:"vocabulary"`
	Template   *Template    `json:"chat_template,omitempty"`
	Types      []TypeUse    `json:"types"` // most bytes first
	Checks     []Check      `json:"support"`
	Problems   []string     `json:"problems,omitempty"` // metadata that could not be read
	Metadata   []Entry      `json:"metadata"`
	Tensors    []TensorInfo `json:"tensors"`
}

// FileInfo describes the file as such.
type FileInfo struct {
	Name       string `json:"name"`
	Bytes      uint64 `json:"bytes"`
	Version    uint32 `json:"gguf_version"`
	Alignment  uint64 `json:"alignment"`
	DataOffset uint64 `json:"data_offset"`
}

// ModelInfo describes the model that the metadata announce.
type ModelInfo struct {
	Architecture    string  `json:"architecture"`
	Name            string  `json:"name,omitempty"`
	Description     string  `json:"description,omitempty"`
	License         string  `json:"license,omitempty"`
	Quantization    string  `json:"quantization,omitempty"`
	Parameters      uint64  `json:"parameters"`
	ContextLength   uint64  `json:"context_length,omitempty"`
	Layers          uint64  `json:"layers,omitempty"`
	Width           uint64  `json:"embedding_length,omitempty"`
	FeedForward     uint64  `json:"feed_forward_length,omitempty"`
	Heads           uint64  `json:"heads,omitempty"`
	KVHeads         uint64  `json:"kv_heads,omitempty"`
	KeyLength       uint64  `json:"key_length,omitempty"`   // of one head
	ValueLength     uint64  `json:"value_length,omitempty"` // of one head
	Experts         uint64  `json:"experts,omitempty"`
	RopeBase        float64 `json:"rope_freq_base,omitempty"`
	RopeScaling     string  `json:"rope_scaling,omitempty"`
	KVBytesPerToken uint64  `json:"kv_bytes_per_token_f16,omitempty"`
}

// Vocabulary describes the tokenizer.
type Vocabulary struct {
	Model  string `json:"model"` // gpt2, llama, ...
	Pre    string `json:"pre,omitempty"`
	Tokens uint64 `json:"tokens"`
	BOS    *int64 `json:"bos,omitempty"`
	EOS    *int64 `json:"eos,omitempty"`
	EOT    *int64 `json:"eot,omitempty"`
}

// Template describes the chat template.
type Template struct {
	Bytes     int    `json:"bytes"`
	FirstLine string `json:"first_line"` // cut to a readable length
}

// TypeUse is how much of the weights is of one type.
type TypeUse struct {
	Type      string  `json:"type"`
	Tensors   int     `json:"tensors"`
	Bytes     uint64  `json:"bytes"`
	Share     float64 `json:"share"` // of the bytes of all tensors, 0 to 1
	Supported bool    `json:"supported"`
}

// Check answers one question about what Baton can do with the file.
type Check struct {
	Subject string `json:"subject"`
	OK      bool   `json:"ok"`
	Reason  string `json:"reason"`
}

// Entry is one metadata value.
type Entry struct {
	Key   string `json:"key"`
	Type  string `json:"type"`
	Value any    `json:"value"` // of an array: the first elements
	Len   int    `json:"len,omitempty"`
}

// TensorInfo describes one tensor.
type TensorInfo struct {
	Name   string   `json:"name"`
	Type   string   `json:"type"`
	Dims   []uint64 `json:"dims"` // the contiguous one first
	Offset uint64   `json:"offset"`
	Bytes  uint64   `json:"bytes"`
}

// Support says what the caller's program can run. Each function returns nil or the
// reason why not; a nil function leaves its question out of the report.
type Support struct {
	Model    func(*gguf.File) error // architecture, hyperparameters and tensors
	Vocab    func(*gguf.File) error
	Template func(source string) error
}

// arrayShown is how many elements of an array an Entry holds.
const arrayShown = 8

// Describe reports on f. Metadata of wrong types end up in Problems; there is no file
// that it cannot describe.
func Describe(f *gguf.File, s Support) *Report {
	m := readMetadata(f)
	r := &Report{
		File: FileInfo{f.Name, f.Size, f.Version, f.Alignment, f.DataOffset},
		Model: ModelInfo{
			Architecture:  m.arch,
			Name:          m.text("general.name"),
			Description:   m.text("general.description"),
			License:       m.text("general.license"),
			Quantization:  Quantization(f),
			ContextLength: m.context,
			Layers:        m.layers,
			Width:         m.width,
			FeedForward:   m.feedForward,
			Heads:         m.heads,
			KVHeads:       m.kvHeads,
			KeyLength:     m.keyLength,
			ValueLength:   m.valueLength,
			Experts:       m.experts,
			RopeBase:      m.ropeBase,
			RopeScaling:   m.ropeScaling,
		},
		Vocabulary: Vocabulary{
			Model:  m.text("tokenizer.ggml.model"),
			Pre:    m.text("tokenizer.ggml.pre"),
			Tokens: m.tokens,
			BOS:    m.tokenID("bos"),
			EOS:    m.tokenID("eos"),
			EOT:    m.tokenID("eot"),
		},
		Types:    typeUse(f),
		Metadata: entries(f),
		Tensors:  []TensorInfo{},
	}
	for _, t := range f.Tensors() {
		r.Model.Parameters = saturatingAdd(r.Model.Parameters, t.Elems())
		r.Tensors = append(r.Tensors, TensorInfo{t.Name, t.Type.String(), t.Dims, t.Offset, uint64(len(t.Data))})
	}
	r.Model.KVBytesPerToken = m.kvBytesPerToken()
	source := m.text("tokenizer.chat_template")
	if source != "" {
		first, _, _ := strings.Cut(source, "\n")
		r.Template = &Template{len(source), shorten(first, 100)}
	}
	r.Checks = checks(f, s, r, source)
	r.Problems = m.problems
	return r
}

// checks answers the questions in the order in which loading would ask them.
func checks(f *gguf.File, s Support, r *Report, template string) []Check {
	var list []Check
	add := func(subject, yes string, err error) {
		c := Check{Subject: subject, OK: err == nil, Reason: yes}
		if err != nil {
			c.Reason = err.Error()
		}
		list = append(list, c)
	}

	if parts, ok, _ := f.Uint("split.count"); ok && parts > 1 {
		add("one file", "", fmt.Errorf("this is one of %d parts; join them with llama-gguf-split --merge", parts))
	}
	if kind, ok, _ := f.String("general.type"); ok && kind != "model" {
		add("a model", "", fmt.Errorf("general.type is %s, expected model", shorten(kind, 40)))
	}
	if s.Model != nil {
		add("model", "architecture "+r.Model.Architecture+" is supported", s.Model(f))
	}
	var known, unknown []string
	for _, t := range r.Types {
		if t.Supported {
			known = append(known, t.Type)
		} else {
			unknown = append(unknown, t.Type)
		}
	}
	switch {
	case len(r.Types) == 0:
		add("tensor types", "", fmt.Errorf("the file has no tensors"))
	case len(unknown) > 0:
		add("tensor types", "", fmt.Errorf("no kernels for %s; quantize the model to another type", strings.Join(unknown, ", ")))
	default:
		add("tensor types", strings.Join(known, ", "), nil)
	}
	if s.Vocab != nil {
		add("tokenizer", strings.TrimSuffix(r.Vocabulary.Model+", "+r.Vocabulary.Pre, ", "), s.Vocab(f))
	}
	switch {
	case template == "":
		add("chat template", "", fmt.Errorf("the file has none: chat requests need one, completions do not"))
	case s.Template != nil:
		add("chat template", "can be rendered", s.Template(template))
	}
	return list
}

// typeUse adds up the tensors by type.
func typeUse(f *gguf.File) []TypeUse {
	byType := map[quant.Type]*TypeUse{}
	total := 0.0
	for _, t := range f.Tensors() {
		u := byType[t.Type]
		if u == nil {
			u = &TypeUse{Type: t.Type.String(), Supported: t.Type.Supported()}
			byType[t.Type] = u
		}
		u.Tensors++
		u.Bytes += uint64(len(t.Data))
		total += float64(len(t.Data))
	}
	list := make([]TypeUse, 0, len(byType))
	for _, u := range byType {
		u.Share = float64(u.Bytes) / total
		list = append(list, *u)
	}
	slices.SortFunc(list, func(a, b TypeUse) int {
		if a.Bytes != b.Bytes {
			if a.Bytes > b.Bytes {
				return -1
			}
			return 1
		}
		return strings.Compare(a.Type, b.Type)
	})
	return list
}

func entries(f *gguf.File) []Entry {
	list := []Entry{}
	for _, key := range f.Keys() {
		v, _ := f.Value(key)
		list = append(list, entryOf(key, v))
	}
	return list
}

func entryOf(key string, v gguf.Value) Entry {
	e := Entry{Key: key, Type: v.Type().String()}
	if v.Type() != gguf.Array {
		e.Value = jsonValue(v)
		return e
	}
	e.Type = v.Elem().String() + "[]"
	e.Len = v.Len()
	shown := []any{}
	for elem := range v.All() {
		if len(shown) == arrayShown {
			break
		}
		shown = append(shown, jsonValue(elem))
	}
	e.Value = shown
	return e
}

// jsonValue is v as JSON can carry it: numbers that are none become text, and so do
// arrays inside arrays.
func jsonValue(v gguf.Value) any {
	switch x := v.Any().(type) {
	case nil:
		return v.Kind()
	case float32:
		if f := float64(x); math.IsNaN(f) || math.IsInf(f, 0) {
			return fmt.Sprint(x)
		}
		return x
	case float64:
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return fmt.Sprint(x)
		}
		return x
	default:
		return x
	}
}
