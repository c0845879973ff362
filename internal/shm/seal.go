package shm

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// Seals is a set of promises that the kernel keeps about a memory file; a seal cannot
// be taken off again (fcntl(2), F_ADD_SEALS).
type Seals int

// The seals.
const (
	SealSeal   Seals = unix.F_SEAL_SEAL   // no seal can be added any more
	SealShrink Seals = unix.F_SEAL_SHRINK // the file cannot become smaller
	SealGrow   Seals = unix.F_SEAL_GROW   // the file cannot become larger
	SealWrite  Seals = unix.F_SEAL_WRITE  // the contents cannot change
	SealExec   Seals = unix.F_SEAL_EXEC   // the file cannot be made executable
)

var sealNames = []struct {
	seal Seals
	name string
}{{SealSeal, "seal"}, {SealShrink, "shrink"}, {SealGrow, "grow"}, {SealWrite, "write"}, {SealExec, "exec"}}

func (s Seals) String() string {
	var names []string
	for _, n := range sealNames {
		if s&n.seal != 0 {
			names = append(names, n.name)
			s &^= n.seal
		}
	}
	if s != 0 {
		names = append(names, fmt.Sprintf("%#x", int(s)))
	}
	if names == nil {
		return "none"
	}
	return strings.Join(names, "|")
}

// Seal adds seals. SealWrite fails with an error that wraps ErrStillWritable as long as
// any process has the object mapped writable or a device holds its pages; success is
// for ever, also for this process.
func (o *Object) Seal(s Seals) error {
	err := o.control(func(fd int) error {
		_, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, int(s))
		return err
	})
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("shm: seal %q (%s): %w: %w", o.Name(), s, ErrStillWritable, err)
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("shm: seal %q (%s): the descriptor is read only or sealing is over: %w", o.Name(), s, err)
	}
	return fmt.Errorf("shm: seal %q (%s): %w", o.Name(), s, err)
}

// Seals returns the seals that are set.
func (o *Object) Seals() (Seals, error) {
	var s int
	err := o.control(func(fd int) (err error) {
		s, err = unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("shm: read seals of %q: %w", o.Name(), err)
	}
	return Seals(s), nil
}

// Lease takes a read lease (fcntl(2), F_SETLEASE). The kernel grants it only if no
// descriptor that was opened for writing is left, in any process: neither open, nor
// held by a mapping. Otherwise the error wraps ErrStillWritable. While the lease is
// held, opening the memory for writing waits, or fails when it may not wait.
//
// The object must come from ReopenReadOnly. The descriptor that Create made does not
// count as opened for writing, nor do mappings made through it, so it must never be
// given away when a lease is to prove something. Nor does the lease see pages that
// io_uring or vmsplice hold.
func (o *Object) Lease() error {
	err := o.control(func(fd int) error {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
		if err != nil {
			return err
		}
		if flags&unix.O_ACCMODE != unix.O_RDONLY {
			return errors.New("the descriptor is not read only")
		}
		_, err = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_RDLCK)
		return err
	})
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EAGAIN):
		return fmt.Errorf("shm: lease %q: %w: %w", o.Name(), ErrStillWritable, err)
	}
	return fmt.Errorf("shm: lease %q: %w", o.Name(), err)
}

// Leased reports whether the object's read lease is in force: taken, and not being
// broken by somebody who opens the memory for writing.
func (o *Object) Leased() (bool, error) {
	var lease int
	err := o.control(func(fd int) (err error) {
		lease, err = unix.FcntlInt(uintptr(fd), unix.F_GETLEASE, 0)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("shm: read lease of %q: %w", o.Name(), err)
	}
	return lease == unix.F_RDLCK, nil
}

// Unlease gives the lease up; closing the object does too.
func (o *Object) Unlease() error {
	err := o.control(func(fd int) error {
		_, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_UNLCK)
		return err
	})
	if err != nil {
		return fmt.Errorf("shm: give up lease of %q: %w", o.Name(), err)
	}
	return nil
}
