package handoff

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Every row of the table can be provoked, and says what it should.
func TestRefusals(t *testing.T) {
	tokens := prompt(1, 40)
	digest := PromptDigest(tokens)
	bg := context.Background()
	share := func(r *rig, q *Request) error {
		s, err := r.table.Share(bg, q)
		if err == nil {
			err = r.table.Release(q.Slot, s.ID)
		}
		return err
	}
	adopt := func(r *rig, q *AdoptRequest) error {
		_, err := r.table.Adopt(bg, q)
		return err
	}
	// made makes a share in slot 0 that is ready to be adopted.
	made := func(r *rig) *Share {
		s := r.share(r.provide(honest("cpu"), Policy{}), 0, tokens)
		r.wait(s)
		return s
	}
	type provoke = func(r *rig) error
	cases := map[Code]map[string]provoke{
		BadRequest: {
			"no share_id": func(r *rig) error { return adopt(r, &AdoptRequest{Digest: &digest}) },
			"no digest":   func(r *rig) error { return adopt(r, &AdoptRequest{ID: 1}) },
			"digest and tokens": func(r *rig) error {
				return adopt(r, &AdoptRequest{ID: 1, Digest: &digest, Tokens: tokens})
			},
			"one token":     func(r *rig) error { return share(r, &Request{Provider: "cpu", Tokens: tokens[:1]}) },
			"no tokens":     func(r *rig) error { return share(r, &Request{Provider: "cpu"}) },
			"n > n_ctx":     func(r *rig) error { return share(r, &Request{Provider: "cpu", Tokens: prompt(1, testContext+1)}) },
			"vocabulary":    func(r *rig) error { return share(r, &Request{Provider: "cpu", Tokens: []int32{1, testVocab}}) },
			"negative id":   func(r *rig) error { return share(r, &Request{Provider: "cpu", Tokens: []int32{1, -1, 2}}) },
			"no provider":   func(r *rig) error { return share(r, &Request{Tokens: tokens}) },
			"two providers": func(r *rig) error { return share(r, &Request{Provider: "cpu", Socket: "x", Tokens: tokens}) },
			"socket that is not there": func(r *rig) error {
				return share(r, &Request{Socket: "nobody.sock", Tokens: tokens})
			},
		},
		SlotUnknown: {
			"share":    func(r *rig) error { return share(r, &Request{Slot: 4, Provider: "cpu", Tokens: tokens}) },
			"negative": func(r *rig) error { return share(r, &Request{Slot: -1, Provider: "cpu", Tokens: tokens}) },
			"adopt":    func(r *rig) error { return adopt(r, &AdoptRequest{Slot: 4, ID: 1, Digest: &digest}) },
			"release":  func(r *rig) error { return r.table.Release(99, 1) },
		},
		ShareUnknown: {
			"bare adopt": func(r *rig) error { return adopt(r, &AdoptRequest{ID: 12345, Digest: &digest}) },
			"guessed": func(r *rig) error {
				return adopt(r, &AdoptRequest{ID: made(r).ID + 1, Digest: &digest})
			},
			"released": func(r *rig) error {
				s := made(r)
				if err := r.table.Release(0, s.ID); err != nil {
					return err
				}
				return adopt(r, &AdoptRequest{ID: s.ID, Digest: &digest})
			},
		},
		ShareUsed: {
			"replayed": func(r *rig) error {
				s := made(r)
				if err := adopt(r, &AdoptRequest{ID: s.ID, Digest: &digest}); err != nil {
					return err
				}
				return adopt(r, &AdoptRequest{ID: s.ID, Digest: &digest})
			},
			"after a failed adopt": func(r *rig) error {
				s := made(r)
				if err := adopt(r, &AdoptRequest{ID: s.ID, Tokens: prompt(2, 40)}); err == nil {
					return errors.New("adopted")
				}
				return adopt(r, &AdoptRequest{ID: s.ID, Digest: &digest})
			},
		},
		ShareOfOtherSlot: {
			"foreign": func(r *rig) error { return adopt(r, &AdoptRequest{Slot: 1, ID: made(r).ID, Digest: &digest}) },
			"release": func(r *rig) error { return r.table.Release(1, made(r).ID) },
		},
		SlotBusy: {
			"share": func(r *rig) error {
				r.provide(honest("cpu"), Policy{})
				r.do(func() { r.busy[0] = true })
				return share(r, &Request{Provider: "cpu", Tokens: tokens})
			},
			"adopt after the slot moved on": func(r *rig) error {
				s := made(r)
				r.do(func() { r.busy[0] = true })
				return adopt(r, &AdoptRequest{ID: s.ID, Digest: &digest})
			},
		},
		AlreadySharing: {
			"two shares": func(r *rig) error {
				made(r)
				return share(r, &Request{Provider: "cpu", Tokens: tokens})
			},
		},
		StillWritable: {
			"too early": func(r *rig) error {
				o := honest("cpu")
				o.Prefill = func(ctx context.Context, _ *Job) error { <-ctx.Done(); return nil }
				s := r.share(r.provide(o, Policy{}), 0, tokens)
				return adopt(r, &AdoptRequest{ID: s.ID, Digest: &digest})
			},
			"attached, too early": func(r *rig) error {
				p, _ := r.spawn("slow", "", Policy{Trust: Attached})
				s := r.share(p, 0, tokens)
				return adopt(r, &AdoptRequest{ID: s.ID, Digest: &digest})
			},
			"cancelled adopt": func(r *rig) error {
				p, _ := r.spawn("slow", "", Policy{})
				s := r.share(p, 0, tokens)
				ctx, cancel := context.WithTimeout(bg, time.Millisecond)
				defer cancel()
				_, err := r.table.Adopt(ctx, &AdoptRequest{ID: s.ID, Digest: &digest})
				return err
			},
		},
		ShareExpired: {
			"owner gone": func(r *rig) error {
				r.provide(honest("cpu"), Policy{})
				owner := make(chan struct{})
				s, err := r.table.Share(bg, &Request{Provider: "cpu", Tokens: tokens, Owner: owner})
				if err != nil {
					return err
				}
				close(owner)
				eventually(r.t, "it is given up", func() bool { return r.table.Stats().Shares == 0 })
				return adopt(r, &AdoptRequest{ID: s.ID, Digest: &digest})
			},
		},
		HeaderMissing: {"died": func(r *rig) error {
			p, _ := r.spawn("cpu", failMapped+"=exit", Policy{})
			s := r.share(p, 0, tokens)
			r.wait(s)
			return unanswered(adopt(r, &AdoptRequest{ID: s.ID, Digest: &digest}))
		}},
		TicketDiffers: {"header of another share": func(r *rig) error {
			s := r.share(r.liar(Policy{}, func(_ context.Context, j *Job) error {
				j.page.Bytes()[offTicket+3]++
				return nil
			}), 0, tokens)
			r.wait(s)
			return adopt(r, &AdoptRequest{ID: s.ID, Digest: &digest})
		}},
		LayoutDiffers: {
			"at the hello": func(r *rig) error {
				ours, theirs := socketpair(r.t)
				defer theirs.Close()
				go func() {
					_ = writeMessage(theirs, &Hello{Protocol: Protocol, Name: "npu", Trust: []Trust{Leased}, Layouts: []Digest{{1}}}, nil)
				}()
				_, err := r.table.Register(bg, ours, Policy{})
				return err
			},
		},
		PromptDiffers: {
			"adopt for another prompt": func(r *rig) error {
				return adopt(r, &AdoptRequest{ID: made(r).ID, Tokens: prompt(2, 40)})
			},
			"adopt for a longer prompt": func(r *rig) error {
				return adopt(r, &AdoptRequest{ID: made(r).ID, Tokens: append(prompt(1, 40), 1)})
			},
		},
		ShortFill: {"half": func(r *rig) error {
			s := r.share(r.liar(Policy{}, func(context.Context, *Job) error { return nil }), 0, tokens)
			r.wait(s)
			return adopt(r, &AdoptRequest{ID: s.ID, Digest: &digest, All: true})
		}},
		ContentDiffers: {"nothing written": func(r *rig) error {
			s := r.share(r.liar(Policy{}, func(_ context.Context, j *Job) error { return j.Advance(39) }), 0, tokens)
			r.wait(s)
			return adopt(r, &AdoptRequest{ID: s.ID, Digest: &digest})
		}},
		SharingOff: {"flag": func(r *rig) error {
			r.table.opt.Off = "--kv-share is off"
			return share(r, &Request{Provider: "cpu", Tokens: tokens})
		}},
		ModelNotShareable: {"recurrent": func(r *rig) error {
			r.table.opt.Unshareable = "recurrent layers"
			return share(r, &Request{Provider: "cpu", Tokens: tokens})
		}},
		ProviderGone: {
			"not registered": func(r *rig) error { return share(r, &Request{Provider: "npu", Tokens: tokens}) },
			"just gone": func(r *rig) error {
				p := r.provide(honest("cpu"), Policy{})
				p.disconnect()
				return share(r, &Request{Provider: "cpu", Tokens: tokens})
			},
			"busy": func(r *rig) error {
				p, _ := r.spawn("slow", "", Policy{})
				r.share(p, 0, tokens)
				ctx, cancel := context.WithTimeout(bg, 5*time.Millisecond)
				defer cancel()
				_, err := r.table.Share(ctx, &Request{Slot: 1, Provider: "slow", Tokens: tokens})
				return err
			},
			"takes no descriptors": func(r *rig) error {
				ours, theirs := socketpair(r.t)
				go func() {
					_ = writeMessage(theirs, &Hello{Protocol: Protocol, Name: "cpu", Trust: []Trust{Leased}}, nil)
					_, _, _ = readMessage(theirs, maxText) // the welcome
					_, _ = theirs.Read(make([]byte, 100))  // a part of the order
					theirs.Close()
				}()
				if _, err := r.table.Register(bg, ours, Policy{}); err != nil {
					return err
				}
				return share(r, &Request{Provider: "cpu", Tokens: tokens})
			},
		},
		NoRoom: {
			"blocks": func(r *rig) error {
				r.provide(honest("cpu"), Policy{})
				r.do(func() {
					s := r.pool.NewSequence()
					if err := s.Reserve(39 * testCells); err != nil {
						r.t.Error(err)
					}
					r.slots[3] = s
				})
				return share(r, &Request{Provider: "cpu", Tokens: tokens})
			},
			"shares": func(r *rig) error {
				r.table.opt.MaxShares = 1
				made(r)
				return share(r, &Request{Slot: 1, Provider: "cpu", Tokens: tokens})
			},
		},
	}
	for _, e := range Refusals() {
		if len(cases[e.Code]) == 0 {
			t.Errorf("%s is not provoked", e.Code)
		}
		for name, f := range cases[e.Code] {
			t.Run(string(e.Code)+"/"+name, func(t *testing.T) {
				r := newRig(t, nil)
				err := f(r)
				var refusal *Refusal
				if !errors.As(err, &refusal) || refusal.Code != e.Code {
					t.Fatalf("%v, want %s", err, e.Code)
				}
				if refusal.Status() != e.Status || refusal.Do() != e.Do || !strings.Contains(err.Error(), e.Means) {
					t.Errorf("%d, %q, %v, but the table says %+v", refusal.Status(), refusal.Do(), err, e)
				}
				if e.Code == NoRoom && refusal.RetryAfter == 0 {
					t.Error("does not say when to try again")
				}
				if r.table.Stats().Adopted > 1 {
					t.Error("adopted all the same")
				}
			})
		}
	}
}

// unanswered is err, if a provider's own words are not in it.
func unanswered(err error) error {
	var r *Refusal
	if errors.As(err, &r) && r.Code == ProviderGone {
		return r.Err // what the decoder itself found
	}
	return err
}

func TestTable(t *testing.T) {
	// DESIGN: code and status of each.
	want := map[Code]int{
		"bad_request": 400, "slot_unknown": 404, "share_unknown": 409, "share_used": 409,
		"share_of_other_slot": 409, "slot_busy": 409, "already_sharing": 409, "still_writable": 409,
		"share_expired": 410, "header_missing": 422, "ticket_differs": 422, "layout_differs": 422,
		"prompt_differs": 422, "short_fill": 422, "content_differs": 422, "sharing_off": 501,
		"model_not_shareable": 501, "provider_unreachable": 502, "no_room": 503,
	}
	if len(table) != len(want) {
		t.Errorf("%d codes, want %d", len(table), len(want))
	}
	for _, e := range table {
		if want[e.Code] != e.Status {
			t.Errorf("%s: status %d, want %d", e.Code, e.Status, want[e.Code])
		}
		for _, s := range []string{e.Means, e.Do} {
			if s == "" || strings.HasSuffix(s, ".") || strings.ToLower(s[:1]) != s[:1] || strings.Contains(s, "|") {
				t.Errorf("%s: %q", e.Code, s)
			}
		}
	}
	page, err := os.ReadFile("../../docs/refusals.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(page) != Markdown() {
		t.Error("docs/refusals.md is out of date: run go generate ./internal/handoff")
	}
}

// Sockets named in requests: inside the run directory, no links, ours.
func TestSockets(t *testing.T) {
	r := newRig(t, nil)
	tokens := prompt(1, 40)
	listen := func(path string) *net.UnixListener {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		return l
	}
	l := listen(filepath.Join(r.dir, "npu.sock"))
	ended := make(chan error, 2)
	go func() {
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			o := honest("npu")
			o.Once = true
			go func() { ended <- Provide(context.Background(), c, o) }()
		}
	}()
	policy := Policy{Trust: Sealed, Foreign: true}
	for i, path := range []string{"npu.sock", filepath.Join(r.dir, "npu.sock")} {
		s, err := r.table.Share(context.Background(), &Request{Slot: i, Socket: path, Tokens: tokens, Policy: policy})
		if err != nil {
			t.Fatal(err)
		}
		if out := r.wait(s); out.Err != nil {
			t.Fatal(out.Err)
		}
		if err := <-ended; err != nil {
			t.Errorf("after one order: %v", err)
		}
		if _, err := r.adopt(s, tokens); err != nil {
			t.Fatal(err)
		}
		r.checkSlot(i, tokens, 39)
	}
	if n := len(r.table.Providers()); n != 0 {
		t.Errorf("%d providers are registered by it", n)
	}

	outside := filepath.Join(t.TempDir(), "outside.sock")
	listen(outside)
	if err := os.Symlink("npu.sock", filepath.Join(r.dir, "link.sock")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(r.dir, "away.sock")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(r.dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	listen(filepath.Join(r.dir, "others.sock"))
	for path, want := range map[string]Code{
		outside: BadRequest, "../" + filepath.Base(filepath.Dir(outside)) + "/outside.sock": BadRequest,
		"link.sock": BadRequest, "away.sock": BadRequest, "file": BadRequest, ".": BadRequest,
		"others.sock": BadRequest,
	} {
		if path == "others.sock" {
			if os.Geteuid() != 0 {
				t.Log("skipped: a socket of another user, which needs root")
				continue
			}
			if err := os.Chown(filepath.Join(r.dir, path), 1, 1); err != nil {
				t.Fatal(err)
			}
		}
		_, err := r.table.Share(context.Background(), &Request{Slot: 2, Socket: path, Tokens: tokens, Policy: policy})
		if code(err) != want {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}

	dead := filepath.Join(r.dir, "dead.sock")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: dead}); err != nil {
		t.Fatal(err)
	}
	unix.Close(fd)
	_, err = r.table.Share(context.Background(), &Request{Slot: 2, Socket: "dead.sock", Tokens: tokens, Policy: policy})
	if code(err) != ProviderGone {
		t.Errorf("a socket where nobody listens: %v", err)
	}
}

// Another user connects: refused before anything is sent.
func TestOtherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to become another user")
	}
	r := newRig(t, nil)
	if err := os.Chmod(r.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for dir := r.dir; dir != "/tmp" && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(r.dir, "open.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	cmd := testCommand("cpu")
	cmd.Env = append(cmd.Env, "HANDOFF_TEST_SOCKET="+path)
	cmd.SysProcAttr = &unix.SysProcAttr{Credential: credential(65534), Pdeathsig: unix.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Skipf("cannot start a process as another user: %v", err)
	}
	defer cmd.Wait()
	c, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.table.Register(context.Background(), c, Policy{}); err == nil || !strings.Contains(err.Error(), "user 65534 is at the other end, want 0") {
		t.Errorf("registered: %v", err)
	}
}
