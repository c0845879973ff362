package decoder

import "strings"

// stopper looks for stop strings in text that comes in pieces. It holds back text
// that may be the beginning of one, so that no part of a stop string is delivered.
type stopper struct {
	words []string
	held  string
}

// push takes the next piece and returns the text that can be delivered. When a stop
// string is complete, word is that string and nothing may be delivered after it.
func (s *stopper) push(piece string) (text, word string) {
	if len(s.words) == 0 {
		return piece, ""
	}
	s.held += piece
	at := -1
	for _, w := range s.words {
		if i := strings.Index(s.held, w); i >= 0 && (at < 0 || i < at) {
			at, word = i, w
		}
	}
	if at >= 0 {
		text, s.held = s.held[:at], ""
		return text, word
	}
	keep := 0
	for _, w := range s.words {
		for n := min(len(w)-1, len(s.held)); n > keep; n-- {
			if strings.HasSuffix(s.held, w[:n]) {
				keep = n
				break
			}
		}
	}
	cut := len(s.held) - keep
	text, s.held = s.held[:cut], s.held[cut:]
	return text, ""
}

// flush returns what is still held back.
func (s *stopper) flush() string {
	t := s.held
	s.held = ""
	return t
}
