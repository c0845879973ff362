package shm

import (
	"errors"
	"os"
	"testing"
)

func TestDetach(t *testing.T) {
	o, err := Create("detach", 4096, Options{})
	if err != nil {
		t.Fatal(err)
	}
	file, err := o.Detach()
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Close(); err != nil {
		t.Error(err)
	}
	if _, err := file.WriteAt([]byte{1}, 0); err != nil {
		t.Errorf("the descriptor was closed with the object: %v", err)
	}
	if _, err := o.Map(ReadOnly); !errors.Is(err, os.ErrClosed) {
		t.Errorf("mapping a detached object: %v, want ErrClosed", err)
	}
	if _, err := o.Detach(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("detaching twice: %v, want ErrClosed", err)
	}
	if err := file.Close(); err != nil {
		t.Error(err)
	}
}
