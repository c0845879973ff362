package jinja

// Limits bound what one render may do. A field that is zero takes its value
// from [DefaultLimits].
type Limits struct {
	// Steps is the number of statements, operations and calls.
	Steps int
	// Depth is how deep evaluations may nest, macro calls included.
	Depth int
	// Work is the number of bytes that string operations may read or make,
	// items of lists counted at 16 bytes each. It bounds both time and memory.
	Work int
	// Output is the size of the rendered text in bytes.
	Output int
}

// DefaultLimits leave room for a conversation of a few megabytes and stop a
// hostile template within seconds.
var DefaultLimits = Limits{
	Steps:  5_000_000,
	Depth:  4000,
	Work:   256 << 20,
	Output: 32 << 20,
}

func (l Limits) withDefaults() Limits {
	or := func(n *int, def int) {
		if *n == 0 {
			*n = def
		}
	}
	or(&l.Steps, DefaultLimits.Steps)
	or(&l.Depth, DefaultLimits.Depth)
	or(&l.Work, DefaultLimits.Work)
	or(&l.Output, DefaultLimits.Output)
	return l
}

const (
	// maxSource is the largest template in bytes; the largest real ones have
	// some 20 KB.
	maxSource = 1 << 20
	// maxParseDepth bounds brackets, unary operators and blocks in each other.
	maxParseDepth = 150
	// maxChain bounds operators, filters and subscripts in a row, each of which
	// makes the tree one level deeper.
	maxChain = 500
	// maxRange is the longest range, as in Jinja's sandbox.
	maxRange = 100_000
	// itemCost is what one item of a list counts towards Limits.Work.
	itemCost = 16
)

// step counts one step of the render.
func (in *interp) step() error {
	if in.steps--; in.steps < 0 {
		return limitf("the template takes more than %d steps", in.limits.Steps)
	}
	return nil
}

// charge counts n bytes of work.
func (in *interp) charge(n int) error {
	// A cost can only be negative when its computation overflowed.
	if n < 0 || n > in.work {
		in.work = 0
		return limitf("the template reads or makes more than %d bytes of strings and lists", in.limits.Work)
	}
	in.work -= n
	return nil
}

// enter counts one step and one level of nesting; every enter that gave no
// error is paired with a leave.
func (in *interp) enter() error {
	if err := in.step(); err != nil {
		return err
	}
	if in.depth >= in.limits.Depth {
		return limitf("the template nests calls and expressions more than %d deep", in.limits.Depth)
	}
	in.depth++
	return nil
}

func (in *interp) leave() { in.depth-- }
