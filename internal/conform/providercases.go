package conform

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"baton/internal/handoff"
)

// testFill orders cells in the middle of a block: of every tensor the rows before and
// behind are guards.
func (d *fakeDecoder) testFill() error {
	b, drop, err := d.blocks(1)
	if err != nil {
		return err
	}
	defer drop()
	const n = 7
	if err := d.fill(d.ref.prompt(1, n), []part{{b[0], 1, handoff.ReadWrite, 3, n}}); err != nil {
		return err
	}
	d.fds, d.maps, err = d.p.holdings()
	return err
}

// testTwoBlocks orders cells that begin at the end of one block and go on in another,
// which comes first in memory.
func (d *fakeDecoder) testTwoBlocks() error {
	b, drop, err := d.blocks(2)
	if err != nil {
		return err
	}
	defer drop()
	end := d.ref.layout.CellsPerBlock
	return d.fill(d.ref.prompt(2, 5), []part{
		{b[0], 9, handoff.ReadWrite, end - 2, 2},
		{b[1], 4, handoff.ReadWrite, 0, 3},
	})
}

// testPrefix gives cells that are filled, in blocks that cannot be written to. Rows
// after them depend on them in all layers but the first.
func (d *fakeDecoder) testPrefix() error {
	if !d.p.hello.ReadsPrefix {
		return skipped("it says that it does not read prefixes")
	}
	const prefix, rest = 4, 3
	tokens := d.ref.prompt(3, prefix+rest)
	want, err := d.ref.compute(tokens[:prefix])
	if err != nil {
		return err
	}
	defer want.free()
	l := d.ref.layout
	filled, err := newMemory("conform-prefix", l.BlockBytes, func(data []byte) {
		for layer := range l.Layers {
			for v, t := range []struct{ offset, row int }{{l.KOffset[layer], l.KRowBytes}, {l.VOffset[layer], l.VRowBytes}} {
				for pos := range prefix {
					putRow(data[t.offset+(pos+2)*t.row:], want.at(layer, v, pos))
				}
			}
		}
	})
	if err != nil {
		return err
	}
	defer filled.close()
	before := slices.Clone(filled.mapping.Bytes())
	b, drop, err := d.blocks(1)
	if err != nil {
		return err
	}
	defer drop()
	err = d.fill(tokens, []part{{filled, 1, handoff.ReadOnly, 2, prefix}, {b[0], 2, handoff.ReadWrite, 1, rest}})
	if err == nil && !slices.Equal(before, filled.mapping.Bytes()) {
		err = wrongRows{errors.New("the cells of the prefix have changed")}
	}
	return err
}

func putRow(dst []byte, row []uint16) {
	for i, h := range row {
		dst[2*i], dst[2*i+1] = byte(h), byte(h>>8)
	}
}

// testOtherLayout orders a layout that is not the one of the welcome: of a model with a
// layer less.
func (d *fakeDecoder) testOtherLayout() error {
	if d.ref.layout.Layers < 2 {
		return skipped("the model has one layer only")
	}
	b, drop, err := d.blocks(1)
	if err != nil {
		return err
	}
	defer drop()
	t, err := d.give(d.ref.prompt(4, 3), []part{{b[0], 1, handoff.ReadWrite, 0, 3}}, func(o *handoff.Order) {
		o.Layout.Layers--
		o.Layout.KOffsets = o.Layout.KOffsets[:o.Layout.Layers]
		o.Layout.VOffsets = o.Layout.VOffsets[:o.Layout.Layers]
		o.Params, o.Layout.LayoutDigest = otherParams(d.ref.layout, d.ref.params)
	})
	defer t.close()
	if err != nil {
		return err
	}
	r, err := t.reply(d.Timeout, nil)
	if err != nil {
		return err
	}
	switch {
	case r.Filled != nil:
		return wrongRows{fmt.Errorf("it replies that it has filled %d cells", *r.Filled)}
	case r.Code != handoff.LayoutDiffers:
		return wrongRows{fmt.Errorf("it replies with code %q, want %q (error: %s)", r.Code, handoff.LayoutDiffers, r.Error)}
	}
	if err := b[0].untouched(d.ref.layout); err != nil {
		return wrongRows{err}
	}
	return nil
}

// testImpossibleToken orders a token that the model has not.
func (d *fakeDecoder) testImpossibleToken() error {
	b, drop, err := d.blocks(1)
	if err != nil {
		return err
	}
	defer drop()
	tokens := d.ref.prompt(5, 3)
	tokens[1] = int32(d.ref.vocab)
	t, err := d.give(tokens, []part{{b[0], 1, handoff.ReadWrite, 0, 3}}, nil)
	defer t.close()
	if err != nil {
		return err
	}
	r, err := t.reply(d.Timeout, nil)
	if err != nil {
		return err
	}
	if r.Error == "" && *r.Filled > 1 {
		return wrongRows{fmt.Errorf("it replies that it has filled %d cells", *r.Filled)}
	}
	return nil
}

// testCancel orders many cells, one a region, so that the descriptors come in more than
// one batch, and cancels the order once the work has begun.
func (d *fakeDecoder) testCancel() error {
	if d.ref.layout.CellsPerBlock < 300 {
		return skipped("the model has small blocks")
	}
	b, drop, err := d.blocks(1)
	if err != nil {
		return err
	}
	defer drop()
	var parts []part
	for i := range 300 {
		parts = append(parts, part{b[0], uint64(100 + i), handoff.ReadWrite, i, 1})
	}
	t, err := d.give(d.ref.prompt(6, len(parts)), parts, nil)
	defer t.close()
	if err != nil {
		return err
	}
	const grace = 2 * time.Second // then a decoder disconnects
	var begun time.Time
	r, err := t.reply(d.Timeout, func() error {
		begun = time.Now()
		return send(d.p.conn, "cancel", &handoff.Cancel{Ticket: t.order.Ticket})
	})
	if err != nil {
		return err
	}
	if begun.IsZero() {
		return wrongRows{fmt.Errorf("it replies without having filled anything: %s", r.Error)}
	}
	if took := time.Since(begun); took > grace {
		return wrongRows{fmt.Errorf("it replies %v after the cancel, at most %v are allowed: look for it between micro-batches", took.Round(time.Millisecond), grace)}
	}
	filled := int(min(t.header.filled(), uint64(len(parts))))
	if r.Filled != nil {
		filled = *r.Filled
	}
	return t.check(filled)
}

func (d *fakeDecoder) testNothingLeft() error {
	fdsBefore, mapsBefore := d.fds, d.maps
	if err := d.testFill(); err != nil {
		return err
	}
	if d.p.trust == handoff.Attached {
		return skipped("it keeps its mappings")
	}
	if fdsBefore == 0 {
		return skipped("the program was started again, or its first prompt failed")
	}
	if d.fds > fdsBefore || d.maps > mapsBefore {
		return wrongRows{fmt.Errorf("it has %d descriptors and %d of our mappings, after the first prompt it had %d and %d", d.fds, d.maps, fdsBefore, mapsBefore)}
	}
	return nil
}

func (d *fakeDecoder) testEnd() error {
	if err := send(d.p.conn, "bye", &handoff.Bye{}); err != nil {
		return err
	}
	if err := d.p.conn.Close(); err != nil {
		return err
	}
	select {
	case <-d.p.exited:
		return nil
	case <-time.After(5 * time.Second):
		return errors.New("it is still running")
	}
}
