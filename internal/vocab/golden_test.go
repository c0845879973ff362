package vocab_test

import (
	"bufio"
	"encoding/json"
	"os"
	"testing"

	"baton/internal/vocab"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/text/unicode/norm"
)

// testdata/demo.jsonl holds what the tokenizer that the demo model was trained with makes of
// strings of all kinds; test/peer/tokenizer/golden.py writes it.
func TestGolden(t *testing.T) {
	v := newDemo(t)
	f, err := os.Open("testdata/demo.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n := 0
	for s := bufio.NewScanner(f); s.Scan(); n++ {
		var l refLine
		if err := json.Unmarshal(s.Bytes(), &l); err != nil {
			t.Fatal(err)
		}
		got := v.Encode([]int32{}, l.Text, vocab.EncodeOptions{ParseSpecial: true})
		if d := cmp.Diff(l.IDs, got); d != "" {
			t.Errorf("%s: %s: ids differ (-want +got):\n%s", l.Kind, short(l.Text), d)
		}
		if norm.NFC.IsNormalString(l.Text) {
			if text := string(v.Decode(got, true)); text != l.Text {
				t.Errorf("%s: %s: decoded to %s", l.Kind, short(l.Text), short(text))
			}
		}
	}
	if n < 300 {
		t.Errorf("%d strings in testdata/demo.jsonl, expected at least 300", n)
	}
}
