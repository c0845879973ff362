//go:build !amd64 || purego

package kernel

func add(dst, x []float32)                    { addGeneric(dst, x) }
func mul(dst, x []float32)                    { mulGeneric(dst, x) }
func scale(dst, x []float32, s float32)       { scaleGeneric(dst, x, s) }
func sumSquares(l *lanes, x []float32)        { sumSquaresGeneric(l, x) }
func scaleMul(dst, x, w []float32, s float32) { scaleMulGeneric(dst, x, w, s) }
func swiGLU(dst, gate, up []float32)          { swiGLUGeneric(dst, gate, up) }
func exp(dst, x []float32)                    { expGeneric(dst, x) }
func expSum(l *lanes, x []float32, m float32) { expSumGeneric(l, x, m) }
func vmax(x []float32) float32                { return maxGeneric(x) }
func index(x []float32, v float32) int        { return indexGeneric(x, v) }
func ropeNeoX(a, b, cos, sin []float32)       { ropeNeoXGeneric(a, b, cos, sin) }
func ropeNorm(x, cos, sin []float32)          { ropeNormGeneric(x, cos, sin) }
func storeF16(dst []uint16, src []float32)    { storeF16Generic(dst, src) }
func loadF16(dst []float32, src []uint16)     { loadF16Generic(dst, src) }
