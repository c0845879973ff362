package handoff

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"baton/internal/kv"
	"baton/internal/shm"
)

// hold is a process that maps the file it inherited, tells so, and keeps the mapping
// until it is killed.
func hold() error {
	o, err := shm.FromFile(os.NewFile(3, "inherited"))
	if err != nil {
		return err
	}
	if _, err := o.Map(shm.ReadWrite); err != nil {
		return err
	}
	if err := o.Close(); err != nil {
		return err
	}
	fmt.Println("mapped")
	time.Sleep(time.Hour)
	return nil
}

// keepsChild is a provider's work that leaves a child behind with a mapping of the last
// block. It takes the descriptor from the mapping, as it has no other.
func keepsChild(ctx context.Context, j *Job) error {
	if err := prefill(ctx, j); err != nil {
		return err
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(maps)) {
		f := strings.Fields(line)
		if len(f) < 6 || f[5] != "/memfd:baton-kv" || !strings.HasPrefix(f[1], "rw") {
			continue
		}
		file, err := os.OpenFile("/proc/self/map_files/"+f[0], os.O_RDWR, 0)
		if err != nil {
			return err
		}
		defer file.Close()
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), "HANDOFF_TEST_ROLE=hold")
		cmd.ExtraFiles = []*os.File{file}
		out, err := cmd.StdoutPipe()
		if err != nil {
			return err
		}
		if err := cmd.Start(); err != nil {
			return err
		}
		buf := make([]byte, 6)
		_, err = io.ReadFull(out, buf)
		return err
	}
	return fmt.Errorf("no writable mapping among:\n%s", maps)
}

// liar runs a provider whose work is done by f instead of an honest one's.
func (r *rig) liar(policy Policy, f func(ctx context.Context, j *Job) error) *Provider {
	r.t.Helper()
	o := honest("liar")
	o.Prefill = f
	return r.provide(o, policy)
}

// A provider that keeps a way to write: the cells are not adopted, and the blocks are
// not used again before that way is gone.
func TestKeepsWriting(t *testing.T) {
	policies := map[string]Policy{"leased": {Trust: Leased}, "sealed": {Trust: Sealed, Foreign: true}}
	for mode, policy := range policies {
		// A descriptor alone does not keep a block from being sealed, but nothing can be
		// written with it any more then.
		for _, way := range []string{"mapping", "descriptor"} {
			t.Run(mode+" "+way, func(t *testing.T) {
				r := newRig(t, nil)
				kept := map[string]func(*kv.Block) (release func()){
					"mapping": func(b *kv.Block) func() {
						m := mapWritable(t, b)
						return func() { m.Unmap() }
					},
					"descriptor": func(b *kv.Block) func() {
						f, err := b.WriterFile()
						if err != nil {
							t.Fatal(err)
						}
						return func() { f.Close() }
					},
				}[way]
				p := r.provide(honest("cpu"), policy)
				tokens := prompt(1, 50)
				s := r.share(p, 0, tokens)
				// What a provider could keep, the test keeps for it.
				release := kept(r.table.shares[s.ID].blocks[1])
				r.wait(s)
				_, err := r.adopt(s, tokens)
				if mode == "sealed" && way == "descriptor" {
					if err != nil {
						t.Error(err)
					}
					release()
					return
				}
				if code(err) != StillWritable {
					t.Fatalf("adopted: %v", err)
				}
				if _, err := r.adopt(s, tokens); code(err) != ShareUsed {
					t.Errorf("adopted again: %v", err)
				}
				if st, want := r.table.Stats(), 1; st.Quarantined != want {
					t.Errorf("%d blocks in quarantine, want %d", st.Quarantined, want)
				}
				if st := r.pool.Stats(); st.Used != 1 {
					t.Errorf("%+v: the block in quarantine has to count", st)
				}
				r.handoff(p, 0, tokens) // with other blocks
				release()
				r.isolated()
			})
		}
	}
}

func mapWritable(t testing.TB, b *kv.Block) *kv.Block {
	t.Helper()
	f, err := b.WriterFile()
	if err != nil {
		t.Fatal(err)
	}
	o, err := shm.FromFile(f)
	if err != nil {
		t.Fatal(err)
	}
	m, err := kv.MapBlock(b.Layout(), o, shm.ReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// A provider whose child has a mapping, also when the provider itself is dead.
func TestChildKeepsMapping(t *testing.T) {
	for mode, policy := range map[string]Policy{"leased": {}, "sealed": {Trust: Sealed}} {
		t.Run(mode, func(t *testing.T) {
			r := newRig(t, nil)
			p, cmd := r.spawn("keeps-child", "", policy)
			tokens := prompt(1, 50)
			s := r.share(p, 0, tokens)
			if o := r.wait(s); o.Err != nil {
				t.Fatal(o.Err)
			}
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			<-p.Gone()
			if _, err := r.adopt(s, tokens); code(err) != StillWritable {
				t.Fatalf("adopted: %v", err)
			}
			if q := r.table.Stats().Quarantined; q != 1 {
				t.Errorf("%d blocks in quarantine", q)
			}
			if err := unix.Kill(-cmd.Process.Pid, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			r.isolated()
		})
	}
}

// Providers that do something else than they should. Each ends in a refusal, or in cells
// that are right.
func TestLiars(t *testing.T) {
	tokens := prompt(1, 90)
	n := len(tokens) - 1
	own, foreign := Policy{}, Policy{Trust: Sealed, Foreign: true}
	fill := func(j *Job, upto int) { fillCells(j.Runs(0, upto, nil), j.Tokens(), 0, upto) }
	for _, c := range []struct {
		name   string
		policy Policy
		work   func(context.Context, *Job) error
		want   Code // empty: adopted
		detail string
	}{
		{"claims all, fills half", own, func(_ context.Context, j *Job) error {
			fill(j, n/2)
			return j.Advance(n)
		}, ContentDiffers, "K row of layer 0"},
		{"claims one row too many", own, func(_ context.Context, j *Job) error {
			fill(j, n-1)
			return j.Advance(n)
		}, ContentDiffers, "position 88"},
		{"claims more than there is", own, func(_ context.Context, j *Job) error {
			fill(j, n)
			storeFilled(j.page.Bytes(), uint64(n+1))
			return nil
		}, ContentDiffers, "claims 90 filled cells, between 0 and 89"},
		{"foreign, leaves one row out", foreign, func(_ context.Context, j *Job) error {
			fill(j, n)
			run := j.Runs(41, 42, nil)[0]
			clear(run.K(2))
			return j.Advance(n)
		}, ContentDiffers, "was not written"},
		{"foreign, leaves a V row out", foreign, func(_ context.Context, j *Job) error {
			fill(j, n)
			clear(j.Runs(7, 8, nil)[0].V(1))
			return j.Advance(n)
		}, ContentDiffers, "V row is zero"},
		{"foreign, computes NaN", foreign, func(_ context.Context, j *Job) error {
			fill(j, n)
			j.Runs(0, 1, nil)[0].K(0)[3] = 0x7e00
			return j.Advance(n)
		}, ContentDiffers, "relative error of NaN"},
		{"foreign, computes a little differently", foreign, func(_ context.Context, j *Job) error {
			fill(j, n)
			for _, run := range j.Runs(0, n, nil) {
				for i := range run.K(0) {
					run.K(0)[i] ^= 1
				}
			}
			return j.Advance(n)
		}, "", ""},
		{"own, computes a little differently", own, func(_ context.Context, j *Job) error {
			fill(j, n)
			j.Runs(n-1, n, nil)[0].K(0)[7] ^= 1
			return j.Advance(n)
		}, ContentDiffers, "element 7"},
		{"right prompt at wrong positions", own, func(_ context.Context, j *Job) error {
			shifted := append([]int32{0}, j.Tokens()...)
			pos := 1
			for _, run := range j.Runs(0, n, nil) {
				fillCells([]kv.Run{run}, shifted, pos, pos+run.Len)
				pos += run.Len
			}
			return j.Advance(n)
		}, ContentDiffers, "K row of layer 0"},
		{"other prompt, and a header for this one", own, func(_ context.Context, j *Job) error {
			fillCells(j.Runs(0, n, nil), prompt(7, 90), 0, n)
			return j.Advance(n)
		}, ContentDiffers, "K row of layer 0"},
		{"other prompt", own, func(_ context.Context, j *Job) error {
			fillCells(j.Runs(0, n, nil), prompt(7, 90), 0, n)
			d := PromptDigest(prompt(7, 89))
			copy(j.page.Bytes()[offPrompt:], d[:])
			return j.Advance(n)
		}, PromptDiffers, "digest of the token ids is"},
		{"other ticket", own, func(_ context.Context, j *Job) error {
			fill(j, n)
			j.page.Bytes()[offTicket]++
			return j.Advance(n)
		}, TicketDiffers, "want"},
		{"no header", own, func(_ context.Context, j *Job) error {
			fill(j, n)
			clear(j.page.Bytes())
			return nil
		}, HeaderMissing, "empty"},
		{"other version", own, func(_ context.Context, j *Job) error {
			fill(j, n)
			j.page.Bytes()[offVersion] = 2
			return j.Advance(n)
		}, HeaderMissing, "version 2, want 1"},
		{"writes behind its last row", own, func(_ context.Context, j *Job) error {
			fill(j, n)
			last := j.Runs(n-1, n, nil)[0]
			for l := range testLayers {
				for i := (last.Cell + 1) * testElems; i < testCells*testElems; i++ {
					last.Block.K(l)[i], last.Block.V(l)[i] = 0xbad, 0xbad
				}
			}
			return j.Advance(n)
		}, "", ""},
		{"says nothing and fills nothing", own, func(context.Context, *Job) error { return nil }, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, nil)
			p := r.liar(c.policy, c.work)
			s := r.share(p, 0, tokens)
			r.wait(s)
			a, err := r.adopt(s, tokens)
			if c.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				if c.policy.Foreign {
					return // the rows are not the decoder's own, to the bit
				}
				r.checkSlot(0, tokens, a.Filled)
				r.decode(0, tokens, 5) // goes on behind the last row
				return
			}
			if code(err) != c.want || !strings.Contains(err.Error(), c.detail) {
				t.Errorf("%v, want %s with %q", err, c.want, c.detail)
			}
			r.do(func() {
				if r.slots[0] != nil {
					t.Error("the slot got cells all the same")
				}
			})
			r.isolated()
			if st := r.pool.Stats(); st.Used != 0 {
				t.Errorf("%+v", st)
			}
		})
	}
}

// Built for another layout: the provider finds out itself, and the decoder if it does not.
func TestOtherLayout(t *testing.T) {
	other := func(change func(*kv.Config), params map[string]string) func(*Welcome) (*kv.Layout, map[string]string, error) {
		return func(*Welcome) (*kv.Layout, map[string]string, error) {
			c := testLayout().Config
			change(&c)
			l, err := kv.NewLayout(c)
			return l, params, err
		}
	}
	for _, c := range []struct {
		field  string
		accept func(*Welcome) (*kv.Layout, map[string]string, error)
	}{
		{"kv_heads", other(func(c *kv.Config) { c.KVHeads = 1; c.HeadDim = 8 }, testParams)},
		{"layers", other(func(c *kv.Config) { c.Layers = 2 }, testParams)},
		{"cells", other(func(c *kv.Config) { c.CellsPerBlock = 32 }, testParams)},
		{"n_ctx", other(func(*kv.Config) {}, map[string]string{"n_ctx": "100", "model": "test"})},
		{"model", other(func(*kv.Config) {}, map[string]string{"n_ctx": "200"})},
	} {
		t.Run(c.field, func(t *testing.T) {
			r := newRig(t, nil)
			o := honest("other")
			o.Accept = c.accept
			p := r.provide(o, Policy{})
			tokens := prompt(1, 40)
			s := r.share(p, 0, tokens)
			if out := r.wait(s); code(out.Err) != LayoutDiffers {
				t.Errorf("the provider says %v", out.Err)
			}
			_, err := r.adopt(s, tokens)
			if code(err) != LayoutDiffers || !strings.Contains(err.Error(), c.field) {
				t.Errorf("%v, want layout_differs with %s", err, c.field)
			}
		})
	}
	t.Run("found by the decoder", func(t *testing.T) {
		r := newRig(t, nil)
		p := r.liar(Policy{}, func(ctx context.Context, j *Job) error {
			l := testLayout()
			params := map[string]string{"n_ctx": "300", "model": "test"}
			h := readHeader(j.page.Bytes())
			h.layout, h.description = l.Hash(params), l.Describe(params)
			writeHeader(j.page.Bytes(), h)
			return prefill(ctx, j)
		})
		tokens := prompt(1, 40)
		s := r.share(p, 0, tokens)
		r.wait(s)
		_, err := r.adopt(s, tokens)
		if code(err) != LayoutDiffers || !strings.Contains(err.Error(), `n_ctx is "200" here, the provider has "300"`) {
			t.Error(err)
		}
	})
}
