// Package load opens a model: the file, its weights, its vocabulary and its chat
// template, checked against each other. The built-in model goes through a sealed
// memfd, so that it is mapped and handed to other processes like any file.
package load

import (
	"fmt"
	"path/filepath"
	"strings"

	"baton/internal/demo"
	"baton/internal/gguf"
	"baton/internal/kernel"
	"baton/internal/model"
	"baton/internal/shm"
	"baton/internal/vocab"
)

// Bundle is an open model with all that is needed to serve it.
type Bundle struct {
	File     *gguf.File
	Model    *model.Model
	Vocab    *vocab.Vocab
	Template *Template
	Name     string // general.name, or the file's name
	Path     string // empty for the built-in model
	// Notes are sentences for the log: kernels that were found wrong and are off, and why
	// chats will be refused.
	Notes []string

	object *shm.Object // of the built-in model
}

// Open opens the model file at path; the empty path means the built-in model.
func Open(path string) (*Bundle, error) {
	b := &Bundle{Path: path}
	if err := b.open(); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

func (b *Bundle) open() error {
	if err := b.openFile(); err != nil {
		return err
	}
	var err error
	if b.Model, err = model.Load(b.File); err != nil {
		return b.wrap(err)
	}
	if b.Vocab, err = vocab.New(b.File); err != nil {
		return b.wrap(err)
	}
	if b.Vocab.Size() != b.Model.Vocab {
		return b.wrap(fmt.Errorf("model: the file has %d tokens and %d rows of embeddings", b.Vocab.Size(), b.Model.Vocab))
	}
	if b.Template, err = newTemplate(b.File, b.Vocab); err != nil {
		return b.wrap(err)
	}
	b.Notes = kernel.SelfTest()
	if err := b.Template.Err(); err != nil {
		b.Notes = append(b.Notes, err.Error())
	}
	b.Name = b.Model.Name
	if b.Name == "" {
		b.Name = strings.TrimSuffix(filepath.Base(path(b.Path)), ".gguf")
	}
	return nil
}

func (b *Bundle) openFile() (err error) {
	if b.Path != "" {
		b.File, err = gguf.Open(b.Path)
		return err
	}
	if b.object, err = shm.FromBytes("baton-demo-model", demo.GGUF()); err != nil {
		return err
	}
	fd, err := b.object.Dup()
	if err != nil {
		return err
	}
	defer fd.Close() // the mapping keeps the memory
	b.File, err = gguf.OpenFd(int(fd.Fd()), "built-in model")
	return err
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
func (b *Bundle) Close() error {
	var err error
	if b.File != nil {
		err = b.File.Close()
	}
	if b.object != nil {
		b.object.Close()
	}
	return err
}
