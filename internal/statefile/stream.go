package statefile

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// A batch is large enough that the calls do not count, and small enough that hashing one
// while the next is moved keeps both busy.
const (
	batchBytes = 8 << 20
	batchParts = 512 // the kernel takes 1024
)

// stream moves memory to or from a file, in order and in large pieces, and hashes it
// beside that. Memory that was added must not change before finish or sync.
type stream struct {
	ctx    context.Context
	file   *os.File
	move   func(fd int, parts [][]byte, offset int64) (int, error)
	offset int64 // in the file, of the batch
	batch  [][]byte
	bytes  int // of the batch
	sum    *digester
}

func newWriter(ctx context.Context, f *os.File) *stream {
	return &stream{ctx: ctx, file: f, move: unix.Pwritev, sum: newDigester()}
}

func newReader(ctx context.Context, f *os.File) *stream {
	return &stream{ctx: ctx, file: f, move: unix.Preadv, sum: newDigester()}
}

// add moves the next bytes of the file, now or later.
func (s *stream) add(p []byte) error {
	for len(p) > 0 {
		n := min(len(p), batchBytes-s.bytes)
		s.batch = append(s.batch, p[:n])
		s.bytes += n
		p = p[n:]
		if s.bytes == batchBytes || len(s.batch) == batchParts {
			if err := s.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// skip is for bytes at the start of the file that were moved already.
func (s *stream) skip(p []byte) {
	s.sum.add([][]byte{p})
	s.offset += int64(len(p))
}

// flush moves what was added.
func (s *stream) flush() error {
	if s.bytes == 0 {
		return nil
	}
	if err := s.ctx.Err(); err != nil {
		return err
	}
	if err := s.moveAll(s.batch); err != nil {
		return err
	}
	s.sum.add(s.batch)
	s.offset += int64(s.bytes)
	s.batch, s.bytes = nil, 0
	return nil
}

// moveAll moves all of parts, however many calls the kernel wants for it.
func (s *stream) moveAll(parts [][]byte) error {
	rc, err := s.file.SyscallConn()
	if err != nil {
		return err
	}
	// The calls take the list apart; the digester needs it whole.
	parts = append([][]byte(nil), parts...)
	offset := s.offset
	var moveErr error
	err = rc.Control(func(fd uintptr) {
		for len(parts) > 0 {
			n, err := s.move(int(fd), parts, offset)
			switch {
			case errors.Is(err, unix.EINTR):
				continue
			case err != nil:
				moveErr = err
				return
			case n == 0:
				moveErr = io.ErrUnexpectedEOF
				return
			}
			offset += int64(n)
			parts = advance(parts, n)
		}
	})
	return errors.Join(err, moveErr)
}

// advance takes the first n bytes off parts.
func advance(parts [][]byte, n int) [][]byte {
	for len(parts) > 0 && n >= len(parts[0]) {
		n -= len(parts[0])
		parts = parts[1:]
	}
	if n > 0 {
		parts[0] = parts[0][n:]
	}
	return parts
}

// sync moves and hashes all that was added; its memory may then change.
func (s *stream) sync() error {
	if err := s.flush(); err != nil {
		return err
	}
	s.sum.wait()
	return nil
}

// finish moves the rest and returns the hash of everything.
func (s *stream) finish() ([sha256.Size]byte, error) {
	if err := s.flush(); err != nil {
		return [sha256.Size]byte{}, err
	}
	return s.sum.sum(), nil
}

// close ends the hashing; it has to be called.
func (s *stream) close() { s.sum.close() }

// digester hashes on a goroutine of its own.
type digester struct {
	hash hash.Hash
	work chan job
	done chan struct{}
}

// job is something to hash, or, with a channel, to say that all before it is hashed.
type job struct {
	parts  [][]byte
	marker chan struct{}
}

func newDigester() *digester {
	d := &digester{hash: sha256.New(), work: make(chan job, 1), done: make(chan struct{})}
	go d.run()
	return d
}

func (d *digester) run() {
	defer close(d.done)
	for j := range d.work {
		for _, p := range j.parts {
			d.hash.Write(p)
		}
		if j.marker != nil {
			close(j.marker)
		}
	}
}

func (d *digester) add(parts [][]byte) { d.work <- job{parts: parts} }

// wait returns when everything was hashed.
func (d *digester) wait() {
	marker := make(chan struct{})
	d.work <- job{marker: marker}
	<-marker
}

func (d *digester) sum() (s [sha256.Size]byte) {
	d.wait()
	d.hash.Sum(s[:0])
	return s
}

func (d *digester) close() {
	close(d.work)
	<-d.done
}

// allocate takes the room for a file of n bytes, so that a full disk shows before
// anything is written. Not every file system can.
func allocate(f *os.File, n int64) error {
	rc, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var allocErr error
	err = rc.Control(func(fd uintptr) {
		for {
			allocErr = unix.Fallocate(int(fd), 0, 0, n)
			if !errors.Is(allocErr, unix.EINTR) {
				return
			}
		}
	})
	if errors.Is(allocErr, unix.EOPNOTSUPP) || errors.Is(allocErr, unix.ENOSYS) {
		allocErr = nil
	}
	if allocErr != nil {
		allocErr = fmt.Errorf("make room for %d bytes: %w", n, allocErr)
	}
	return errors.Join(err, allocErr)
}
