package decoder

import "time"

// pace bounds the piece of a prompt that a step processes while answers are being
// generated, so that a long prompt slows the other answers down instead of freezing
// them. It learns the cost of a prompt token from the steps themselves. The size of
// the pieces changes no result: a token's does not depend on its batch.
type pace struct {
	target   time.Duration
	perToken time.Duration // smoothed cost of a prompt token; 0: not known yet
}

const (
	// Pieces are never smaller, or the weights would be read for next to nothing.
	minPiece = 16
	// firstPiece is processed before anything is known about the cost of a token.
	firstPiece = 64
	// longestStep is how long a step may take when no answer waits for it: a request that
	// is cancelled keeps its slot for so long, and a new one waits for so long.
	longestStep = time.Second
)

// room is the number of prompt tokens that the next step may process beside the given
// number of generating slots.
func (p *pace) room(generating, microBatch int) int {
	room := microBatch - generating
	target, piece := longestStep, firstPiece
	if generating > 0 {
		target, piece = p.target, minPiece
	}
	if p.perToken > 0 {
		piece = max(minPiece, int(target/p.perToken))
	}
	return min(room, piece)
}

// measured learns from a step with prompt tokens in it.
func (p *pace) measured(b *batch, took time.Duration) {
	if b.prompt < minPiece {
		return
	}
	cost := took / time.Duration(b.tokens)
	if p.perToken == 0 {
		p.perToken = cost
		return
	}
	p.perToken += (cost - p.perToken) / 4
}
