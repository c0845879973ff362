package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"baton/internal/kv"
	"baton/internal/provider"
	"baton/internal/statefile"
)

// writeState processes one prompt and writes the state of its cells to a file: the route
// for a decoder that descriptors do not reach.
func (f *prefillFlags) writeState(ctx context.Context, out io.Writer) error {
	if *f.connect != "" || *f.listen != "" || *f.fd >= 0 {
		return fmt.Errorf("%w: found --out and another way to the decoder, expected one of them", errUsage)
	}
	tokens, err := readTokens(*f.tokens)
	if err != nil {
		return err
	}
	if err := giveWay(*f.nice); err != nil {
		return err
	}
	source, err := openSource(*f.modelFD, *f.model)
	if err != nil {
		return err
	}
	defer source.Close()
	b, err := source.Open()
	if err != nil {
		return err
	}
	defer b.Close()
	fingerprint, err := b.Model.Fingerprint()
	if err != nil {
		return err
	}
	store, err := statefile.Open(filepath.Dir(*f.out))
	if err != nil {
		return err
	}
	defer store.Close()
	var info statefile.Info
	err = provider.Alone(ctx, b.Model, tokens, provider.Options{Threads: *f.threads, MicroBatch: *f.microBatch},
		func(l *kv.Layout, runs []kv.Run) (err error) {
			info, err = store.Save(ctx, filepath.Base(*f.out), fingerprint, statefile.State{Layout: l, Tokens: tokens, Runs: runs})
			return err
		})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s: %d tokens, %d bytes\n", *f.out, info.Tokens, info.Bytes)
	return err
}

// giveWay lowers the priority of all threads of this process; those that come later
// inherit it. (On Linux a priority belongs to a thread.)
func giveWay(nice int) error {
	if nice == 0 {
		return nil
	}
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return fmt.Errorf("giving way to other processes: %w", err)
	}
	for _, t := range tasks {
		tid, err := strconv.Atoi(t.Name())
		if err != nil {
			return fmt.Errorf("giving way to other processes: thread %q has no number", t.Name())
		}
		if err := unix.Setpriority(unix.PRIO_PROCESS, tid, nice); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("giving way to other processes: %w", err)
		}
	}
	return nil
}

// maxTokenFile bounds a list of token ids, in bytes.
const maxTokenFile = 64 << 20

// readTokens reads ids: runs of digits, whatever stands between them.
func readTokens(path string) (ids []int32, err error) {
	in := os.Stdin
	if path != "-" {
		if in, err = os.Open(path); err != nil {
			return nil, fmt.Errorf("reading the token ids: %w", err)
		}
		defer in.Close()
	}
	data, err := io.ReadAll(io.LimitReader(in, maxTokenFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading the token ids: %w", err)
	case len(data) > maxTokenFile:
		return nil, fmt.Errorf("the list of token ids is longer than %d MiB", maxTokenFile>>20)
	}
	for i := 0; i < len(data); {
		j := i
		for j < len(data) && data[j] >= '0' && data[j] <= '9' {
			j++
		}
		if j == i {
			if data[i] == '-' {
				return nil, fmt.Errorf("token %d of the list is negative", len(ids))
			}
			i++
			continue
		}
		id, err := strconv.ParseInt(string(data[i:j]), 10, 32)
		if err != nil {
			return nil, fmt.Errorf("token %d of the list: %w", len(ids), err)
		}
		ids = append(ids, int32(id))
		i = j
	}
	if len(ids) == 0 {
		return nil, errors.New("there are no token ids: give them with --tokens FILE or on standard input")
	}
	return ids, nil
}
