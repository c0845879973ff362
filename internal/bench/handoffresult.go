package bench

import "baton/internal/handoff"

// HandoffResult is what handoffs of prompts of one length take. All durations are in
// milliseconds.
type HandoffResult struct {
	Model  string        `json:"model"`
	Trust  handoff.Trust `json:"trust"`
	Tokens int           `json:"tokens"`
	Cells  int           `json:"cells"` // handed over: all tokens but the last
	Bytes  int64         `json:"bytes"` // of their rows
	Blocks int           `json:"blocks"`
	Reps   int           `json:"reps"`
	MadeUp bool          `json:"made_up,omitempty"` // the rows
	Steps  []HandoffStep `json:"steps"`
	// Others is what other processes used meanwhile, as a share of all cores.
	Others float64 `json:"others"`
	// Ratios compare figures of this run; those that lack one of them are left out.
	Ratios []HandoffRatio `json:"ratios"`
}

// HandoffStep is a part of a handoff, or what it is compared with.
type HandoffStep struct {
	Name   string    `json:"name"`
	Median float64   `json:"ms"`
	Low    float64   `json:"low"`
	High   float64   `json:"high"`
	Runs   []float64 `json:"runs"`
	What   string    `json:"what"` // is measured
}

// HandoffRatio is one figure over another, and the aim.
type HandoffRatio struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Aim   string  `json:"aim"`
	Met   bool    `json:"met"`
}

// The steps, in the order of the table.
const (
	stepFresh    = "share, fresh"
	stepFreshMap = "map, fresh"
	stepShare    = "share"
	stepEvict    = "share, evicting"
	stepMap      = "map"
	stepPrefill  = "prefill"
	stepCopy     = "memcpy"
	stepLetGo    = "let go"
	stepConfirm  = "confirm"
	stepVerify   = "verify"
	stepAttach   = "attach"
	stepAdopt    = "adopt"
	stepHandoff  = "handoff"
	stepFirst    = "first token"
	stepLocal    = "first, local"
	stepRow      = "row to token"
	stepCPU      = "CPU"
	stepRefill   = "CPU, refill"
	stepSave     = "save"
	stepRestore  = "restore"
	stepPeerSave = "llama save"
	stepPeerLoad = "llama restore"
)

var handoffSteps = []struct{ name, what string }{
	{stepFresh, "the first share of a new decoder, whose blocks have no pages yet"},
	{stepFreshMap, "the provider maps those and writes the header"},
	{stepShare, "blocks that are free, descriptors sent and acknowledged"},
	{stepEvict, "the same when the cache has to give up another prompt's blocks first"},
	{stepMap, "the provider maps blocks that were made ready and writes the header"},
	{stepPrefill, "the provider computes the rows, once; then they are replayed"},
	{stepCopy, "the replay: a plain copy of the rows into the blocks by one thread"},
	{stepLetGo, "the provider unmaps everything"},
	{stepConfirm, "the kernel's word that nobody can write any more (lease or seal)"},
	{stepVerify, "header and content"},
	{stepAttach, "on the step loop"},
	{stepAdopt, "confirm, verify and attach, from the parsed request to the slot being ready"},
	{stepHandoff, "share and adopt together"},
	{stepFirst, "the request after the adopt, to its first token, prompt_n 1"},
	{stepLocal, "the same request on the same cells in blocks of the decoder's own"},
	{stepRow, "from the last row to the first token: let go, replies, adopt, first token"},
	{stepCPU, "CPU time of both processes for a handoff, without the replay, refill included"},
	{stepRefill, "of it, after the adopt: blocks made ready for the next share"},
	{stepSave, "Baton writes the same cells to a file, with its checksum, and syncs it"},
	{stepRestore, "Baton reads and verifies it into other cells"},
	{stepPeerSave, "llama.cpp writes its state file, not synced"},
	{stepPeerLoad, "llama.cpp reads Baton's file"},
}

// summarize makes the table of a result out of the single runs.
func (r *HandoffResult) summarize(runs map[string][]float64) {
	get := map[string]float64{}
	for _, step := range handoffSteps {
		v := runs[step.name]
		if len(v) == 0 {
			continue
		}
		s := HandoffStep{Name: step.name, Median: median(v), Runs: v, What: step.what}
		s.Low, s.High = limits(v)
		r.Steps = append(r.Steps, s)
		get[step.name] = s.Median
	}
	ratio := func(name string, over, under float64, aim string, met func(x float64) bool) {
		if over > 0 && under > 0 {
			x := over / under
			r.Ratios = append(r.Ratios, HandoffRatio{name, x, aim, met(x)})
		}
	}
	ratio("llama.cpp's restore / handoff", get[stepPeerLoad], get[stepHandoff], "at least 100 at 12,722 tokens", func(x float64) bool { return x >= 100 })
	ratio("Baton's restore / handoff", get[stepRestore], get[stepHandoff], "-", func(float64) bool { return true })
	ratio("memcpy / handoff", get[stepCopy], get[stepHandoff], "-", func(float64) bool { return true })
	ratio("row to token / first, local", get[stepRow], get[stepLocal], "at most 1.1", func(x float64) bool { return x <= 1.1 })
	ratio("first token / first, local", get[stepFirst], get[stepLocal], "-", func(float64) bool { return true })
	ratio("map / the first engine's", get[stepMap], firstEngineMapMS(r.Bytes), "at most 0.1", func(x float64) bool { return x <= 0.1 })
	if v, ok := get[stepAdopt]; ok {
		r.Ratios = append(r.Ratios, HandoffRatio{"adopt, ms", v, "at most 0.5", v <= 0.5})
	}
}

// firstEngineMapMS is how long a provider took to map and first touch that many bytes in
// the engine that handoffs were first built for, on its machine: 40.6, 78.7 and 150.4 ms
// for 648 MiB, 1.1 and 2.8 GiB; in between on straight lines, and below from 0 on.
func firstEngineMapMS(bytes int64) float64 {
	points := []struct{ mib, ms float64 }{{0, 0}, {648, 40.6}, {1.1 * 1024, 78.7}, {2.8 * 1024, 150.4}}
	x := float64(bytes) / (1 << 20)
	for i := 1; ; i++ {
		a, b := points[i-1], points[i]
		if x <= b.mib || i == len(points)-1 {
			return a.ms + (x-a.mib)*(b.ms-a.ms)/(b.mib-a.mib)
		}
	}
}
