package kernel

import "testing"

// forEachImpl runs f once for every implementation that this CPU has.
func forEachImpl(t *testing.T, f func(t *testing.T)) {
	before := Active()
	defer Use(before)
	for _, name := range Implementations() {
		if err := Use(name); err != nil {
			t.Fatal(err)
		}
		t.Run(name, f)
	}
}
