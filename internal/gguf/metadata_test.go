package gguf_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"baton/internal/gguf"
)

func parsed(t testing.TB, fill func(*gguf.Builder)) *gguf.File {
	t.Helper()
	f, err := gguf.Parse(build(t, fill), "m.gguf")
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// got folds an accessor's results into one text for comparison.
func got[T any](v T, err error) string {
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(v)
}

func got3[T any](v T, ok bool, err error) string {
	if !ok && err == nil {
		return "absent"
	}
	return got(v, err)
}

func TestAccessors(t *testing.T) {
	f := parsed(t, func(b *gguf.Builder) {
		sample(b)
		b.SetFloat32("nan", float32(math.NaN()))
		b.SetFloat64("inf", math.Inf(-1))
	})
	const p = "gguf: m.gguf: key "
	for _, c := range []struct{ name, got, want string }{
		{"uint32", got3(f.Uint("u32")), "7"},
		{"uint64", got3(f.Uint("u64")), "1099511627776"},
		{"uint of absent", got3(f.Uint("x")), "absent"},
		{"uint of negative", got3(f.Uint("i32")), p + `"i32" is -3 (int32), wanted a non-negative integer`},
		{"uint of float", got3(f.Uint("f32")), p + `"f32" is float32, wanted a non-negative integer`},
		{"uint of array", got3(f.Uint("ints")), p + `"ints" is array of 2 int32, wanted a non-negative integer`},
		{"uint of bool", got3(f.Uint("yes")), p + `"yes" is bool, wanted a non-negative integer`},
		{"need uint", got(f.NeedUint("u32")), "7"},
		{"need absent uint", got(f.NeedUint("x")), p + `"x" is missing, wanted a non-negative integer`},
		{"uint or", got(f.UintOr("u32", 9)), "7"},
		{"absent uint or", got(f.UintOr("x", 9)), "9"},
		{"uint or of string", got(f.UintOr("general.architecture", 9)), p + `"general.architecture" is string, wanted a non-negative integer`},

		{"float32", got3(f.Float("f32")), "0.5"},
		{"float64", got(f.NeedFloat("f64")), "-1e+300"},
		{"float of integer", got3(f.Float("u32")), p + `"u32" is uint32, wanted a finite float`},
		{"float of NaN", got(f.FloatOr("nan", 1)), p + `"nan" is NaN, wanted a finite float`},
		{"float of infinity", got(f.NeedFloat("inf")), p + `"inf" is -Inf, wanted a finite float`},
		{"absent float or", got(f.FloatOr("x", 2.5)), "2.5"},
		{"need absent float", got(f.NeedFloat("x")), p + `"x" is missing, wanted a finite float`},

		{"true", got3(f.Bool("yes")), "true"},
		{"false", got(f.BoolOr("no", true)), "false"},
		{"absent bool or", got(f.BoolOr("x", true)), "true"},
		{"bool of integer", got3(f.Bool("u32")), p + `"u32" is uint32, wanted a bool`},

		{"string", got3(f.String("general.architecture")), "llama"},
		{"need string", got(f.NeedString("general.architecture")), "llama"},
		{"absent string or", got(f.StringOr("x", "def")), "def"},
		{"need absent string", got(f.NeedString("x")), p + `"x" is missing, wanted a string`},
		{"string of array", got(f.StringOr("words", "")), p + `"words" is array of 3 string, wanted a string`},

		{"strings", got3(f.Strings("words")), "[ a \xff\x00]"},
		{"no strings", got3(f.Strings("none")), "[]"},
		{"absent strings", got3(f.Strings("x")), "absent"},
		{"strings of ints", got3(f.Strings("ints")), p + `"ints" is array of 2 int32, wanted an array of strings`},
		{"strings of string", got3(f.Strings("general.architecture")), p + `"general.architecture" is string, wanted an array of strings`},

		{"ints", got3(f.Ints("ints")), "[1 -2]"},
		{"ints of int", got3(f.Ints("i32")), p + `"i32" is int32, wanted an array of 32-bit integers`},
		{"ints of floats", got3(f.Ints("floats")), p + `"floats" is array of 2 float32, wanted an array of 32-bit integers`},

		{"floats", got3(f.Floats("floats")), "[1.5 -2]"},
		{"floats of ints", got3(f.Floats("ints")), p + `"ints" is array of 2 int32, wanted an array of floats`},
	} {
		if c.got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, c.got, c.want)
		}
	}
}

// widths is a file written by hand, with every value type alone and in an array.
var widths = "GGUF\x03\x00\x00\x00" + u64(0) + u64(25) +
	kv("u8", 0, "\xff") + kv("i8", 1, "\xff") + kv("u16", 2, "\xfe\xff") + kv("i16", 3, "\xfe\xff") +
	kv("u32", 4, "\xfd\xff\xff\xff") + kv("i32", 5, "\xfd\xff\xff\xff") + kv("f32", 6, "\x00\x00\xc0\xbf") +
	kv("bool", 7, "\x01") + kv("str", 8, u64(2)+"hi") +
	kv("u64", 10, "\xfc\xff\xff\xff\xff\xff\xff\xff") + kv("i64", 11, "\xfc\xff\xff\xff\xff\xff\xff\xff") +
	kv("f64", 12, "\x00\x00\x00\x00\x00\x00\xf8\xbf") +
	kv("[u8]", 9, arr(0, 2)+"\x01\xff") + kv("[i8]", 9, arr(1, 2)+"\x01\xff") +
	kv("[u16]", 9, arr(2, 1)+"\x02\x01") + kv("[i16]", 9, arr(3, 1)+"\x00\x80") +
	kv("[u32]", 9, arr(4, 1)+"\x00\x00\x00\x80") + kv("[i32]", 9, arr(5, 1)+"\x00\x00\x00\x80") +
	kv("[f32]", 9, arr(6, 1)+"\x00\x00\xc0\xbf") + kv("[bool]", 9, arr(7, 2)+"\x00\x01") +
	kv("[str]", 9, arr(8, 1)+u64(1)+"x") + kv("[u64]", 9, arr(10, 1)+u64(5)) +
	kv("[i64]", 9, arr(11, 1)+u64(1<<31)) + kv("[f64]", 9, arr(12, 1)+u64(0x3ff8000000000000)) +
	kv("[[]]", 9, arr(9, 2)+arr(4, 1)+"\x07\x00\x00\x00"+arr(9, 1)+arr(8, 2)+u64(1)+"a"+u64(0))

func u64(n uint64) string {
	var b []byte
	for range 8 {
		b = append(b, byte(n))
		n >>= 8
	}
	return string(b)
}
func u32(n uint32) string                      { return u64(uint64(n))[:4] }
func kv(key string, t uint32, v string) string { return u64(uint64(len(key))) + key + u32(t) + v }
func arr(elem uint32, n uint64) string         { return u32(elem) + u64(n) }

func TestValueTypes(t *testing.T) {
	f, err := gguf.Parse([]byte(widths), "m.gguf")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]any{}
	for _, key := range f.Keys() {
		v, _ := f.Value(key)
		if v.Type() == gguf.Array {
			list := []any{v.Kind()}
			for e := range v.All() {
				if e.Type() == gguf.Array {
					list = append(list, e.Kind())
				} else {
					list = append(list, e.Any())
				}
			}
			all[key] = list
		} else {
			all[key] = v.Any()
		}
	}
	want := map[string]any{
		"u8": uint64(255), "i8": int64(-1), "u16": uint64(65534), "i16": int64(-2),
		"u32": uint64(1<<32 - 3), "i32": int64(-3), "f32": float32(-1.5), "bool": true, "str": "hi",
		"u64": uint64(1<<64 - 4), "i64": int64(-4), "f64": -1.5,
		"[u8]": []any{"array of 2 uint8", uint64(1), uint64(255)}, "[i8]": []any{"array of 2 int8", int64(1), int64(-1)},
		"[u16]": []any{"array of 1 uint16", uint64(258)}, "[i16]": []any{"array of 1 int16", int64(-32768)},
		"[u32]": []any{"array of 1 uint32", uint64(1 << 31)}, "[i32]": []any{"array of 1 int32", int64(-1 << 31)},
		"[f32]": []any{"array of 1 float32", float32(-1.5)}, "[bool]": []any{"array of 2 bool", false, true},
		"[str]": []any{"array of 1 string", "x"}, "[u64]": []any{"array of 1 uint64", uint64(5)},
		"[i64]": []any{"array of 1 int64", int64(1 << 31)}, "[f64]": []any{"array of 1 float64", 1.5},
		"[[]]": []any{"array of 2 array", "array of 1 uint32", "array of 1 array"},
	}
	if diff := cmp.Diff(want, all); diff != "" {
		t.Errorf("values (-want +got):\n%s", diff)
	}

	for _, c := range []struct{ name, got, want string }{
		{"uint8 as uint", got3(f.Uint("u8")), "255"},
		{"uint64 as uint", got3(f.Uint("u64")), "18446744073709551612"},
		{"int16 as uint", got3(f.Uint("i16")), `gguf: m.gguf: key "i16" is -2 (int16), wanted a non-negative integer`},
		{"float32", got3(f.Float("f32")), "-1.5"},
		{"float64", got3(f.Float("f64")), "-1.5"},
		{"uint8 array", got3(f.Ints("[u8]")), "[1 255]"},
		{"int8 array", got3(f.Ints("[i8]")), "[1 -1]"},
		{"uint64 array", got3(f.Ints("[u64]")), "[5]"},
		{"int32 array", got3(f.Ints("[i32]")), "[-2147483648]"},
		{"uint32 array too large", got3(f.Ints("[u32]")), `gguf: m.gguf: key "[u32]" is array of 1 uint32, element 0 is 2147483648, wanted an array of 32-bit integers`},
		{"int64 array too large", got3(f.Ints("[i64]")), `gguf: m.gguf: key "[i64]" is array of 1 int64, element 0 is 2147483648, wanted an array of 32-bit integers`},
		{"float64 array", got3(f.Floats("[f64]")), "[1.5]"},
	} {
		if c.got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, c.got, c.want)
		}
	}

	// Elements of nested arrays start where they should.
	v, _ := f.Value("[[]]")
	outer := slices.Collect(v.All())
	inner := slices.Collect(slices.Collect(outer[1].All())[0].All())
	if len(inner) != 2 || inner[0].Any() != "a" || inner[1].Any() != "" {
		t.Errorf("innermost array: %v", inner)
	}
}

func vocabulary(n int) []string {
	words := make([]string, n)
	for i := range words {
		words[i] = fmt.Sprintf("token-%d", i)
	}
	return words
}

func TestStringsAllocateTwice(t *testing.T) {
	f := parsed(t, func(b *gguf.Builder) { b.SetStrings("tokens", vocabulary(1000)) })
	if n := testing.AllocsPerRun(10, func() {
		if _, _, err := f.Strings("tokens"); err != nil {
			t.Error(err)
		}
	}); n > 2 {
		t.Errorf("%v allocations", n)
	}
}

func TestLongKeyIsCutInMessages(t *testing.T) {
	key := strings.Repeat("k", 60_000)
	f := parsed(t, func(b *gguf.Builder) { b.SetBool(key, true) })
	if _, _, err := f.Uint(key); err == nil || len(err.Error()) > 300 {
		t.Errorf("error of %d bytes", len(fmt.Sprint(err)))
	}
}

func BenchmarkParse150kTokens(b *testing.B) {
	data := build(b, func(g *gguf.Builder) {
		g.SetStrings("tokens", vocabulary(150_000))
		g.SetStrings("merges", vocabulary(150_000))
		g.SetInts("types", make([]int32, 150_000))
	})
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		f, err := gguf.Parse(data, "m.gguf")
		if err != nil {
			b.Fatal(err)
		}
		if _, _, err := f.Strings("tokens"); err != nil {
			b.Fatal(err)
		}
	}
}
