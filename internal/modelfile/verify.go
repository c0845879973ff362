package modelfile

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"slices"

	"baton/internal/gguf"
	"baton/internal/quant"
)

// Severity says whether a finding makes the model unusable.
type Severity string

const (
	Error   Severity = "error"   // answers would be wrong, or loading fails
	Warning Severity = "warning" // odd, but harmless by itself
)

// Finding is one thing that is wrong.
type Finding struct {
	Severity Severity `json:"severity"`
	Tensor   string   `json:"tensor,omitempty"`
	Index    int      `json:"index"`            // of the tensor, -1 without one
	Offset   uint64   `json:"offset,omitempty"` // in the file
	Message  string   `json:"message"`
}

// Verification is the result of Verify.
type Verification struct {
	File     string    `json:"file"`
	Bytes    uint64    `json:"bytes"`
	SHA256   string    `json:"sha256"` // of the whole file
	Tensors  int       `json:"tensors"`
	Errors   int       `json:"errors"`
	Warnings int       `json:"warnings"`
	Findings []Finding `json:"findings"` // the first maxFindings
}

// OK reports whether no errors were found.
func (v *Verification) OK() bool { return v.Errors == 0 }

const (
	maxFindings = 100
	window      = 4 << 20 // bytes read between two calls of progress
)

// Verify reads the whole file. It computes its SHA-256 and looks for values that are not
// numbers in every tensor, for tensors that are missing or whose shapes contradict the
// metadata, and for data where none should be. Whatever is wrong with the contents is a
// finding. The error is ctx's, or gguf.ErrFault when the file cannot be read to its end.
//
// Progress, which may be nil, is told after every few megabytes how many bytes of the
// file are done.
func Verify(ctx context.Context, f *gguf.File, progress func(done, total uint64)) (*Verification, error) {
	if progress == nil {
		progress = func(uint64, uint64) {}
	}
	v := &verifier{f: f, ctx: ctx, progress: progress, hash: sha256.New(), index: map[string]int{}, findings: []Finding{}}
	for i, t := range f.Tensors() {
		v.index[t.Name] = i
	}
	m := readMetadata(f)
	v.checkShapes(m)
	v.checkVocabulary(m)
	if err := v.read(); err != nil {
		return nil, fmt.Errorf("modelfile: verify %s: %w", f.Name, err)
	}
	return &Verification{
		File: f.Name, Bytes: f.Size, SHA256: hex.EncodeToString(v.hash.Sum(nil)), Tensors: len(f.Tensors()),
		Errors: v.errors, Warnings: v.warnings, Findings: v.findings,
	}, nil
}

type verifier struct {
	f        *gguf.File
	ctx      context.Context
	progress func(done, total uint64)
	hash     hash.Hash
	index    map[string]int // tensor name to index
	done     uint64         // bytes hashed

	findings         []Finding
	errors, warnings int
}

func (v *verifier) add(f Finding) {
	if f.Severity == Error {
		v.errors++
	} else {
		v.warnings++
	}
	if len(v.findings) < maxFindings {
		v.findings = append(v.findings, f)
	}
}

// errorf and warnf add a finding about the file as a whole, tensorf one about a tensor.
func (v *verifier) errorf(format string, args ...any) {
	v.add(Finding{Severity: Error, Index: -1, Message: fmt.Sprintf(format, args...)})
}

func (v *verifier) warnf(format string, args ...any) {
	v.add(Finding{Severity: Warning, Index: -1, Message: fmt.Sprintf(format, args...)})
}

func (v *verifier) tensorf(i int, s Severity, format string, args ...any) {
	t := v.f.Tensors()[i]
	v.add(Finding{s, t.Name, i, t.Offset, fmt.Sprintf(format, args...)})
}

// read goes through the file once, in its order: the header, then the tensors and the
// gaps before them, then what follows.
func (v *verifier) read() error {
	tensors := v.f.Tensors()
	order := make([]int, len(tensors))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(tensors[a].Offset, tensors[b].Offset) })

	if err := v.consume(v.f.DataOffset, nil); err != nil {
		return err
	}
	for _, i := range order {
		if err := v.gap(tensors[i].Offset); err != nil {
			return err
		}
		if err := v.tensor(i); err != nil {
			return err
		}
	}
	return v.gap(v.f.Size)
}

// gap reads up to end, where no tensor lies: only padding belongs there.
func (v *verifier) gap(end uint64) error {
	start, zero := v.done, true
	err := v.consume(end, func(b []byte) { zero = zero && allZero(b) })
	switch n := end - start; {
	case err != nil || n == 0:
		return err
	case n >= v.f.Alignment:
		v.add(Finding{Warning, "", -1, start, fmt.Sprintf("%d bytes from here on belong to no tensor", n)})
	case !zero:
		v.add(Finding{Warning, "", -1, start, fmt.Sprintf("the %d bytes of padding are not zero", n)})
	}
	return nil
}

// tensor reads the data of tensor i.
func (v *verifier) tensor(i int) error {
	t := v.f.Tensors()[i]
	format, _ := t.Type.Format()
	var bad nonFinite
	zero := true
	// Windows are whole blocks, so that each can be looked at alone.
	blocks := uint64(window / format.Bytes)
	for base := uint64(0); v.done < t.Offset+uint64(len(t.Data)); base += blocks {
		end := min(v.done+blocks*uint64(format.Bytes), t.Offset+uint64(len(t.Data)))
		err := v.consume(end, func(b []byte) {
			bad.add(t.Type, b, base)
			zero = zero && allZero(b)
		})
		if err != nil {
			return err
		}
	}
	if bad.any() {
		v.add(Finding{Error, t.Name, i, t.Offset + bad.first*uint64(format.Bytes), bad.text(t.Type)})
	}
	if zero && len(t.Dims) > 1 {
		v.tensorf(i, Warning, "all %d bytes are zero; the download of the file may be incomplete", len(t.Data))
	}
	return nil
}

func (c *nonFinite) text(t quant.Type) string {
	format, _ := t.Format()
	if format.Elems == 1 {
		return fmt.Sprintf("%d values are NaN and %d infinite, the first is element %d", c.nan, c.inf, c.first)
	}
	return fmt.Sprintf("%d block scales are NaN and %d infinite, the first is in block %d (elements %d to %d)",
		c.nan, c.inf, c.first, c.first*uint64(format.Elems), (c.first+1)*uint64(format.Elems)-1)
}

// consume hashes the file up to end, and meanwhile gives the same bytes, in pieces of at
// most a window, to look.
func (v *verifier) consume(end uint64, look func([]byte)) error {
	for v.done < end {
		if err := v.ctx.Err(); err != nil {
			return err
		}
		piece := v.f.Bytes()[v.done:min(end, v.done+window)]
		hashed := make(chan error, 1)
		go func() {
			hashed <- gguf.Guard(func() error {
				v.hash.Write(piece)
				return nil
			})
		}()
		var err error
		if look != nil {
			err = gguf.Guard(func() error {
				look(piece)
				return nil
			})
		}
		if err = cmp.Or(<-hashed, err); err != nil {
			return err
		}
		v.done += uint64(len(piece))
		v.progress(v.done, v.f.Size)
	}
	return nil
}

// Write writes the result for people, or as JSON.
func (v *Verification) Write(w io.Writer, asJSON bool) error {
	if asJSON {
		return writeJSON(w, v)
	}
	p := &printer{w: w}
	p.printf("%s: %s, %s\nsha256 %s\n", printable(v.File), byteCount(v.Bytes), plural(v.Tensors, "tensor"), v.SHA256)
	for _, f := range v.Findings {
		p.printf("%s: ", f.Severity)
		if f.Tensor != "" {
			p.printf("tensor %d %s: ", f.Index, printable(f.Tensor))
		}
		if f.Offset > 0 {
			p.printf("offset %d: ", f.Offset)
		}
		p.printf("%s\n", printable(f.Message))
	}
	if more := v.Errors + v.Warnings - len(v.Findings); more > 0 {
		p.printf("and %d more\n", more)
	}
	verdict := "the file is sound"
	if !v.OK() {
		verdict = "the file is damaged or not usable"
	}
	p.printf("%s, %s: %s\n", plural(v.Errors, "error"), plural(v.Warnings, "warning"), verdict)
	if p.err != nil {
		return fmt.Errorf("modelfile: write report: %w", p.err)
	}
	return nil
}
