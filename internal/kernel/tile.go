//go:build amd64 && !purego

package kernel

import (
	"unsafe"

	"baton/internal/quant"
)

// tileArgs are the arguments of a tile kernel. The assembly knows this layout.
type tileArgs struct {
	dst      *float32  // row 0 of token 0
	ld       uintptr   // bytes from a token to the next in dst
	w        *byte     // row 0
	rowBytes uintptr   // bytes from a row to the next in w
	blocks   uintptr   // blocks of 32 columns
	x        *actBlock // token 0
	stride   uintptr   // bytes from a token to the next in x
	panel    *byte
	more     uintptr // not 0: add to what dst holds
	ahead    *byte   // what to prefetch: rows that come later, or these again
}

// tileKernels multiply tiles of rows of one weight type with a few tokens. Rows lie in
// the lanes of the registers: rows of them in one register.
//
// A narrow kernel multiplies rows rows with 1, 2 or 4 tokens, straight from the weights
// as they lie in the file: each byte is read once.
//
// For more tokens, unpack first writes rows rows to a panel, and the wide kernels
// multiply twice that many of it with a few tokens. A panel consists of records, for
// each block of 32 columns one of 16 rows (AVX2) or two of 16 rows each (AVX-512). A
// record has 8 times 64 bytes: the weights of 4 columns for row 0, row 1 and so on; then
// 16 float32 scales; then, where the type has them, 16 float32 minima or two times 16
// int32 scales. Weights are unsigned where that suits the kernel.
type tileKernels struct {
	rows    int
	narrow  [5]func(*tileArgs) // by the number of tokens; nil: none
	wide    [7]func(*tileArgs)
	maxWide int // tokens of the widest of these
	unpack  func(*tileArgs)
	block   int // bytes of a block of 32 columns in the panel
	second  int // where in it the second half of the rows begins
}

const (
	maxWideRows   = 32
	maxWideTokens = 6
	panelBlocks   = 128      // unpacked at once: some 150 KB, which stay in the second-level cache
	prefetchBytes = 24 << 10 // how far ahead, at least
	actBlockBytes = unsafe.Sizeof(actBlock{})
)

// tiles holds the kernels of the implementation in use.
var tiles map[quant.Type]*tileKernels

// tileScratch is what the tile kernels need of a worker's memory.
type tileScratch struct {
	args  tileArgs     // here, since the arguments of a function variable escape
	next  int          // as in scratch
	f     quant.Format // of the weights' type
	rows  []byte       // copies of the last rows, padded with zeros to a whole tile
	panel []byte
	out   [maxWideTokens * maxWideRows]float32
}

// int8RowsTiled is int8Rows with the kernels in tiles.
func int8RowsTiled(dst []float32, ld int, w *Matrix, x []actBlock, n, r0, r1 int, sc *scratch) {
	k, s := tiles[w.Type], &sc.tile
	blocks := w.Cols / blockCols
	s.args, s.next = tileArgs{stride: uintptr(blocks) * actBlockBytes}, sc.next
	s.f, _ = w.Type.Format()
	m := n
	if n > 1 {
		m = evenTokens(n)
	}
	if m < len(k.narrow) && k.narrow[m] != nil {
		s.args.x = &x[0]
		for r := r0; r < r1; r += k.rows {
			s.take(w, k.rows, r, r1, 0, blocks)
			s.run(k.narrow[m], dst[r:], ld, k.rows, min(k.rows, r1-r), m, n)
		}
		return
	}
	s.panel = sized(s.panel, k.block*min(blocks, panelBlocks))
	wide := 2 * k.rows
	for r := r0; r < r1; r += wide {
		for b := 0; b < blocks; b += panelBlocks {
			s.unpack(k, w, r, r1, b, min(panelBlocks, blocks-b))
			for t := 0; t < n; {
				m := min(evenTokens(n-t), k.maxWide)
				s.args.x = &x[t*blocks+b]
				s.run(k.wide[m], dst[t*ld+r:], ld, wide, min(wide, r1-r), m, min(m, n-t))
				t += m
			}
		}
	}
}

// evenTokens is the number of tokens that a kernel takes for n. The activations have
// room for the one more.
func evenTokens(n int) int { return n + n&1 }

// unpack writes the rows from r on, as many as a wide kernel takes but below r1, to the
// panel: columns from block b on.
func (s *tileScratch) unpack(k *tileKernels, w *Matrix, r, r1, b, blocks int) {
	for half := range 2 {
		s.take(w, k.rows, min(r+half*k.rows, r1), r1, b, blocks)
		s.args.panel = &s.panel[half*k.second]
		k.unpack(&s.args)
	}
	s.args.panel, s.args.more = &s.panel[0], uintptr(b)
}

// take makes n rows from r on the rows of the next kernel: columns from block b on.
// Rows from r1 on are zero.
func (s *tileScratch) take(w *Matrix, n, r, r1, b, blocks int) {
	at, size := b*blockCols/s.f.Elems*s.f.Bytes, blocks*blockCols/s.f.Elems*s.f.Bytes
	a := &s.args
	a.blocks = uintptr(blocks)
	if r+n <= r1 {
		a.w, a.rowBytes = &w.Data[r*w.RowBytes+at], uintptr(w.RowBytes)
		a.ahead = a.w
		next := r + ceilDiv(prefetchBytes, n*w.RowBytes)*n
		if next >= r1 {
			next += s.next - r1
		}
		if next+n <= w.Rows {
			a.ahead = &w.Data[next*w.RowBytes+at]
		}
		return
	}
	s.rows = sized(s.rows, n*size)
	clear(s.rows)
	for i := 0; r+i < r1; i++ {
		copy(s.rows[i*size:], w.Row(r + i)[at:][:size])
	}
	a.w, a.rowBytes, a.ahead = &s.rows[0], uintptr(size), &s.rows[0]
}

// run calls a kernel of rows by tokens for the first nr rows and n tokens of dst. If
// these are fewer, the kernel works on a copy.
func (s *tileScratch) run(kernel func(*tileArgs), dst []float32, ld, rows, nr, tokens, n int) {
	a := &s.args
	if nr == rows && n == tokens {
		a.dst, a.ld = &dst[0], uintptr(ld)*4
		kernel(a)
		return
	}
	a.dst, a.ld = &s.out[0], uintptr(rows)*4
	if a.more != 0 {
		for t := range n {
			copy(s.out[t*rows:], dst[t*ld:][:nr])
		}
	}
	kernel(a)
	for t := range n {
		copy(dst[t*ld:][:nr], s.out[t*rows:])
	}
}
