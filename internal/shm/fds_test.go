package shm

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// socketPair returns two connected sockets, with a deadline so that no test hangs.
func socketPair(t testing.TB, kind int) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var conns [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "socket")
		c, err := net.FileConn(f)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		conns[i] = c.(*net.UnixConn)
		if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
	}
	return conns[0], conns[1]
}

// files returns n descriptors of objects of which the i-th has i+1 bytes.
func files(t testing.TB, n int) []*os.File {
	t.Helper()
	fs := make([]*os.File, n)
	for i := range fs {
		o, err := Create("f", i+1, Options{})
		if err != nil {
			t.Fatal(err)
		}
		fs[i] = o.file
		t.Cleanup(func() { o.Close() })
	}
	return fs
}

func TestSendFDs(t *testing.T) {
	for _, kind := range []int{unix.SOCK_STREAM, unix.SOCK_SEQPACKET} {
		for _, n := range []int{0, 1, 249, 250, 251, 600} {
			checkLeaks(t)
			a, b := socketPair(t, kind)
			fs := files(t, n)
			sent := make(chan error, 1)
			go func() { sent <- SendFDs(a, fs) }()
			got, err := RecvFDs(b, n)
			if err != nil {
				t.Fatal(err)
			}
			if err := <-sent; err != nil {
				t.Fatal(err)
			}
			if len(got) != n {
				t.Fatalf("received %d, want %d", len(got), n)
			}
			for i, f := range got {
				if flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
					t.Errorf("descriptor %d stays open on exec (%v)", i, err)
				}
				o, err := FromFile(f)
				if err != nil {
					t.Fatal(err)
				}
				if o.Size() != i+1 {
					t.Errorf("descriptor %d has %d bytes: out of order", i, o.Size())
				}
				closeAll(t, o)
			}
		}
	}
}

// Both sides get an error, and no descriptor is left, when they disagree on the number.
func TestSendFDsCountDiffers(t *testing.T) {
	for _, c := range []struct{ send, want int }{{3, 2}, {2, 3}, {300, 250}, {250, 300}} {
		checkLeaks(t)
		a, b := socketPair(t, unix.SOCK_STREAM)
		fs := files(t, c.send)
		sent := make(chan error, 1)
		go func() { sent <- SendFDs(a, fs) }()
		got, err := RecvFDs(b, c.want)
		if err == nil || !strings.Contains(err.Error(), "the sender announces") {
			t.Errorf("%+v: received %d, %v", c, len(got), err)
		}
		if err := <-sent; err == nil || !strings.Contains(err.Error(), "another number") {
			t.Errorf("%+v: sender got %v", c, err)
		}
	}
}

// Messages that no SendFDs sends are refused, and what they carry is closed.
func TestRecvFDsRefuses(t *testing.T) {
	three := files(t, 3)
	for _, c := range []struct {
		name  string
		words []int
		fds   int
		want  string
	}{
		{"magic", []int{1, 0, 3, 3}, 3, "starts with 0x00000001"},
		{"none", []int{fdMagic, 0, 3, 3}, 0, "announces 3 and carries 0"},
		{"fewer", []int{fdMagic, 0, 3, 3}, 2, "announces 3 and carries 2"},
		{"more", []int{fdMagic, 0, 2, 3}, 3, "announces 2 and carries 3"},
		{"empty batch", []int{fdMagic, 0, 0, 3}, 0, "announces 0 and carries 0"},
		{"wrong place", []int{fdMagic, 7, 3, 3}, 3, "sent 7 before, received were 0"},
		{"short", []int{fdMagic, 0}, 3, "EOF"},
		{"nothing", nil, 0, "EOF"},
	} {
		t.Run(c.name, func(t *testing.T) {
			checkLeaks(t)
			a, b := socketPair(t, unix.SOCK_STREAM)
			if c.words != nil {
				var oob []byte
				if c.fds > 0 {
					oob = unix.UnixRights(fdsOf(three[:c.fds])...)
				}
				if _, _, err := a.WriteMsgUnix(putFrame(c.words...), oob, nil); err != nil {
					t.Fatal(err)
				}
			}
			if err := a.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			got, err := RecvFDs(b, 3)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("received %d, %v; want %q", len(got), err, c.want)
			}
		})
	}
}

func fdsOf(files []*os.File) (fds []int) {
	for _, f := range files {
		fds = append(fds, int(f.Fd()))
	}
	return fds
}

// A receiver that answers nonsense, or not at all, is an error of the sender.
func TestSendFDsAnswers(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer []int
		want   string
	}{
		{"magic", []int{2, 0, 1, 0}, "answer starts with 0x00000002"},
		{"count", []int{fdAckMagic, 0, 9, 0}, "confirms 9 after 0, sent were 1 after 0"},
		{"place", []int{fdAckMagic, 5, 1, 0}, "confirms 1 after 5"},
		{"truncated", []int{fdAckMagic, 0, 0, ackTruncated}, "could not take all"},
		{"unknown", []int{fdAckMagic, 0, 0, 77}, "status 77"},
		{"short", []int{fdAckMagic}, "EOF"},
	} {
		t.Run(c.name, func(t *testing.T) {
			checkLeaks(t)
			a, b := socketPair(t, unix.SOCK_STREAM)
			if _, err := b.Write(putFrame(c.answer...)); err != nil {
				t.Fatal(err)
			}
			if err := b.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if err := SendFDs(a, files(t, 1)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
	t.Run("gone", func(t *testing.T) {
		checkLeaks(t)
		a, b := socketPair(t, unix.SOCK_STREAM)
		b.Close()
		if err := SendFDs(a, files(t, 1)); !errors.Is(err, unix.EPIPE) {
			t.Errorf("%v, want EPIPE", err)
		}
	})
}

func TestRecvFDsDeadline(t *testing.T) {
	checkLeaks(t)
	_, b := socketPair(t, unix.SOCK_STREAM)
	if err := b.SetDeadline(time.Now().Add(time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := RecvFDs(b, 1); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v, want a deadline", err)
	}
}

// A receiver whose descriptor limit is too low loses descriptors on the way: only
// MSG_CTRUNC tells. It must say so, keep none, and let the sender know.
func TestRecvFDsTruncated(t *testing.T) {
	checkLeaks(t)
	a, b := socketPair(t, unix.SOCK_STREAM)
	f, err := b.File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	type result struct {
		out []byte
		err error
	}
	done := make(chan result, 1)
	cmd := child("recv-limited", f)
	go func() {
		out, err := cmd.CombinedOutput()
		done <- result{out, err}
	}()
	if err := SendFDs(a, files(t, 20)); err == nil || !strings.Contains(err.Error(), "descriptor limit") {
		t.Errorf("sender got %v", err)
	}
	if r := <-done; r.err != nil || string(r.out) != "ok" {
		t.Errorf("receiver: %v, %s", r.err, r.out)
	}
}

func TestCheckFileLimit(t *testing.T) {
	checkLeaks(t)
	if err := CheckFileLimit(1); err != nil {
		t.Error(err)
	}
	out, err := child("limit").CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) || err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, want := range []string{"but the limit is 64", "raise it to at least 65"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("message %q lacks %q", out, want)
		}
	}
}

// FuzzRecvFDs: whatever a peer sends, the answer is an error or the descriptors, and
// nothing leaks.
func FuzzRecvFDs(f *testing.F) {
	f.Add(putFrame(fdMagic, 0, 1, 1), uint8(1))
	f.Add(putFrame(fdMagic, 0, 2, 2), uint8(2))
	f.Add(putFrame(fdMagic, 0, 300, 300), uint8(3))
	f.Add([]byte("x"), uint8(0))
	o, err := Create("fuzz", 1, Options{})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte, n uint8) {
		checkLeaks(t)
		a, b := socketPair(t, unix.SOCK_STREAM)
		var oob []byte
		if n %= 8; n > 0 {
			fds := make([]int, n)
			for i := range fds {
				fds[i] = int(o.file.Fd())
			}
			oob = unix.UnixRights(fds...)
		}
		if len(data) > 0 {
			if _, _, err := a.WriteMsgUnix(data[:min(len(data), 4096)], oob, nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := a.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		want := max(int(n), 1)
		got, err := RecvFDs(b, want)
		if err == nil && len(got) != want {
			t.Errorf("%d descriptors, want %d", len(got), want)
		}
		for _, f := range got {
			f.Close()
		}
	})
}
