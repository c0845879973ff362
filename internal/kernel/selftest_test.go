package kernel

import (
	"strings"
	"testing"
)

func TestSelfTestPasses(t *testing.T) {
	was := Active()
	if report := SelfTest(); len(report) > 0 {
		t.Errorf("%s", strings.Join(report, "\n"))
	}
	if Active() != was {
		t.Errorf("the self-test left %s active, was %s", Active(), was)
	}
}

// TestKnownAnswers: every implementation gives the known bits, the generic one, which the
// self-test leaves out, first of all.
func TestKnownAnswers(t *testing.T) {
	forEachImpl(t, func(t *testing.T) {
		for _, c := range selfChecks {
			if got, err := runCheck(c); err != nil || got != c.want {
				t.Errorf("%s: %#x, %v; want %#x", c.name, got, err, c.want)
			}
		}
	})
}

func TestSelfTestSwitchesOff(t *testing.T) {
	all := Implementations()
	if len(all) == 1 {
		t.Skip("this CPU has only the generic implementation, which cannot be switched off")
	}
	best := all[len(all)-1]
	saved := selfChecks
	defer func() {
		selfChecks = saved
		for i := range implementations {
			implementations[i].off = ""
		}
		if err := Use(best); err != nil {
			t.Error(err)
		}
	}()
	for name, wrong := range map[string]func() []float32{
		"another result": func() []float32 { return []float32{float32(level)} },
		"a panic": func() []float32 {
			if level != levelGeneric {
				panic("no")
			}
			return []float32{0}
		},
	} {
		for i := range implementations {
			implementations[i].off = ""
		}
		if err := Use(best); err != nil {
			t.Fatal(err)
		}
		selfChecks = []selfCheck{{name, wrong, 0}}
		right, err := runCheck(selfCheck{run: func() []float32 { return []float32{0} }})
		if err != nil {
			t.Fatal(err)
		}
		selfChecks[0].want = right
		report := SelfTest()
		if Active() != "generic" || len(Implementations()) != 1 {
			t.Errorf("%s: %s is active, of %v", name, Active(), Implementations())
		}
		if len(report) != len(all) || !strings.Contains(report[0], "switched off") {
			t.Errorf("%s: report %q", name, report)
		}
		if err := Use(best); err == nil {
			t.Errorf("%s: %s can still be used", name, best)
		}
	}
}

func TestUseErrors(t *testing.T) {
	was := Active()
	if err := Use("mmx"); err == nil || !strings.Contains(err.Error(), `"mmx"`) {
		t.Errorf("an unknown implementation: %v", err)
	}
	if Active() != was {
		t.Errorf("after an error %s is active", Active())
	}
}

func BenchmarkSelfTest(b *testing.B) {
	defer Use(Active())
	for _, name := range Implementations() {
		if err := Use(name); err != nil {
			b.Fatal(err)
		}
		for _, c := range selfChecks {
			b.Run(c.name+"/"+name, func(b *testing.B) {
				for b.Loop() {
					c.run()
				}
			})
		}
	}
}
