package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"baton/internal/engine"
)

// fill gives every field below v a value that is not its zero, so that a field which a
// message forgets shows.
func fill(t *testing.T, v reflect.Value, n *int) {
	t.Helper()
	*n++
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(int64(*n))
	case reflect.Uint8, reflect.Uint64:
		v.SetUint(uint64(*n))
	case reflect.Float32, reflect.Float64:
		v.SetFloat(float64(*n) + 0.1)
	case reflect.String:
		v.SetString(strings.Repeat("é\"<\n", *n%3+1))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem(), n)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			fill(t, v.Index(i), n)
		}
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(t, key, n)
		fill(t, value, n)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Interface: // error is the only one
		v.Set(reflect.ValueOf(&engine.Error{Code: engine.CodeTooLong, Message: "m", Param: "p", Prompt: 7, Ctx: 5}))
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Unix(int64(*n), 123456789)))
			return
		}
		for i := range v.NumField() {
			fill(t, v.Field(i), n)
		}
	default:
		t.Fatalf("a field of kind %v: teach the test and the messages about it", v.Kind())
	}
}

func filled[T any](t *testing.T) *T {
	t.Helper()
	v, n := new(T), 0
	fill(t, reflect.ValueOf(v).Elem(), &n)
	return v
}

// exactly compares floats by their bits, but any NaN with any other.
var exactly = cmp.Options{
	cmp.Comparer(func(a, b float32) bool {
		return math.Float32bits(a) == math.Float32bits(b) || math.IsNaN(float64(a)) && math.IsNaN(float64(b))
	}),
	cmp.Comparer(sameError),
}

func sameError(a, b error) bool {
	var x, y *engine.Error
	if errors.As(a, &x) && errors.As(b, &y) {
		return *x == *y
	}
	return errors.Is(a, b)
}

// line returns v as a message.
func line(t testing.TB, v any) []byte {
	t.Helper()
	var buf bytes.Buffer
	if err := appendMessage(&buf, v); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// Every field of every type arrives as it was sent.
func TestEveryFieldArrives(t *testing.T) {
	t.Run("request", func(t *testing.T) {
		r := filled[engine.Request](t)
		r.Sampling.LogitBias = append(r.Sampling.LogitBias, engine.TokenBias{Token: 3, Bias: float32(math.Inf(-1))},
			engine.TokenBias{Token: 4, Bias: float32(math.Inf(1))}, engine.TokenBias{Token: 5, Bias: float32(math.NaN())})
		r.Prompt = []int32{0, 1, -1, math.MaxInt32, math.MinInt32}
		data, err := encodeRequest(r)
		if err != nil {
			t.Fatal(err)
		}
		got, err := decodeRequest(data)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(r, got, exactly); d != "" {
			t.Error(d)
		}
	})
	t.Run("event", func(t *testing.T) {
		e := filled[engine.Event](t)
		e.Kind = engine.Done
		e.Logprob.Logprob, e.Top[0].Logprob = float32(math.Inf(-1)), float32(math.NaN())
		var buf bytes.Buffer
		if err := appendEvent(&buf, e); err != nil {
			t.Fatal(err)
		}
		if n := bytes.Count(buf.Bytes(), []byte("\n")); n != 1 || !bytes.HasSuffix(buf.Bytes(), []byte("\n")) {
			t.Errorf("an event with line breaks takes %d lines: %q", n, buf.Bytes())
		}
		got, err := decodeEvent(buf.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(e, &got, exactly); d != "" {
			t.Error(d)
		}
	})
	t.Run("stats", func(t *testing.T) {
		s := filled[engine.Stats](t)
		s.Slots[0].Sampling.LogitBias[0].Bias = float32(math.Inf(-1))
		var m statsMessage
		if err := parseMessage(line(t, toStats(*s)), &m); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(*s, m.value(), exactly); d != "" {
			t.Error(d)
		}
	})
	t.Run("info", func(t *testing.T) {
		i := filled[engine.Info](t)
		var m infoMessage
		if err := parseMessage(line(t, infoMessage{protocol, *i}), &m); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(infoMessage{protocol, *i}, m); d != "" {
			t.Error(d)
		}
	})
}

func TestErrorsArrive(t *testing.T) {
	for _, c := range []struct{ sent, want error }{
		{nil, nil},
		{context.Canceled, context.Canceled},
		{engine.TooLong(9, 8), engine.TooLong(9, 8)},
		{errors.New("broken"), &engine.Error{Code: engine.CodeInternal, Message: "broken"}},
	} {
		e := engine.Event{Kind: engine.Done, Result: &engine.Result{Reason: engine.Failed, Err: c.sent}}
		var buf bytes.Buffer
		if err := appendEvent(&buf, &e); err != nil {
			t.Fatal(err)
		}
		got, err := decodeEvent(buf.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		if !sameError(got.Result.Err, c.want) {
			t.Errorf("%v arrived as %#v, want %#v", c.sent, got.Result.Err, c.want)
		}
	}
}

func TestFloatsArriveExactly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := math.Float32frombits(rapid.Uint32().Draw(t, "bits"))
		b, err := json.Marshal(number(f))
		if err != nil {
			t.Fatal(err)
		}
		var got number
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatal(err)
		}
		if !cmp.Equal(f, float32(got), exactly) {
			t.Fatalf("%x became %s and then %x", math.Float32bits(f), b, math.Float32bits(float32(got)))
		}
	})
}

func TestBadMessages(t *testing.T) {
	for _, c := range []struct{ name, data, says string }{
		{"nothing", ``, "EOF"},
		{"no JSON", `tokens`, "invalid character"},
		{"two values", `{} {}`, "more than one"},
		{"unknown field", `{"Temprature": 1}`, "Temprature"},
		{"unknown sampling field", `{"Sampling": {"TopQ": 1}}`, "TopQ"},
		{"half a token", "{\"Prompt\": 1}\nabcde", "5 bytes"},
		{"missing tokens", "{\"Prompt\": 2}\nabcd", "2 tokens"},
		{"no tokens", `{"Prompt": 1}`, "0 bytes"},
		{"unannounced tokens", "{}\nabcd", "4 bytes"},
		{"fewer than none", "{\"Prompt\": -1}\n", "-1 tokens"},
		{"tokens in digits", `{"Prompt": [1]}`, "array"},
		{"bias of text", `{"Sampling": {"LogitBias": [{"Token": 1, "Bias": "much"}]}}`, "much"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if r, err := decodeRequest([]byte(c.data)); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %+v, %v, want an error with %q", r, err, c.says)
			}
		})
	}
	for _, data := range []string{`{"Kind": 3}`, `{"Kind": 2}`, `{"Kind": 1, "Result": {}}`, `{"Kind": -1}`, `[]`} {
		if e, err := decodeEvent([]byte(data)); err == nil {
			t.Errorf("%s was read as %+v", data, e)
		}
	}
	bad := engine.NewRequest([]int32{1})
	bad.Sampling.TopP = float32(math.NaN())
	if data, err := encodeRequest(bad); err == nil {
		t.Errorf("NaN where a number has to be became %s", data)
	}
	bad = engine.NewRequest(make([]int32, maxPrompt+1))
	if _, err := encodeRequest(bad); err == nil || !strings.Contains(err.Error(), "shorten") {
		t.Errorf("a prompt beyond all limits: %v", err)
	}
}

func FuzzEvent(f *testing.F) {
	for _, e := range []engine.Event{
		{Kind: engine.Token, Token: 5, Text: " fox", Logprob: engine.TokenLogprob{Token: 5, Logprob: float32(math.Inf(-1))},
			Top: []engine.TokenLogprob{{Token: 1, Logprob: -0.25}}},
		{Kind: engine.Progress, Prompt: 512, PromptOf: 1024, Timings: &engine.Timings{PromptN: 3}},
		{Kind: engine.Done, Result: &engine.Result{Reason: engine.Failed, Err: engine.TooLong(2, 1)}},
	} {
		var buf bytes.Buffer
		if err := appendEvent(&buf, &e); err != nil {
			f.Fatal(err)
		}
		f.Add(buf.Bytes())
	}
	f.Add([]byte(`{"Kind":2,"Result":{"Err":{"Code":"cancelled"}}}`))
	f.Add([]byte(`{"Top":[{"Logprob":"NaN"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := decodeEvent(data)
		if err != nil {
			return
		}
		var buf bytes.Buffer
		if err := appendEvent(&buf, &e); err != nil {
			t.Fatalf("an event that was read cannot be sent: %v", err)
		}
		again, err := decodeEvent(buf.Bytes())
		if err != nil || !cmp.Equal(e, again, exactly) {
			t.Fatalf("%q arrived differently (%v):\n%s", data, err, cmp.Diff(e, again, exactly))
		}
	})
}

func FuzzRequest(f *testing.F) {
	r := engine.NewRequest([]int32{1, 2, 3})
	r.Stop, r.Sampling.LogitBias = []string{"\n"}, []engine.TokenBias{{Token: 2, Bias: float32(math.Inf(-1))}}
	data, err := encodeRequest(r)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte("{\"Prompt\":1,\"Sampling\":{\"LogitBias\":[{\"Bias\":\"NaN\"}]}}\nabcd"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := decodeRequest(data)
		if err != nil {
			return
		}
		again, err := encodeRequest(r)
		if err != nil {
			t.Fatalf("a request that was read cannot be sent: %v", err)
		}
		got, err := decodeRequest(again)
		if err != nil || !slices.Equal(r.Prompt, got.Prompt) || !cmp.Equal(r.Sampling, got.Sampling, exactly) {
			t.Fatalf("%q arrived differently: %v", data, err)
		}
	})
}
