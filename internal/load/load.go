// Package load opens a model: the file, its weights, its vocabulary and its chat
// template, checked against each other.
package load

import (
	"fmt"
	"path/filepath"
	"strings"

	"baton/internal/gguf"
	"baton/internal/kernel"
	"baton/internal/model"
	"baton/internal/vocab"
)

// Bundle is an open model with all that is needed to serve it.
type Bundle struct {
	File     *gguf.File
	Model    *model.Model // nil after OpenText
	Vocab    *vocab.Vocab
	Template *Template
	Name     string // general.name, or the file's name
	Path     string // empty for the built-in model
	// Notes are sentences for the log: kernels that were found wrong and are off, and why
	// chats will be refused.
	Notes []string
}

// Open opens the model file at path; the empty path means the built-in model.
func Open(path string) (*Bundle, error) {
	s, err := OpenSource(path)
	if err != nil {
		return nil, err
	}
	defer s.Close() // what is mapped stays
	return s.Open()
}

// Open opens the model.
func (s *Source) Open() (*Bundle, error) { return s.open((*Bundle).openAll) }

// OpenText opens what deals with text, the vocabulary and the chat template, and leaves
// the weights alone.
func (s *Source) OpenText() (*Bundle, error) { return s.open((*Bundle).openText) }

func (s *Source) open(open func(*Bundle) error) (*Bundle, error) {
	f, err := gguf.OpenFd(int(s.file.Fd()), path(s.path))
	if err != nil {
		return nil, err
	}
	b := &Bundle{File: f, Path: s.path}
	if err := open(b); err != nil {
		b.Close()
		return nil, b.wrap(err)
	}
	return b, nil
}

func (b *Bundle) openAll() (err error) {
	if b.Model, err = model.Load(b.File); err != nil {
		return err
	}
	if err := b.openText(); err != nil {
		return err
	}
	if b.Vocab.Size() != b.Model.Vocab {
		return fmt.Errorf("model: the file has %d tokens and %d rows of embeddings", b.Vocab.Size(), b.Model.Vocab)
	}
	b.Notes = append(kernel.SelfTest(), b.Notes...)
	return nil
}

func (b *Bundle) openText() (err error) {
	if b.Vocab, err = vocab.New(b.File); err != nil {
		return err
	}
	if b.Template, err = newTemplate(b.File, b.Vocab); err != nil {
		return err
	}
	if err := b.Template.Err(); err != nil {
		b.Notes = append(b.Notes, err.Error())
	}
	if b.Name, err = b.File.StringOr("general.name", ""); err != nil {
		return err
	}
	if b.Name == "" {
		b.Name = strings.TrimSuffix(filepath.Base(path(b.Path)), ".gguf")
	}
	return nil
}

func (b *Bundle) wrap(err error) error {
	return fmt.Errorf("%s: %w", path(b.Path), err)
}

func path(p string) string {
	if p == "" {
		return "built-in model"
	}
	return p
}

// Close unmaps the file. Nothing of the bundle may be used afterwards.
func (b *Bundle) Close() error { return b.File.Close() }
