package decoder

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestStopper(t *testing.T) {
	for _, c := range []struct {
		name       string
		words      []string
		pieces     []string
		text, word string
	}{
		{"none", nil, []string{"a", "b"}, "ab", ""},
		{"in one piece", []string{"X"}, []string{"abXc"}, "ab", "X"},
		{"across pieces", []string{"END"}, []string{"aE", "N", "Db"}, "a", "END"},
		{"false start", []string{"END"}, []string{"aE", "Nb", "c"}, "aENbc", ""},
		{"false start inside itself", []string{"aab"}, []string{"a", "a", "a", "b"}, "a", "aab"},
		{"the first in the text wins", []string{"bc", "ab"}, []string{"xabc"}, "x", "ab"},
		{"at the very start", []string{"\n"}, []string{"\nabc"}, "", "\n"},
		{"characters of several bytes", []string{"é!"}, []string{"caf", "é", "!"}, "caf", "é!"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := stopper{words: c.words}
			var got, word string
			for _, p := range c.pieces {
				var text string
				text, word = s.push(p)
				got += text
				if word != "" {
					break
				}
			}
			if word == "" {
				got += s.flush()
			}
			if got != c.text || word != c.word {
				t.Errorf("got %q and %q, want %q and %q", got, word, c.text, c.word)
			}
		})
	}
}

// However the text is cut into pieces, what is delivered is what comes before the
// first stop string, and never a part of one.
func TestStopperPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[ab]{0,30}`).Draw(t, "text")
		words := rapid.SliceOfN(rapid.StringMatching(`[ab]{1,4}`), 1, 3).Draw(t, "words")
		want, hit := text, false
		for _, w := range words {
			if i := strings.Index(text, w); i >= 0 && i < len(want) || i == 0 {
				want, hit = text[:i], true
			} else if i >= 0 {
				hit = true
			}
		}
		s := stopper{words: words}
		got, word := "", ""
		for rest := text; rest != "" && word == ""; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "n")
			var out string
			out, word = s.push(rest[:n])
			got, rest = got+out, rest[n:]
		}
		if word == "" {
			got += s.flush()
		}
		// A word found earlier in time may lie later in the text only when both end
		// in the same piece; then push takes the first in the text.
		if (word != "") != hit {
			t.Fatalf("text %q words %q: stopped %v, want %v", text, words, word != "", hit)
		}
		if !hit && got != want {
			t.Fatalf("text %q words %q: got %q", text, words, got)
		}
		if hit && !strings.HasPrefix(text, got+word) {
			t.Fatalf("text %q words %q: got %q before %q", text, words, got, word)
		}
		for _, w := range words {
			if strings.Contains(got, w) {
				t.Fatalf("text %q words %q: delivered %q", text, words, got)
			}
		}
	})
}
