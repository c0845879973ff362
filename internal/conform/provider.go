package conform

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"baton/internal/handoff"
	"baton/internal/kv"
)

// Provider tests the provider that a command starts. In its arguments {} stands for the
// path of a socket to connect to; without it the program inherits a connection as
// descriptor 3.
func Provider(ctx context.Context, o Options, argv []string) (_ *Report, err error) {
	o.fill()
	ref, err := newReference(&o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, ref.close()) }()
	d := &fakeDecoder{Options: o, ref: ref, argv: argv}
	defer func() {
		if d.p != nil {
			err = errors.Join(err, d.p.stop())
		}
	}()
	report := &Report{out: o.Out}
	for _, t := range providerTests {
		if err := ctx.Err(); err != nil {
			return report, err
		}
		if err := report.result(t.name, d.run(ctx, t.run)); err != nil {
			return report, err
		}
	}
	return report, report.summary()
}

// fakeDecoder is a decoder's end of a connection with a provider.
type fakeDecoder struct {
	Options
	ref  *reference
	argv []string
	p    *program // nil: it is to be started

	fds, maps int // what it had open and mapped after its first prompt
}

var providerTests = []struct {
	name string
	run  func(*fakeDecoder) error
}{
	{"introduces itself within 5 s: protocol, name, trust modes", (*fakeDecoder).testHello},
	{"fills the cells that it is told to, with the right rows, and touches nothing else", (*fakeDecoder).testFill},
	{"fills cells of two blocks", (*fakeDecoder).testTwoBlocks},
	{"attends to a prefix that others filled, and fills the rest", (*fakeDecoder).testPrefix},
	{"refuses an order for another layout, and writes nothing", (*fakeDecoder).testOtherLayout},
	{"answers an order with an impossible token by an error", (*fakeDecoder).testImpossibleToken},
	{"takes more than 250 descriptors; stops when told to; what it claims is there", (*fakeDecoder).testCancel},
	{"works on after all that, and has nothing left open or mapped", (*fakeDecoder).testNothingLeft},
	{"ends within 5 s when the connection is closed", (*fakeDecoder).testEnd},
}

// run runs a test, with a program that is started if there is none. One whose connection
// is out of step is stopped.
func (d *fakeDecoder) run(ctx context.Context, test func(*fakeDecoder) error) error {
	if d.p == nil {
		p, err := startProgram(ctx, d.argv)
		if err != nil {
			return err
		}
		d.p = p
		if err := d.greet(); err != nil {
			return d.giveUp(err)
		}
	}
	err := test(d)
	var wrong wrongRows
	var skip skipped
	if err != nil && !errors.As(err, &wrong) && !errors.As(err, &skip) {
		return d.giveUp(err)
	}
	return err
}

// giveUp stops the program.
func (d *fakeDecoder) giveUp(err error) error {
	err = d.p.ended(err)
	err = errors.Join(err, d.p.stop())
	d.p = nil
	return err
}

// wrongRows is a finding after which the connection is still in step.
type wrongRows struct{ error }

func (d *fakeDecoder) greet() error {
	if _, err := receive(d.p.conn, 5*time.Second, "hello", &d.p.hello); err != nil {
		return err
	}
	h := &d.p.hello
	if h.Protocol != handoff.Protocol || len(h.Trust) == 0 {
		return fmt.Errorf("hello: protocol %d and trust modes %v, want protocol %d and at least one mode", h.Protocol, h.Trust, handoff.Protocol)
	}
	if digest := handoff.Digest(d.ref.layout.Hash(d.ref.params)); len(h.Layouts) > 0 && !slices.Contains(h.Layouts, digest) {
		return fmt.Errorf("hello: it writes %d layouts, and not that of this model (%s): is -m its model?", len(h.Layouts), digest)
	}
	d.p.trust = h.Trust[0]
	for _, mode := range []handoff.Trust{handoff.Leased, handoff.Sealed} { // the strictest of its modes
		if slices.Contains(h.Trust, mode) {
			d.p.trust = mode
		}
	}
	return send(d.p.conn, "welcome", &handoff.Welcome{Protocol: handoff.Protocol, Trust: d.p.trust, Layout: d.ref.message(), Params: d.ref.params})
}

func (d *fakeDecoder) testHello() error {
	for _, c := range []byte(d.p.hello.Name) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-' {
			return fmt.Errorf("hello: name %q: must be 1 to 64 characters of a-z, 0-9, '.', '_' and '-'", d.p.hello.Name)
		}
	}
	if n := len(d.p.hello.Name); n < 1 || n > 64 {
		return fmt.Errorf("hello: a name of %d characters, must be 1 to 64", n)
	}
	return nil
}

// part is consecutive cells of an order.
type part struct {
	block *memory
	id    uint64
	mode  handoff.Mode
	cell  int
	n     int
}

// task is an order on its way.
type task struct {
	d      *fakeDecoder
	order  handoff.Order
	parts  []part
	header *memory
}

// give sends an order for a prompt in these cells.
func (d *fakeDecoder) give(tokens []int32, parts []part, change func(*handoff.Order)) (*task, error) {
	header, err := newHeader()
	if err != nil {
		return nil, err
	}
	t := &task{d: d, parts: parts, header: header}
	t.order = handoff.Order{Trust: d.p.trust, Layout: d.ref.message(), Params: d.ref.params, Tokens: tokens}
	rand.Read(t.order.Ticket[:])
	var files []*os.File
	defer func() {
		for _, f := range files {
			_ = f.Close() // sent, or of no use
		}
	}()
	file, err := writer(header)
	if err != nil {
		return t, err
	}
	files = append(files, file)
	pos := 0
	for _, p := range parts {
		if p.mode == handoff.ReadOnly {
			t.order.Pos0 += p.n
			file, err = p.block.reader.Dup()
		} else {
			file, err = writer(p.block)
		}
		if err != nil {
			return t, err
		}
		t.order.Regions = append(t.order.Regions, handoff.Region{Mode: p.mode, Block: p.id, FD: len(files), Pos: pos, Cell: p.cell, Cells: p.n})
		files = append(files, file)
		pos += p.n
	}
	if change != nil {
		change(&t.order)
	}
	return t, send(d.p.conn, "order", &t.order, files...)
}

// writer is a descriptor that can be used to write, and that the kernel counts.
func writer(m *memory) (*os.File, error) {
	o, err := m.object.ReopenReadWrite()
	if err != nil {
		return nil, err
	}
	return o.Detach()
}

func (t *task) close() {
	if t != nil {
		_ = t.header.close() // only tests have it
	}
}

// reply waits for the reply, and looks at what the header page claims meanwhile. It calls
// begun, if that is not nil, when the first rows are claimed.
func (t *task) reply(within time.Duration, begun func() error) (*handoff.Reply, error) {
	type answer struct {
		reply *handoff.Reply
		err   error
	}
	replied := make(chan answer, 1)
	go func() {
		r := new(handoff.Reply)
		_, err := receive(t.d.p.conn, within, "reply", r)
		replied <- answer{r, err}
	}()
	var early error
	seen := uint64(t.order.Pos0)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case a := <-replied:
			if a.err != nil {
				return nil, a.err
			}
			if a.reply.Ticket != t.order.Ticket {
				return nil, fmt.Errorf("the reply is to ticket %s, want %s", a.reply.Ticket, t.order.Ticket)
			}
			if (a.reply.Filled == nil) == (a.reply.Error == "") {
				return nil, errors.New("the reply has neither filled nor an error, or both")
			}
			return a.reply, early
		case <-tick.C:
			now := t.header.filled()
			if begun != nil && now > 0 {
				if err := begun(); err != nil {
					return nil, err
				}
				begun = nil
			}
			if now != seen && now <= uint64(len(t.order.Tokens)) && early == nil {
				early = t.written(int(now))
			}
			seen = now
		}
	}
}

// each visits the cells that are to be filled, up to a position.
func (t *task) each(to int, visit func(p *part, pos, cell int) error) error {
	pos := 0
	for i := range t.parts {
		p := &t.parts[i]
		for c := range p.n {
			if p.mode == handoff.ReadWrite && pos < to {
				if err := visit(p, pos, p.cell+c); err != nil {
					return err
				}
			}
			pos++
		}
	}
	return nil
}

// written checks that no row up to a position is as it was handed out.
func (t *task) written(to int) error {
	l := t.d.ref.layout
	return t.each(to, func(p *part, pos, cell int) error {
		for layer := range l.Layers {
			for v := range 2 {
				if guarded(p.block.row(l, layer, v, cell)) {
					return wrongRows{fmt.Errorf("filled is %d in the header page, but %s", to, rowName(layer, v, pos)+" is not written yet")}
				}
			}
		}
		return nil
	})
}

func rowName(layer, v, pos int) string {
	return fmt.Sprintf("the %s row of position %d, layer %d", [2]string{"K", "V"}[v], pos, layer)
}

// check checks everything of an order that was replied to: that all is let go, the
// header page, the rows up to filled, and every byte around the cells.
func (t *task) check(filled int) error {
	if t.d.p.trust != handoff.Attached {
		for _, m := range append([]*memory{t.header}, t.writable()...) {
			if err := m.released(); err != nil {
				return wrongRows{err}
			}
		}
	}
	if err := t.header.checkHeader(&t.order); err != nil {
		return wrongRows{err}
	}
	if claimed := t.header.filled(); claimed != uint64(filled) {
		return wrongRows{fmt.Errorf("filled is %d in the header page and %d in the reply", claimed, filled)}
	}
	want, err := t.d.ref.compute(t.order.Tokens[:filled])
	if err != nil {
		return err
	}
	defer want.free()
	l := t.d.ref.layout
	err = t.each(filled, func(p *part, pos, cell int) error {
		for layer := range l.Layers {
			for v := range 2 {
				row := p.block.row(l, layer, v, cell)
				if guarded(row) {
					return fmt.Errorf("%s is not written", rowName(layer, v, pos))
				}
				if e := differ(halves(row), want.at(layer, v, pos)); !(e <= t.d.Tolerance) {
					return fmt.Errorf("%s has a relative error of %.3g, at most %g is allowed", rowName(layer, v, pos), e, t.d.Tolerance)
				}
			}
		}
		return nil
	})
	if err == nil {
		err = t.untouched()
	}
	if err != nil {
		return wrongRows{err}
	}
	return nil
}

// writable are the blocks to be filled.
func (t *task) writable() (list []*memory) {
	for _, p := range t.parts {
		if p.mode == handoff.ReadWrite && !slices.Contains(list, p.block) {
			list = append(list, p.block)
		}
	}
	return list
}

// untouched checks the bytes around the cells that may be written.
func (t *task) untouched() error {
	for _, m := range t.writable() {
		var may []cells
		for _, p := range t.parts {
			if p.block == m && p.mode == handoff.ReadWrite {
				may = append(may, cells{p.cell, p.n})
			}
		}
		if err := m.untouched(t.d.ref.layout, may...); err != nil {
			return err
		}
	}
	return nil
}

// blocks makes n blocks, which drop closes.
func (d *fakeDecoder) blocks(n int) (list []*memory, drop func(), err error) {
	drop = func() {
		for _, m := range list {
			_ = m.close() // only tests have it
		}
	}
	for range n {
		m, err := newBlock(d.ref.layout)
		if err != nil {
			drop()
			return nil, nil, err
		}
		list = append(list, m)
	}
	return list, drop, nil
}

// fill has a prompt filled and checks everything.
func (d *fakeDecoder) fill(tokens []int32, parts []part) error {
	t, err := d.give(tokens, parts, nil)
	defer t.close()
	if err != nil {
		return err
	}
	r, err := t.reply(d.Timeout, nil)
	if err != nil {
		return err
	}
	if r.Filled == nil {
		return wrongRows{fmt.Errorf("it replies with an error: %s", r.Error)}
	}
	if *r.Filled != len(tokens) {
		return wrongRows{fmt.Errorf("it has filled %d of %d cells", *r.Filled, len(tokens))}
	}
	return t.check(*r.Filled)
}

// otherParams is what another model would have.
func otherParams(l *kv.Layout, params map[string]string) (map[string]string, handoff.Digest) {
	other := maps.Clone(params)
	other["model"] = "0000000000000000000000000000000000000000000000000000000000000000"
	return other, l.Hash(other)
}
