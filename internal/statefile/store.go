package statefile

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"baton/internal/kv"
)

// Store is a directory of state files. Its methods are safe for concurrent use. Two
// processes that save under one name at the same time may leave a file and a sum that do
// not belong together; Restore refuses them.
type Store struct {
	root *os.Root
	mu   sync.RWMutex // held for writing while a file and its sum are replaced
}

// Info tells what Save or Restore did.
type Info struct {
	Tokens   int           // in the file, one cell each
	Bytes    int64         // of the file
	Copied   int64         // bytes of rows that were moved between memory and memory or file
	Verified bool          // the file is what its sum says: whole, and of this model
	Warning  string        // what is not known of a file that is not verified
	Elapsed  time.Duration // all of it
}

// tempPrefix begins the names of files that are being written. No state file has it.
const tempPrefix = "~"

// staleAfter is the age at which a file that is being written counts as forgotten.
const staleAfter = time.Hour

// Open opens an existing directory, and removes what an interrupted Save left in it.
func Open(dir string) (*Store, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("statefile: open directory: %w", err)
	}
	s := &Store{root: root}
	if err := s.sweep(time.Now().Add(-staleAfter)); err != nil {
		return nil, errors.Join(fmt.Errorf("statefile: open directory: %w", err), root.Close())
	}
	return s, nil
}

// Close closes the directory.
func (s *Store) Close() error { return s.root.Close() }

// sweep removes temporary files that have not changed since before.
func (s *Store) sweep(before time.Time) error {
	entries, err := fs.ReadDir(s.root.FS(), ".")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), tempPrefix) {
			continue
		}
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() || info.ModTime().After(before) {
			continue
		}
		if err := s.root.Remove(e.Name()); err != nil {
			return err
		}
	}
	return nil
}

// CheckName reports whether a state file can have that name: 1 to 128 letters, digits,
// dots, underscores and hyphens of ASCII, not all of them dots, and not the name of a
// sum. The error is an *Error of the kind BadName.
func CheckName(name string) error {
	const most = 128
	bad := func(found string) error {
		return &Error{Kind: BadName, Name: name, Field: "name", Found: found,
			Expected: "1 to 128 letters, digits, dots, underscores and hyphens", Do: "it is a name, not a path: the server chose the directory"}
	}
	if name == "" || len(name) > most {
		return bad(fmt.Sprintf("%d bytes", len(name)))
	}
	for _, c := range []byte(name) {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-') {
			return bad(fmt.Sprintf("the character %q", rune(c)))
		}
	}
	if strings.Trim(name, ".") == "" {
		return bad("nothing but dots")
	}
	if n := len(name) - len(sumSuffix); n >= 0 && strings.EqualFold(name[n:], sumSuffix) {
		return bad("the ending " + sumSuffix + ", which checksums have")
	}
	return nil
}

// Save writes the state of a sequence to the file of that name, and its sum; model is the
// fingerprint of the model that computed the cells. A file that was there is replaced in
// one step when the new one is on the disk; whatever goes wrong before that, it stays as
// it was and nothing else is left. The cells must not change meanwhile.
func (s *Store) Save(ctx context.Context, name, model string, st State) (Info, error) {
	start := time.Now()
	if err := CheckName(name); err != nil {
		return Info{}, err
	}
	if !isFingerprint(model) {
		return Info{}, fmt.Errorf("statefile: save: the fingerprint %s is not 64 hexadecimal digits", clip(model))
	}
	if err := st.check(); err != nil {
		return Info{}, err
	}
	info, err := s.save(ctx, name, model, &st)
	if err != nil {
		return Info{}, named(name, err)
	}
	info.Elapsed = time.Since(start)
	return info, nil
}

func (s *Store) save(ctx context.Context, name, model string, st *State) (Info, error) {
	for _, file := range []string{name, name + sumSuffix} {
		if err := s.checkPlace(file); err != nil {
			return Info{}, err
		}
	}
	n := len(st.Tokens)
	r := record{bytes: fileBytes(st.Layout, n), tokens: n, model: model}
	temp, err := s.writeTemp(func(f *os.File) (err error) {
		r.digest, err = st.write(ctx, f)
		return err
	})
	if err != nil {
		return Info{}, err
	}
	if err := s.replace(name, temp, r); err != nil {
		return Info{}, errors.Join(err, s.discard(temp))
	}
	return Info{Tokens: n, Bytes: r.bytes, Copied: rowBytes(st.Layout, n), Verified: true}, nil
}

// checkPlace refuses to replace what is no file: a directory, or a link that somebody
// put there.
func (s *Store) checkPlace(name string) error {
	st, err := s.root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !st.Mode().IsRegular():
		return wrong(BadName, "file", describe(st.Mode()), "a regular file")
	}
	return nil
}

func describe(m fs.FileMode) string {
	switch {
	case m.IsDir():
		return "a directory"
	case m&fs.ModeSymlink != 0:
		return "a symbolic link"
	}
	return "a special file"
}

// writeTemp makes a temporary file and returns its name; on an error there is none.
func (s *Store) writeTemp(write func(f *os.File) error) (string, error) {
	name := tempPrefix + rand.Text()
	f, err := s.root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	if err := errors.Join(write(f), f.Close()); err != nil {
		return "", errors.Join(err, s.discard(name))
	}
	return name, nil
}

func (s *Store) discard(temp string) error {
	if err := s.root.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove temporary file: %w", err)
	}
	return nil
}

// replace puts the finished file temp, which r describes, in the place of name.
func (s *Store) replace(name, temp string, r record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	records := []record{r}
	sumFirst := false
	if old, err := s.readSum(name); err == nil && len(old) > 0 {
		records = append(records, old[0])
		sumFirst = true
	}
	sum, err := s.writeTemp(func(f *os.File) error {
		_, err := f.Write(encodeSum(records))
		return errors.Join(err, f.Sync())
	})
	if err != nil {
		return err
	}
	steps := [2][2]string{{temp, name}, {sum, name + sumSuffix}}
	if sumFirst { // else the old file has no sum to be found whole by
		steps[0], steps[1] = steps[1], steps[0]
	}
	for _, step := range steps {
		if err := s.root.Rename(step[0], step[1]); err != nil {
			return errors.Join(err, s.discard(sum))
		}
	}
	return s.syncDir()
}

func (s *Store) syncDir() error {
	dir, err := s.root.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// Restore reads the file of that name. When everything but its rows is checked it calls
// place with the tokens, which returns cells for them that nobody else uses, in order;
// the rows go there. On an error the cells hold anything; it is an *Error if the file is
// at fault.
func (s *Store) Restore(ctx context.Context, name string, fit Fit, place func(tokens []int32) ([]kv.Run, error)) (Info, error) {
	start := time.Now()
	if err := CheckName(name); err != nil {
		return Info{}, err
	}
	if err := checkLayout(fit.Layout); err != nil {
		return Info{}, err
	}
	info, err := s.restore(ctx, name, &fit, place)
	if err != nil {
		return Info{}, named(name, err)
	}
	info.Elapsed = time.Since(start)
	return info, nil
}

func (s *Store) restore(ctx context.Context, name string, fit *Fit, place func([]int32) ([]kv.Run, error)) (info Info, err error) {
	f, records, err := s.openPair(name)
	if err != nil {
		return Info{}, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	st, err := f.Stat()
	if err != nil {
		return Info{}, err
	}
	if records != nil {
		if records, err = candidates(records, st.Size(), fit.Model); err != nil {
			return Info{}, err
		}
	}
	c, err := parse(f, st.Size(), fit)
	if err != nil {
		return Info{}, err
	}
	runs, err := place(c.tokens)
	if err != nil {
		return Info{}, err
	}
	if n := countCells(runs); n != len(c.tokens) {
		return Info{}, fmt.Errorf("restore: %d cells for %d tokens", n, len(c.tokens))
	}
	digest, moved, err := c.readRows(ctx, f, fit.Layout, runs)
	if err != nil {
		return Info{}, err
	}
	info = Info{Tokens: len(c.tokens), Bytes: st.Size(), Copied: moved, Verified: records != nil}
	if records == nil {
		info.Warning = fmt.Sprintf("%s has no checksum file: nobody knows whether it is whole and of this model", clip(name))
		return info, nil
	}
	return info, verify(records, digest, len(c.tokens))
}

// openPair opens a file and reads its sum; the records are nil if it has none.
func (s *Store) openPair(name string) (*os.File, []record, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	f, err := s.openFile(name)
	if err != nil {
		return nil, nil, err
	}
	records, err := s.readSum(name)
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, records, nil
}

// openFile opens a regular file for reading. It neither follows links nor waits for the
// other end of a pipe.
func (s *Store) openFile(name string) (*os.File, error) {
	before, err := s.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &Error{Kind: NotFound, Field: "file", Found: "none", Expected: "one that was saved", Do: "see the directory for the names of those that there are"}
	}
	if err != nil {
		return nil, err
	}
	if !before.Mode().IsRegular() {
		return nil, wrong(BadName, "file", describe(before.Mode()), "a regular file")
	}
	f, err := s.root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	after, err := f.Stat()
	if err == nil && !os.SameFile(before, after) {
		err = wrong(Damaged, "file", "one that was replaced by another", "a file that nobody changes while it is opened")
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// readSum reads the sum of a file; nil without an error if there is none.
func (s *Store) readSum(name string) (records []record, err error) {
	f, err := s.openFile(name + sumSuffix)
	if e := (*Error)(nil); errors.As(err, &e) && e.Kind == NotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	data, err := io.ReadAll(io.LimitReader(f, maxSumFile))
	if err != nil {
		return nil, err
	}
	return decodeSum(data)
}

// Erase removes a file and its sum.
func (s *Store) Erase(name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f, err := s.openFile(name)
	if err != nil {
		return named(name, err)
	}
	err = errors.Join(f.Close(), s.root.Remove(name))
	if e := s.root.Remove(name + sumSuffix); !errors.Is(e, fs.ErrNotExist) {
		err = errors.Join(err, e)
	}
	if err = errors.Join(err, s.syncDir()); err != nil {
		return named(name, err)
	}
	return nil
}
