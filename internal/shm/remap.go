package shm

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Remap puts the memory of o, with protection prot, in the place of what m maps. The
// address stays, so slices of Bytes stay good; o must have the size of the mapping. With
// a descriptor of the same memory that changes only what the mapping may do, and through
// which descriptor: a mapping that is to let nobody write, so that Seal can succeed, has
// to come from a descriptor that is read only, which mprotect(2) cannot bring about.
//
// Others may read the bytes meanwhile; Populate and Unmap must not run.
func (m *Mapping) Remap(o *Object, prot Prot) error {
	data := m.Bytes()
	if len(data) != o.size {
		return fmt.Errorf("shm: remap %q: %d bytes are mapped, the object has %d", m.name, len(data), o.size)
	}
	err := o.control(func(fd int) error {
		_, err := unix.MmapPtr(fd, 0, unsafe.Pointer(unsafe.SliceData(data)), uintptr(len(data)), int(prot), unix.MAP_SHARED|unix.MAP_FIXED)
		return os.NewSyscallError("mmap", err)
	})
	if err != nil {
		return fmt.Errorf("shm: remap %q %s: %w", m.name, prot, err)
	}
	m.prot = prot
	return nil
}
