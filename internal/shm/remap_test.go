package shm

import (
	"errors"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

func TestRemap(t *testing.T) {
	for _, size := range []int{4096, 4 << 20} {
		o, err := Create("remap", size, Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer o.Close()
		m, err := o.Map(ReadWrite)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Unmap()
		data := m.Bytes()
		data[0], data[size-1] = 7, 9
		ro, err := o.ReopenReadOnly()
		if err != nil {
			t.Fatal(err)
		}
		defer ro.Close()

		if err := o.Seal(SealWrite); !errors.Is(err, ErrStillWritable) {
			t.Errorf("%d bytes: seal while mapped read-write: %v, want ErrStillWritable", size, err)
		}
		if err := m.Remap(ro, ReadOnly); err != nil {
			t.Fatal(err)
		}
		if unsafe.SliceData(m.Bytes()) != unsafe.SliceData(data) || data[0] != 7 || data[size-1] != 9 {
			t.Errorf("%d bytes: the address or the contents changed", size)
		}
		if err := m.Populate(size); err != nil {
			t.Errorf("%d bytes: populate read only: %v", size, err)
		}
		// The kernel itself says whether the mapping can be made writable again.
		if err := unix.Mprotect(data, unix.PROT_READ|unix.PROT_WRITE); !errors.Is(err, unix.EACCES) {
			t.Errorf("%d bytes: mprotect to read-write: %v, want EACCES", size, err)
		}
		if err := m.Remap(ro, ReadWrite); !errors.Is(err, unix.EACCES) {
			t.Errorf("%d bytes: read-write through a read only descriptor: %v, want EACCES", size, err)
		}

		if err := m.Remap(o, ReadWrite); err != nil {
			t.Fatal(err)
		}
		data[1] = 8
		if err := m.Remap(ro, ReadOnly); err != nil {
			t.Fatal(err)
		}
		if err := o.Seal(SealWrite | SealSeal); err != nil {
			t.Errorf("%d bytes: seal while mapped read only: %v", size, err)
		}
		if data[1] != 8 {
			t.Errorf("%d bytes: what was written in between is gone", size)
		}
	}
}

func TestRemapRefuses(t *testing.T) {
	a, err := Create("a", 4096, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b, err := Create("b", 8192, Options{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := a.Map(ReadOnly)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Remap(b, ReadOnly); err == nil {
		t.Error("an object of another size is accepted")
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := m.Unmap(); err != nil {
		t.Fatal(err)
	}
	if err := m.Remap(a, ReadOnly); err == nil {
		t.Error("remapping after Unmap is accepted")
	}
}
