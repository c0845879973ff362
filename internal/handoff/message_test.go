package handoff

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"baton/internal/shm"
)

func testOrder() *Order {
	return &Order{
		Ticket: Ticket{0xab, 0xcd}, Trust: Leased, Pos0: 16, Header: 0, Layout: layoutMessage(testLayout(), testParams),
		Params: testParams, Tokens: prompt(1, 40),
		Regions: []Region{
			{Mode: ReadOnly, Block: 7, FD: 1, Pos: 0, Cell: 0, Cells: 10},
			{Mode: ReadOnly, Block: 9, FD: 2, Pos: 10, Cell: 4, Cells: 6},
			{Mode: ReadWrite, Block: 8, FD: 3, Pos: 16, Cell: 0, Cells: 16},
			{Mode: ReadWrite, Block: 3, FD: 4, Pos: 32, Cell: 0, Cells: 8},
		},
	}
}

func testMessages() map[string]message {
	n := 39
	return map[string]message{
		"hello":   &Hello{Protocol: 1, Name: "npu-1.x_y", PID: 12, Layouts: []Digest{{1}, {2}}, ReadsPrefix: true, Trust: []Trust{Leased, Sealed, Attached}},
		"welcome": &Welcome{Protocol: 1, Trust: Sealed, Layout: layoutMessage(testLayout(), testParams), Params: testParams},
		"reject":  &Reject{Code: LayoutDiffers, Error: "no"},
		"order":   &orderMessage{*testOrder()},
		"reply":   &Reply{Ticket: Ticket{1}, Filled: &n},
		"cancel":  &Cancel{Ticket: Ticket{2}},
		"bye":     &Bye{},
	}
}

func TestMessagesComeBack(t *testing.T) {
	for kind, m := range testMessages() {
		text, err := appendText(nil, m)
		if err != nil {
			t.Fatal(err)
		}
		if !json.Valid(text) || kindOf(m) != kind {
			t.Errorf("%s: %s", kind, text)
		}
		back, err := decode(text)
		if err != nil {
			t.Errorf("%s: %v", kind, err)
			continue
		}
		if diff := cmp.Diff(m, back); diff != "" {
			t.Errorf("%s (-sent +received):\n%s", kind, diff)
		}
	}
	if len(kinds) != len(testMessages()) {
		t.Error("a type of message is not tested")
	}
}

// The texts as other people write them.
func TestMessageTexts(t *testing.T) {
	text, err := appendText(nil, &Hello{Protocol: 1, Name: "npu", PID: 7, Layouts: []Digest{}, Trust: []Trust{Sealed}})
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"hello":{"protocol":1,"name":"npu","pid":7,"layouts":[],"reads_prefix":false,"trust":["sealed"]}}`; string(text) != want {
		t.Errorf("%s, want %s", text, want)
	}
	m, err := decode([]byte(`{ "reply" : {"ticket": "000102030405060708090a0b0c0d0e0f", "error": "out of memory"} }`))
	if r, ok := m.(*Reply); err != nil || !ok || r.Error != "out of memory" || r.Ticket[15] != 15 {
		t.Errorf("%+v, %v", m, err)
	}
}

func TestOrderIsEncodedAsJSONDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := testOrder()
		o.Tokens = rapid.SliceOf(rapid.Int32()).Draw(t, "tokens")
		if o.Tokens == nil {
			o.Tokens = []int32{}
		}
		got, err := o.appendJSON(nil)
		if err != nil {
			t.Fatal(err)
		}
		want, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Fatalf("%s\nwant\n%s", got, want)
		}
	})
}

func TestDecodeRefuses(t *testing.T) {
	const ticket = `"ticket":"00000000000000000000000000000000"`
	for _, c := range []struct{ text, want string }{
		{``, "want an object with one member"},
		{`null`, "want an object with one member"},
		{`[]`, "want an object with one member"},
		{`{}`, "want an object with one member"},
		{`{"bye"}`, "want an object with one member"},
		{`{"bye":{}`, "unexpected EOF"},
		{`{"bye":{},"cancel":{}}`, "something follows"},
		{`{"bye":{}} {}`, "something follows"},
		{`{"bye":{}}}`, "a bracket is closed"},
		{`{"bye":null}`, "want an object"},
		{`{"bye":[]}`, "want an object"},
		{`{"bye":}`, "want an object"},
		{`{"bye":{"x":1}}`, "unknown field"},
		{`{"goodbye":{}}`, `type "goodbye" is unknown`},
		{`{"reply":{` + ticket + `}}`, "either filled or an error"},
		{`{"reply":{` + ticket + `,"filled":1,"error":"x"}}`, "either filled or an error"},
		{`{"reply":{` + ticket + `,"filled":-1}}`, "filled is -1"},
		{`{"reply":{` + ticket + `,"filled":1.5}}`, "cannot unmarshal"},
		{`{"reply":{` + ticket + `,"filled":1,"filled":2}}`, `"filled" comes twice`},
		{`{"reply":{` + ticket + `,"Filled":1}}`, "no upper-case"},
		{`{"reply":{` + ticket + `,"f\u0069lled":1}}`, "no escapes"},
		{`{"reply":{"ticket":"00","filled":1}}`, "32 lower-case hexadecimal digits"},
		{`{"reply":{"ticket":"0000000000000000000000000000000A","filled":1}}`, "lower-case"},
		{`{"reply":{` + ticket + `,"error":"x","code":"bored"}}`, "not in the table"},
		{`{"hello":{"protocol":2,"name":"a","trust":["leased"]}}`, "protocol 2, want 1"},
		{`{"hello":{"protocol":1,"name":"","trust":["leased"]}}`, "name"},
		{`{"hello":{"protocol":1,"name":"a b","trust":["leased"]}}`, "name"},
		{`{"hello":{"protocol":1,"name":"a","trust":[]}}`, "no trust mode"},
		{`{"hello":{"protocol":1,"name":"a","trust":["blind"]}}`, `"blind" is unknown`},
		{`{"bye":[[[[[[[[[]]]]]]]]]}`, "nested"},
		{strings.Repeat("[", 100000), "nested"},
	} {
		if m, err := decode([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.60s: %+v, %v, want %q", c.text, m, err, c.want)
		}
	}
}

func TestOrderValidate(t *testing.T) {
	if err := testOrder().validate(5); err != nil {
		t.Fatal(err)
	}
	attached := testOrder()
	attached.Trust = Attached
	attached.Regions[2].FD, attached.Regions[3].FD = -1, 3
	if err := attached.validate(4); err != nil {
		t.Error(err)
	}
	for name, c := range map[string]struct {
		change func(*Order)
		want   string
	}{
		"pos0 negative":        {func(o *Order) { o.Pos0 = -1 }, "pos0 is -1"},
		"pos0 at the end":      {func(o *Order) { o.Pos0 = 40 }, "pos0 is 40"},
		"no tokens":            {func(o *Order) { o.Tokens = nil }, "0 tokens"},
		"negative token":       {func(o *Order) { o.Tokens[3] = -5 }, "token 3 is -5"},
		"header out of range":  {func(o *Order) { o.Header = 5 }, "header: descriptor 5 of 5"},
		"descriptor twice":     {func(o *Order) { o.Regions[1].FD = 1 }, "used twice"},
		"descriptor of nobody": {func(o *Order) { o.Regions = o.Regions[:3]; o.Tokens = o.Tokens[:32] }, "descriptor 4 belongs to no region"},
		"negative descriptor":  {func(o *Order) { o.Regions[2].FD = -1 }, "descriptor -1"},
		"gap":                  {func(o *Order) { o.Regions[1].Pos = 11 }, "from position 11, want ro from 10"},
		"rw prefix":            {func(o *Order) { o.Regions[0].Mode = ReadWrite }, "is rw from position 0, want ro"},
		"ro to be filled":      {func(o *Order) { o.Regions[3].Mode = ReadOnly }, "want rw"},
		"ro beyond pos0":       {func(o *Order) { o.Regions[1].Cells = 7; o.Regions[2].Pos = 17; o.Regions[2].Cells = 15 }, "read only beyond"},
		"beyond the block":     {func(o *Order) { o.Regions[3].Cell = 9 }, "not within a block of 16"},
		"overflow":             {func(o *Order) { o.Regions[3].Cell = 1 << 62; o.Regions[3].Cells = 1 << 62 }, "not within a block"},
		"no cells":             {func(o *Order) { o.Regions[0].Cells = 0 }, "0 cells"},
		"block twice":          {func(o *Order) { o.Regions[3].Block = 8 }, "block 8 is in two regions"},
		"too few cells":        {func(o *Order) { o.Tokens = append(o.Tokens, 1) }, "hold 40 cells, there are 41 tokens"},
		"overlapping tensors":  {func(o *Order) { o.Layout.VOffsets = append([]int{}, o.Layout.KOffsets...) }, "overlap"},
		"tensor outside":       {func(o *Order) { o.Layout.BlockBytes = 1000 }, "not within the block"},
		"unaligned":            {func(o *Order) { o.Layout.KOffsets = append([]int{8}, o.Layout.KOffsets[1:]...) }, "multiple of 64"},
		"huge rows":            {func(o *Order) { o.Layout.KRowBytes = 1 << 40 }, "rows of"},
		"offsets missing":      {func(o *Order) { o.Layout.KOffsets = nil }, "0 K and 3 V offsets"},
	} {
		o := testOrder()
		c.change(o)
		if err := o.validate(5); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// Whatever is accepted comes back the same when it is sent on: there is one encoding.
func FuzzDecode(f *testing.F) {
	for _, m := range testMessages() {
		text, err := appendText(nil, m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(`{"reply":{"ticket":"00000000000000000000000000000000","error":"x","Error":"y"}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := decode(text)
		if err != nil {
			return
		}
		if o, ok := m.(*orderMessage); ok && o.Order.validate(5) != nil {
			return
		}
		again, err := appendText(nil, m)
		if err != nil {
			t.Fatal(err)
		}
		back, err := decode(again)
		if err != nil {
			t.Fatalf("%s: %v", again, err)
		}
		if diff := cmp.Diff(m, back); diff != "" {
			t.Errorf("%s\n%s", again, diff)
		}
	})
}

// checkKeys finds a doubled name exactly where one is.
func TestCheckKeys(t *testing.T) {
	for text, ok := range map[string]bool{
		`{"a":1,"b":{"a":2},"c":[{"a":1},{"a":2}]}`: true,
		`{"a":"a","b":"\"a\":"}`:                    true,
		`{"a":"B\\"}`:                               true,
		`{"a":1,"a":1}`:                             false,
		`{"b":{"a":1,"a":1}}`:                       false,
		`[{"a":1,"a":1}]`:                           false,
		`{"A":1}`:                                   false,
		`{"a`:                                       false,
		`}`:                                         false,
		`["a":1]`:                                   false,
	} {
		if err := checkKeys([]byte(text)); (err == nil) != ok {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestReadMessageRefuses(t *testing.T) {
	fds, _ := leftovers(t)
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	frame := func(n, files uint32, text string) []byte {
		b := binary.LittleEndian.AppendUint32(nil, n)
		return append(binary.LittleEndian.AppendUint32(b, files), text...)
	}
	for name, c := range map[string]struct {
		send func(*net.UnixConn) error
		want string
	}{
		"nothing":   {func(*net.UnixConn) error { return nil }, "EOF"},
		"half":      {func(c *net.UnixConn) error { _, err := c.Write(frame(10, 0, `{"by`)); return err }, "unexpected EOF"},
		"too long":  {func(c *net.UnixConn) error { _, err := c.Write(frame(1001, 0, "")); return err }, "1001 bytes"},
		"too many":  {func(c *net.UnixConn) error { _, err := c.Write(frame(10, maxFDs+1, "")); return err }, "descriptors, at most"},
		"no JSON":   {func(c *net.UnixConn) error { _, err := c.Write(frame(11, 0, `{"bye":{x}}`)); return err }, "invalid character"},
		"a hangup":  {func(c *net.UnixConn) error { _, err := c.Write(frame(10, 1, `{"bye":{}}`)); return err }, "EOF"},
		"with file": {func(c *net.UnixConn) error { return writeMessage(c, &Bye{}, []*os.File{file}) }, "1 descriptors with a message that has none"},
		"wrong order": {func(c *net.UnixConn) error {
			return writeMessage(c, &orderMessage{*testOrder()}, []*os.File{file, file})
		}, "order: region 1: descriptor 2 of 2"},
		"other number": {func(c *net.UnixConn) error {
			if _, err := c.Write(frame(10, 2, `{"bye":{}}`)); err != nil {
				return err
			}
			if err := shm.SendFDs(c, []*os.File{file}); err == nil {
				return errors.New("the sender was not told")
			}
			return nil
		}, "expected are 2"},
	} {
		a, b := socketpair(t)
		sent := make(chan error, 1)
		go func() { sent <- errors.Join(c.send(a), a.Close()) }()
		limit := 1000
		if name == "wrong order" {
			limit = maxText
		}
		if err := b.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
			t.Fatal(err)
		}
		m, files, err := readMessage(b, limit)
		if err == nil || files != nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v with %d files, %v, want %q", name, m, len(files), err, c.want)
		}
		b.Close()
		if err := <-sent; err != nil && !errors.Is(err, io.EOF) {
			t.Errorf("%s: the sender: %v", name, err)
		}
	}
	file.Close()
	if n, _ := leftovers(t); n != fds {
		t.Errorf("%d descriptors are open, %d were at the start", n, fds)
	}
}
