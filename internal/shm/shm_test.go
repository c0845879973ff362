package shm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// checkLeaks fails the test if it ends with another number of open descriptors or of
// memory file mappings than it began with.
func checkLeaks(t *testing.T) {
	t.Helper()
	maps := mapCount(t) // first: the runtime opens descriptors of its own for the first file
	fds := openCount(t)
	t.Cleanup(func() {
		if n := openCount(t); n != fds {
			t.Errorf("%d descriptors open at the end, %d at the start", n, fds)
		}
		if n := mapCount(t); n != maps {
			t.Errorf("%d memory files mapped at the end, %d at the start", n, maps)
		}
	})
}

func openCount(t *testing.T) int {
	t.Helper()
	n, err := openFiles()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func mapCount(t *testing.T) int {
	t.Helper()
	data, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Count(data, []byte("/memfd:"))
}

func mustCreate(t *testing.T, size int) *Object {
	t.Helper()
	o, err := Create("test", size, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeAll(t, o) })
	return o
}

func mustMap(t *testing.T, o *Object, p Prot) *Mapping {
	t.Helper()
	m, err := o.Map(p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Unmap(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func closeAll(t *testing.T, cs ...io.Closer) {
	t.Helper()
	for _, c := range cs {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestCreateRefuses(t *testing.T) {
	checkLeaks(t)
	for _, c := range []struct {
		name string
		size int
		want string
	}{
		{"zero", 0, "size is 0 bytes"},
		{"negative", -1, "size is -1 bytes"},
		{strings.Repeat("x", 250), 1, "250 bytes, at most 249"},
		{"a\x00b", 1, "invalid argument"},
	} {
		if o, err := Create(c.name, c.size, Options{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Create(%.10q, %d) = %v, %v; want error with %q", c.name, c.size, o, err, c.want)
		}
	}
	if o, err := Create(strings.Repeat("x", 249), 1, Options{}); err != nil {
		t.Errorf("longest name: %v", err)
	} else {
		closeAll(t, o)
	}
}

func TestSizeIsSealed(t *testing.T) {
	checkLeaks(t)
	o := mustCreate(t, 8192)
	for _, size := range []int64{0, 4096, 1 << 20} {
		if err := o.file.Truncate(size); !errors.Is(err, unix.EPERM) {
			t.Errorf("truncate to %d: %v, want EPERM", size, err)
		}
	}
	seals, err := o.Seals()
	if err != nil {
		t.Fatal(err)
	}
	if seals&(SealShrink|SealGrow) != SealShrink|SealGrow || seals&(SealWrite|SealSeal) != 0 {
		t.Errorf("seals are %s", seals)
	}
}

func TestMapSharesMemory(t *testing.T) {
	for _, size := range []int{1, 4096, 5000, HugePageSize, HugePageSize + 4096, HugePageSize + 1, 7 * HugePageSize} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			checkLeaks(t)
			o := mustCreate(t, size)
			rw, ro := mustMap(t, o, ReadWrite), mustMap(t, o, ReadOnly)
			a, b := rw.Bytes(), ro.Bytes()
			if len(a) != size || len(b) != size {
				t.Fatalf("mapped %d and %d bytes, want %d", len(a), len(b), size)
			}
			if size >= HugePageSize {
				for _, m := range []*Mapping{rw, ro} {
					if addr := addrOf(m); addr%HugePageSize != 0 {
						t.Errorf("mapped at %#x, which is not a multiple of 2 MiB", addr)
					}
				}
			}
			for _, m := range []*Mapping{rw, ro} {
				if err := m.Populate(size); err != nil {
					t.Error(err)
				}
			}
			a[0], a[size-1] = 1, 2
			if b[size-1] != 2 || (size > 1 && b[0] != 1) {
				t.Errorf("written 1 and 2, the other mapping has %d and %d", b[0], b[size-1])
			}
		})
	}
}

func TestMappingOutlivesObject(t *testing.T) {
	checkLeaks(t)
	o := mustCreate(t, 4096)
	m := mustMap(t, o, ReadWrite)
	closeAll(t, o, o) // twice is no error
	m.Bytes()[4095] = 7
	if m.Bytes()[4095] != 7 {
		t.Error("the mapping lost a byte")
	}
	for range 2 {
		if err := m.Unmap(); err != nil {
			t.Error(err)
		}
	}
	if m.Bytes() != nil {
		t.Error("bytes after Unmap")
	}
	if err := m.Populate(1); err == nil {
		t.Error("populated after Unmap")
	}
	if err := m.Collapse(); err == nil {
		t.Error("collapsed after Unmap")
	}
}

func TestClosedObject(t *testing.T) {
	checkLeaks(t)
	o := mustCreate(t, 4096)
	closeAll(t, o)
	calls := map[string]func() error{
		"Map":             func() error { _, err := o.Map(ReadOnly); return err },
		"ReopenReadOnly":  func() error { _, err := o.ReopenReadOnly(); return err },
		"ReopenReadWrite": func() error { _, err := o.ReopenReadWrite(); return err },
		"Dup":             func() error { _, err := o.Dup(); return err },
		"Seal":            func() error { return o.Seal(SealWrite) },
		"Seals":           func() error { _, err := o.Seals(); return err },
		"Lease":           o.Lease,
		"Leased":          func() error { _, err := o.Leased(); return err },
		"Unlease":         o.Unlease,
	}
	for name, call := range calls {
		if err := call(); !errors.Is(err, os.ErrClosed) || !strings.HasPrefix(err.Error(), "shm: ") {
			t.Errorf("%s after Close: %v, want os.ErrClosed", name, err)
		}
	}
}

func TestPopulate(t *testing.T) {
	checkLeaks(t)
	o := mustCreate(t, 4*HugePageSize)
	m := mustMap(t, o, ReadWrite)
	m.Bytes()[5] = 5
	resident := func() int {
		var st unix.Stat_t
		if err := o.control(func(fd int) error { return unix.Fstat(fd, &st) }); err != nil {
			t.Fatal(err)
		}
		return int(st.Blocks) * 512
	}
	if err := m.Populate(HugePageSize); err != nil {
		t.Fatal(err)
	}
	if n := resident(); n < HugePageSize {
		t.Errorf("%d bytes resident after populating 2 MiB", n)
	}
	touch(m.Bytes())
	if n := resident(); n < 4*HugePageSize {
		t.Errorf("%d bytes resident after touching 8 MiB", n)
	}
	if m.Bytes()[5] != 5 || m.Bytes()[6] != 0 {
		t.Error("populating changed the contents")
	}
	for _, n := range []int{-1, 4*HugePageSize + 1} {
		if err := m.Populate(n); err == nil {
			t.Errorf("populated %d of 8 MiB", n)
		}
	}
	if err := m.Populate(0); err != nil {
		t.Error(err)
	}
}

func TestReopen(t *testing.T) {
	checkLeaks(t)
	o := mustCreate(t, 4096)
	ro, err := o.ReopenReadOnly()
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(t, ro)
	if ro.Size() != 4096 || ro.Name() != "test" {
		t.Errorf("reopened %q of %d bytes", ro.Name(), ro.Size())
	}
	if _, err := ro.Map(ReadWrite); !errors.Is(err, unix.EACCES) {
		t.Errorf("map read-write of a read-only descriptor: %v, want EACCES", err)
	}
	if _, err := ro.file.WriteAt([]byte{1}, 0); err == nil {
		t.Error("wrote through a read-only descriptor")
	}
	if err := ro.Seal(SealWrite); !errors.Is(err, unix.EPERM) {
		t.Errorf("seal through a read-only descriptor: %v, want EPERM", err)
	}
	rw, err := o.ReopenReadWrite()
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(t, rw)
	mustMap(t, rw, ReadWrite).Bytes()[9] = 9
	if b := mustMap(t, ro, ReadOnly).Bytes()[9]; b != 9 {
		t.Errorf("read %d, want 9", b)
	}
}

func TestSealWrite(t *testing.T) {
	checkLeaks(t)
	o := mustCreate(t, 4096)
	m := mustMap(t, o, ReadWrite)
	m.Bytes()[0] = 3
	err := o.Seal(SealWrite)
	if !errors.Is(err, ErrStillWritable) || !errors.Is(err, unix.EBUSY) {
		t.Fatalf("seal while mapped writable: %v, want ErrStillWritable", err)
	}
	if err := m.Unmap(); err != nil {
		t.Fatal(err)
	}
	if err := o.Seal(SealWrite | SealSeal); err != nil {
		t.Fatal(err)
	}
	if _, err := o.Map(ReadWrite); !errors.Is(err, unix.EPERM) {
		t.Errorf("map read-write of sealed memory: %v, want EPERM", err)
	}
	if b := mustMap(t, o, ReadOnly).Bytes()[0]; b != 3 {
		t.Errorf("read %d, want 3", b)
	}
	if err := o.Seal(SealExec); !errors.Is(err, unix.EPERM) {
		t.Errorf("seal after the last seal: %v, want EPERM", err)
	}
}

func TestSealsString(t *testing.T) {
	for s, want := range map[Seals]string{
		0:                        "none",
		SealShrink | SealGrow:    "shrink|grow",
		SealSeal | Seals(0x4000): "seal|0x4000",
	} {
		if got := s.String(); got != want {
			t.Errorf("%#x: %q, want %q", int(s), got, want)
		}
	}
}

func TestLease(t *testing.T) {
	checkLeaks(t)
	o := mustCreate(t, 4096)
	if err := o.Lease(); err == nil || !strings.Contains(err.Error(), "not read only") {
		t.Errorf("lease on the descriptor of Create: %v", err)
	}
	ro, err := o.ReopenReadOnly()
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(t, ro)
	rw, err := o.ReopenReadWrite()
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(t, rw)
	if err := ro.Lease(); !errors.Is(err, ErrStillWritable) {
		t.Fatalf("lease while a writer is open: %v, want ErrStillWritable", err)
	}
	m := mustMap(t, rw, ReadWrite)
	closeAll(t, rw)
	if err := ro.Lease(); !errors.Is(err, ErrStillWritable) {
		t.Fatalf("lease while a writer's mapping is left: %v, want ErrStillWritable", err)
	}
	if err := m.Unmap(); err != nil {
		t.Fatal(err)
	}
	if err := ro.Lease(); err != nil {
		t.Fatalf("lease with no writer left: %v", err)
	}
	if ok, err := ro.Leased(); !ok || err != nil {
		t.Errorf("Leased() = %v, %v", ok, err)
	}
	if _, err := o.ReopenReadWrite(); !errors.Is(err, unix.EWOULDBLOCK) {
		t.Errorf("reopen for writing under a lease: %v, want EWOULDBLOCK", err)
	}
	if ok, err := ro.Leased(); ok || err != nil {
		t.Errorf("after somebody tried to open it for writing: Leased() = %v, %v", ok, err)
	}
	if err := ro.Unlease(); err != nil {
		t.Error(err)
	}
	w, err := o.ReopenReadWrite()
	if err != nil {
		t.Fatalf("reopen for writing after the lease: %v", err)
	}
	closeAll(t, w)
}

// A writable mapping that only a forked child still has must keep the lease away.
func TestLeaseSeesChild(t *testing.T) {
	checkLeaks(t)
	o := mustCreate(t, 4096)
	ro, err := o.ReopenReadOnly()
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(t, ro)
	rw, err := o.ReopenReadWrite()
	if err != nil {
		t.Fatal(err)
	}
	cmd := child("hold-mapping", rw.file)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	closeAll(t, rw)
	if _, err := io.ReadFull(out, make([]byte, 2)); err != nil { // "ok"
		t.Fatal(err)
	}
	if err := ro.Lease(); !errors.Is(err, ErrStillWritable) {
		t.Errorf("lease while a child has a mapping: %v, want ErrStillWritable", err)
	}
	closeAll(t, in)
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := ro.Lease(); err != nil {
		t.Errorf("lease after the child's end: %v", err)
	}
}

func TestFromBytesAndInherit(t *testing.T) {
	checkLeaks(t)
	data := bytes.Repeat([]byte("weights "), 1<<16)
	o, err := FromBytes("model", data)
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(t, o)
	if !bytes.Equal(mustMap(t, o, ReadOnly).Bytes(), data) {
		t.Error("the object holds other bytes")
	}
	if seals, err := o.Seals(); err != nil || seals&(SealWrite|SealSeal) != SealWrite|SealSeal {
		t.Errorf("seals are %s, %v", seals, err)
	}
	f, err := o.Dup()
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(t, f)
	out, err := child("sum", f).CombinedOutput()
	if want := fmt.Sprintf("%d %d", len(data), sum(data)); err != nil || string(out) != want {
		t.Errorf("the child says %q, %v; want %q", out, err, want)
	}
	if _, err := FromBytes("empty", nil); err == nil {
		t.Error("an object of no bytes")
	}
}

func TestFromFileRefuses(t *testing.T) {
	checkLeaks(t)
	tmp, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	open, err := unix.MemfdCreate("open", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	empty, err := unix.MemfdCreate("empty", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(uintptr(empty), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		file *os.File
		want string
	}{
		{tmp, "seals are"}, // on a tmpfs a plain file has the seal "seal"
		{os.NewFile(uintptr(open), "open"), "seals are none, need shrink|grow"},
		{os.NewFile(uintptr(empty), "empty"), "size is 0 bytes"},
	} {
		_, err := FromFile(c.file)
		if err == nil || !strings.Contains(err.Error(), c.want) && !strings.Contains(err.Error(), "not a memory file") {
			t.Errorf("%s: %v, want %q", c.file.Name(), err, c.want)
		}
	}
}

// Objects are closed while others use them: never a wrong descriptor, never a crash.
func TestConcurrentClose(t *testing.T) {
	checkLeaks(t)
	for range 20 {
		o := mustCreate(t, 4096)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 20 {
					m, err := o.Map(ReadOnly)
					if err == nil {
						err = m.Unmap()
					}
					if err != nil && !errors.Is(err, os.ErrClosed) {
						t.Errorf("map: %v", err)
					}
					f, err := o.Dup()
					if err == nil {
						err = f.Close()
					}
					if err != nil && !errors.Is(err, os.ErrClosed) {
						t.Errorf("dup: %v", err)
					}
				}
			})
		}
		for range 2 {
			wg.Go(func() {
				if err := o.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
}

func TestHugePages(t *testing.T) {
	checkLeaks(t)
	// A wish that cannot be fulfilled is no error.
	o, err := Create("odd", HugePageSize+4096, Options{HugePages: true})
	if err != nil {
		t.Fatal(err)
	}
	if o.Huge() {
		t.Error("an odd size on huge pages")
	}
	closeAll(t, o)
	if o, err = Create("large", (FreeHugePages()+1)*HugePageSize, Options{HugePages: true}); err != nil {
		t.Fatal(err)
	}
	if o.Huge() {
		t.Error("more huge pages than there are")
	}
	closeAll(t, o)

	free := FreeHugePages()
	if free < 2 {
		t.Skip("fewer than 2 huge pages are free (/proc/sys/vm/nr_hugepages): the fallback was tested, the pages were not")
	}
	if o, err = Create("huge", 2*HugePageSize, Options{HugePages: true}); err != nil {
		t.Fatal(err)
	}
	defer closeAll(t, o)
	if !o.Huge() {
		t.Fatal("no huge pages although some are free")
	}
	m := mustMap(t, o, ReadWrite)
	if err := m.Populate(o.Size()); err != nil {
		t.Error(err)
	}
	m.Bytes()[o.Size()-1] = 1
	if n := FreeHugePages(); n != free-2 {
		t.Errorf("%d huge pages free, were %d before taking 2", n, free)
	}
	f, err := o.Dup()
	if err != nil {
		t.Fatal(err)
	}
	same, err := FromFile(f)
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(t, same)
	if !same.Huge() {
		t.Error("a received object does not know its huge pages")
	}
}

func TestCollapse(t *testing.T) {
	checkLeaks(t)
	o := mustCreate(t, 2*HugePageSize)
	m := mustMap(t, o, ReadWrite)
	if err := m.Populate(o.Size()); err != nil {
		t.Fatal(err)
	}
	for i := range m.Bytes() {
		m.Bytes()[i] = byte(i * 7)
	}
	err := m.Collapse()
	for i, b := range m.Bytes() {
		if b != byte(i*7) {
			t.Fatalf("byte %d is %d after collapsing", i, b)
		}
	}
	if err != nil {
		t.Skipf("contents are intact, but this kernel does not collapse: %v", err)
	}
	if err := mustMap(t, mustCreate(t, 4096), ReadWrite).Collapse(); err == nil {
		t.Error("collapsed a single small page")
	}
}

// child runs this test binary as a process of its own: see TestMain.
func child(role string, files ...*os.File) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "SHM_TEST_CHILD="+role)
	cmd.ExtraFiles = files
	return cmd
}
