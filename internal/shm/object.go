package shm

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// HugePageSize is the size of the huge pages that objects are backed by, in bytes.
const HugePageSize = 2 << 20

// maxName is the longest name that memfd_create takes: NAME_MAX less "memfd:".
const maxName = 249

// ErrStillWritable says that somebody can still write to an object: a writable mapping
// or descriptor is left in some process, or the kernel or a device has pages pinned.
var ErrStillWritable = errors.New("the memory can still be written to")

// Options says how Create makes an object.
type Options struct {
	// HugePages asks for pages of the system's huge page pool. It is a wish: without
	// enough free ones, or with a size that is not a multiple of HugePageSize, the
	// object gets ordinary pages. Object.Huge tells.
	HugePages bool
}

// Object is an anonymous memory file. All methods are safe for concurrent use; after
// Close they return an error that wraps os.ErrClosed.
type Object struct {
	file   *os.File
	size   int
	huge   bool
	closed atomic.Bool
}

// Create makes an object of size bytes, all zero, whose size can never change: it is
// sealed against shrinking and growing, so that no other process can cut the memory off
// under a mapping. The name shows in /proc/PID/maps; it need not be unique.
func Create(name string, size int, o Options) (*Object, error) {
	if size <= 0 {
		return nil, fmt.Errorf("shm: create %q: size is %d bytes, must be positive", name, size)
	}
	if len(name) > maxName {
		return nil, fmt.Errorf("shm: create: name has %d bytes, at most %d are allowed", len(name), maxName)
	}
	if o.HugePages && size%HugePageSize == 0 && FreeHugePages() >= size/HugePageSize {
		obj, err := create(name, size, true)
		if err == nil {
			return obj, nil
		}
		// Another process was faster, or a limit of ours forbids them.
	}
	return create(name, size, false)
}

func create(name string, size int, huge bool) (*Object, error) {
	file, err := memfd(name, huge)
	if err != nil {
		return nil, fmt.Errorf("shm: create %q: %w", name, err)
	}
	o := &Object{file: file, size: size, huge: huge}
	err = o.control(func(fd int) error {
		if err := unix.Ftruncate(fd, int64(size)); err != nil {
			return fmt.Errorf("set size to %d bytes: %w", size, err)
		}
		if huge {
			// Only now does the kernel take the pages; a mapping of pages that it
			// does not have would die of SIGBUS.
			if err := fallocate(fd, size); err != nil {
				return fmt.Errorf("take %d huge pages: %w", size/HugePageSize, err)
			}
		}
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW); err != nil {
			return fmt.Errorf("seal the size: %w", err)
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("shm: create %q: %w", name, err), o.Close())
	}
	return o, nil
}

// memfd opens a new memory file. Not executable is what we want, but kernels before 6.3
// do not know how to say it.
func memfd(name string, huge bool) (*os.File, error) {
	flags := unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	if huge {
		flags |= unix.MFD_HUGETLB | unix.MFD_HUGE_2MB
	}
	fd, err := unix.MemfdCreate(name, flags|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) {
		fd, err = unix.MemfdCreate(name, flags)
	}
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

func fallocate(fd, size int) error {
	for {
		err := unix.Fallocate(fd, 0, 0, int64(size))
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// FromBytes makes an object that holds a copy of data and is sealed against every
// change, for handing constant data to child processes (see Dup).
func FromBytes(name string, data []byte) (*Object, error) {
	o, err := Create(name, len(data), Options{})
	if err != nil {
		return nil, err
	}
	if _, err := o.file.WriteAt(data, 0); err != nil {
		return nil, errors.Join(fmt.Errorf("shm: fill %q: %w", name, err), o.Close())
	}
	if err := o.Seal(SealWrite | SealSeal); err != nil {
		return nil, errors.Join(err, o.Close())
	}
	return o, nil
}

// FromFile makes an object of a descriptor that another process sent or that was
// inherited. It takes the file over, also when it returns an error. Only a memory file
// whose size is sealed is accepted: one that the sender could truncate would crash
// whoever reads its mapping.
func FromFile(f *os.File) (*Object, error) {
	o := &Object{file: f}
	err := o.control(func(fd int) error {
		seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
		if err != nil {
			return fmt.Errorf("not a memory file: %w", err)
		}
		if want := SealShrink | SealGrow; Seals(seals)&want != want {
			return fmt.Errorf("seals are %s, need %s: the size could change under a mapping", Seals(seals), want)
		}
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return err
		}
		if st.Size <= 0 || int64(int(st.Size)) != st.Size {
			return fmt.Errorf("size is %d bytes", st.Size)
		}
		o.size = int(st.Size)
		o.huge = st.Blksize == HugePageSize // hugetlbfs reports its page size
		return nil
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("shm: take over descriptor %q: %w", f.Name(), err), o.Close())
	}
	return o, nil
}

// Name is the name that the object was created with.
func (o *Object) Name() string { return o.file.Name() }

// Size is the object's size in bytes.
func (o *Object) Size() int { return o.size }

// Huge reports whether the object is backed by the system's huge page pool.
func (o *Object) Huge() bool { return o.huge }

// ReopenReadOnly opens the same memory through a new descriptor that cannot be used to
// write, nor to map writable. Whoever gets it can still open the memory for writing
// through /proc, unless the object is sealed or the receiver cannot reach /proc.
func (o *Object) ReopenReadOnly() (*Object, error) { return o.reopen(unix.O_RDONLY) }

// ReopenReadWrite opens the same memory through a new read-write descriptor. Unlike the
// descriptor that Create made, this one counts as a writer for Lease: it is the one to
// give away.
func (o *Object) ReopenReadWrite() (*Object, error) { return o.reopen(unix.O_RDWR) }

func (o *Object) reopen(mode int) (*Object, error) {
	var file *os.File
	err := o.control(func(fd int) error {
		// O_NONBLOCK: opening for writing would otherwise wait, up to
		// /proc/sys/fs/lease-break-time, for a lease to be given up.
		f, err := unix.Open("/proc/self/fd/"+strconv.Itoa(fd), mode|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		switch {
		case errors.Is(err, unix.EWOULDBLOCK):
			return fmt.Errorf("the memory is under a read lease: %w", err)
		case errors.Is(err, unix.ENOENT):
			return fmt.Errorf("is /proc mounted? %w", err)
		case err != nil:
			return err
		}
		// Back to blocking, so that os.File does not try to poll it.
		if err := unix.SetNonblock(f, false); err != nil {
			return errors.Join(err, unix.Close(f))
		}
		file = os.NewFile(uintptr(f), o.Name())
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("shm: reopen %q: %w", o.Name(), err)
	}
	return &Object{file: file, size: o.size, huge: o.huge}, nil
}

// Dup returns a duplicate of the descriptor, for exec.Cmd.ExtraFiles or SendFDs. The
// caller closes it.
func (o *Object) Dup() (*os.File, error) {
	var file *os.File
	err := o.control(func(fd int) error {
		d, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return err
		}
		file = os.NewFile(uintptr(d), o.Name())
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("shm: duplicate descriptor of %q: %w", o.Name(), err)
	}
	return file, nil
}

// Close closes the descriptor. Mappings stay valid. Closing twice is no error.
func (o *Object) Close() error {
	if o.closed.Swap(true) {
		return nil
	}
	if err := o.file.Close(); err != nil {
		return fmt.Errorf("shm: close %q: %w", o.Name(), err)
	}
	return nil
}

// control calls op with the descriptor, which cannot be closed, and its number not be
// taken by another file, before op returns.
func (o *Object) control(op func(fd int) error) error {
	if o.closed.Load() {
		return os.ErrClosed
	}
	rc, err := o.file.SyscallConn()
	if err != nil {
		return err
	}
	var opErr error
	if err := rc.Control(func(fd uintptr) { opErr = op(int(fd)) }); err != nil {
		return os.ErrClosed
	}
	return opErr
}
