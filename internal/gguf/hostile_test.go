package gguf_test

import (
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"baton/internal/gguf"
	"baton/internal/gguf/gguftest"
)

// allocated returns the bytes that fn allocates, freed ones included.
func allocated(fn func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	fn()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// allocationLimit is the most that parsing a file of n bytes may allocate: the tables of
// a header full of the smallest entries, plus what an error message and the test itself
// take.
func allocationLimit(n int) uint64 { return 32*uint64(n) + 256<<10 }

func TestHostileFiles(t *testing.T) {
	sized := regexp.MustCompile(`^(\d+)-bytes-`)
	seen := map[string]bool{}
	for _, c := range gguftest.Hostile() {
		t.Run(c.Name, func(t *testing.T) {
			if seen[c.Name] {
				t.Fatal("two cases have this name")
			}
			seen[c.Name] = true
			if m := sized.FindStringSubmatch(c.Name); m != nil {
				if n, _ := strconv.Atoi(m[1]); n != len(c.Bytes) {
					t.Fatalf("file has %d bytes", len(c.Bytes))
				}
			}

			var err error
			used := allocated(func() { _, err = gguf.Parse(c.Bytes, "m.gguf") })
			if err == nil {
				t.Fatal("no error")
			}
			if !strings.HasPrefix(err.Error(), "gguf: m.gguf: ") || !strings.Contains(err.Error(), c.WantError) {
				t.Errorf("got error  %v\nwant part  %s", err, c.WantError)
			}
			if limit := allocationLimit(len(c.Bytes)); used > limit {
				t.Errorf("allocated %d bytes, the limit is %d", used, limit)
			}

			// The same file on disk gives the same error.
			path := filepath.Join(t.TempDir(), "m.gguf")
			if err := os.WriteFile(path, c.Bytes, 0o600); err != nil {
				t.Fatal(err)
			}
			_, mapped := gguf.Open(path)
			if mapped == nil || strings.ReplaceAll(mapped.Error(), path, "m.gguf") != err.Error() && len(c.Bytes) > 0 {
				t.Errorf("Open: %v\nParse: %v", mapped, err)
			}
		})
	}
	if len(seen) < 35 {
		t.Errorf("%d cases", len(seen))
	}
}

func TestBadModelsParse(t *testing.T) {
	for _, c := range gguftest.BadModels() {
		if _, err := gguf.Parse(c.Bytes, c.Name); err != nil {
			t.Errorf("the parser refused what it cannot judge: %v", err)
		}
	}
}

func TestTruncated(t *testing.T) {
	small := build(t, sample)
	for n, cut := range gguftest.Truncations(small, 1) {
		_, err := gguf.Parse(cut, "m.gguf")
		checkTruncated(t, n, err)
	}
	tiny := gguftest.Bytes(gguftest.Tiny())
	cuts := gguftest.Truncations(tiny, 1024)
	if len(cuts) < 50 {
		t.Errorf("only %d cuts", len(cuts))
	}
	for i, cut := range cuts {
		_, err := gguf.Parse(cut, "m.gguf")
		checkTruncated(t, i*1024, err)
	}
	if _, err := gguf.Parse(tiny, "m.gguf"); err != nil {
		t.Errorf("whole: %v", err)
	}
}

// checkTruncated wants an error that says that bytes are missing, or which count cannot
// be right.
func checkTruncated(t *testing.T, n int, err error) {
	t.Helper()
	if err == nil {
		t.Errorf("cut at %d: no error", n)
		return
	}
	for _, part := range []string{"missing", "bytes that are left hold at most", "file is empty"} {
		if strings.Contains(err.Error(), part) {
			return
		}
	}
	t.Errorf("cut at %d: %v", n, err)
}
