package shm

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Prot says what a mapping may be used for.
type Prot int

// The protections of a mapping.
const (
	ReadOnly  Prot = unix.PROT_READ
	ReadWrite Prot = unix.PROT_READ | unix.PROT_WRITE
)

func (p Prot) String() string {
	switch p {
	case ReadOnly:
		return "read only"
	case ReadWrite:
		return "read-write"
	}
	return fmt.Sprintf("protection %#x", int(p))
}

// Mapping is an object's memory in this process's address space. Unmap must not be
// called while anybody uses the bytes; everything else is safe for concurrent use.
type Mapping struct {
	data     []byte
	prot     Prot
	name     string
	unmapped atomic.Bool
}

// Map maps the whole object, shared with everybody else who maps it. The bytes start at
// a multiple of HugePageSize if the object is at least that large, else of the page.
// Writing to a mapping that is read only is a fault.
func (o *Object) Map(prot Prot) (*Mapping, error) {
	var data []byte
	err := o.control(func(fd int) (err error) {
		data, err = mapAligned(fd, o.size, prot)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("shm: map %q %s: %w", o.Name(), prot, err)
	}
	return &Mapping{data: data, prot: prot, name: o.Name()}, nil
}

// mapAligned maps size bytes of fd at a 2 MiB boundary, which the kernel needs to back
// them by huge pages but does not choose by itself: it reserves an address range with
// room to spare, maps over its aligned part and gives the rest back.
func mapAligned(fd, size int, prot Prot) ([]byte, error) {
	if size < HugePageSize {
		p, err := unix.MmapPtr(fd, 0, nil, uintptr(size), int(prot), unix.MAP_SHARED)
		if err != nil {
			return nil, os.NewSyscallError("mmap", err)
		}
		return unsafe.Slice((*byte)(p), size), nil
	}
	page := os.Getpagesize()
	length := (size + page - 1) / page * page
	reserved := length + HugePageSize
	base, err := unix.MmapPtr(-1, 0, nil, uintptr(reserved), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, os.NewSyscallError("mmap (reserve)", err)
	}
	before := int(-uintptr(base) & (HugePageSize - 1))
	p, err := unix.MmapPtr(fd, 0, unsafe.Add(base, before), uintptr(size), int(prot), unix.MAP_SHARED|unix.MAP_FIXED)
	if err != nil {
		return nil, errors.Join(os.NewSyscallError("mmap", err), unix.MunmapPtr(base, uintptr(reserved)))
	}
	if before > 0 {
		err = unix.MunmapPtr(base, uintptr(before))
	}
	if after := HugePageSize - before; after > 0 {
		err = errors.Join(err, unix.MunmapPtr(unsafe.Add(p, length), uintptr(after)))
	}
	if err != nil { // cannot happen to a range that was just mapped
		return nil, errors.Join(os.NewSyscallError("munmap", err), unix.MunmapPtr(p, uintptr(size)))
	}
	return unsafe.Slice((*byte)(p), size), nil
}

// Bytes is the mapped memory; nil after Unmap.
func (m *Mapping) Bytes() []byte {
	if m.unmapped.Load() {
		return nil
	}
	return m.data
}

// Populate makes sure that the first n bytes are backed by pages and entered in this
// process's page table, so that using them does not fault. The contents do not change.
// For 512 MiB of new 4 KiB pages it takes about 0.15 s, a tenth of what touching them
// one by one costs.
func (m *Mapping) Populate(n int) error {
	data := m.Bytes()
	if n < 0 || n > len(data) {
		return fmt.Errorf("shm: populate %q: %d bytes asked for, %d mapped", m.name, n, len(data))
	}
	if n == 0 {
		return nil
	}
	advice := unix.MADV_POPULATE_WRITE
	if m.prot == ReadOnly {
		advice = unix.MADV_POPULATE_READ
	}
	err := madvise(data[:n], advice)
	if errors.Is(err, unix.EINVAL) { // kernels before 5.14
		touch(data[:n])
		return nil
	}
	if err != nil {
		return fmt.Errorf("shm: populate %d bytes of %q: %w", n, m.name, err)
	}
	return nil
}

// touch reads a byte of every page. In a shared mapping a read is enough to get a page.
func touch(data []byte) {
	var sum byte
	for i := 0; i < len(data); i += os.Getpagesize() {
		sum += data[i]
	}
	touched.Store(uint32(sum))
}

// touched keeps the compiler from dropping the reads.
var touched atomic.Uint32

// Collapse asks the kernel to move the mapped memory to huge pages now. It copies all of
// it, some 70 ms for 28 MiB, so it is for idle times, and for memory that lives on. The
// mapping may be in use meanwhile. An error only means that the pages stay small.
func (m *Mapping) Collapse() error {
	data := m.Bytes()
	n := len(data) / HugePageSize * HugePageSize
	if n == 0 {
		return fmt.Errorf("shm: collapse %q: %d bytes are less than a huge page", m.name, len(data))
	}
	if err := madvise(data[:n], unix.MADV_COLLAPSE); err != nil {
		return fmt.Errorf("shm: collapse %q: %w", m.name, err)
	}
	return nil
}

// madvise retries what the kernel asks to retry, a bounded number of times.
func madvise(b []byte, advice int) error {
	var err error
	for range 100 {
		err = unix.Madvise(b, advice)
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			break
		}
	}
	return os.NewSyscallError("madvise", err)
}

// Unmap takes the memory out of the address space. Slices of Bytes must not be used any
// more: touching them would crash the process. Unmapping twice is no error.
func (m *Mapping) Unmap() error {
	if m.unmapped.Swap(true) {
		return nil
	}
	if err := unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(m.data)), uintptr(len(m.data))); err != nil {
		return fmt.Errorf("shm: unmap %q: %w", m.name, err)
	}
	return nil
}
