package differential_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

func TestMete_P1_to_P14_IsAsTheModelButForTheStatedDifferences(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		c := drawConfig(rt, everything())
		begin := time.Duration(rapid.Int64Range(0, 400*86400).Draw(rt, "begin")) * time.Second
		steps := drawSteps(rt, everything(), c)
		p := play{conf: c, ways: metesWays(), begin: begin, steps: steps}
		if d := p.compare(t); d != "" {
			rt.Fatal(d)
		}
	})
}

// With refused_hits: charged what is refused is counted, on every descriptor.
func TestMete_C030_ChargesRefusedHitsWhereToldTo(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		c := drawConfig(rt, everything())
		c.mete = "{refused_hits: charged}"
		begin := time.Duration(rapid.Int64Range(0, 400*86400).Draw(rt, "begin")) * time.Second
		w := metesWays()
		w.refusedFree = false
		p := play{conf: c, ways: w, begin: begin, steps: drawSteps(rt, everything(), c)}
		if d := p.compare(t); d != "" {
			rt.Fatal(d)
		}
	})
}

// Without what differs, mete is envoyproxy/ratelimit: here nothing of the model is turned off. Of what hours and days count, at any
// time but in the last minute of a window.
func TestMete_P10_IsAsEnvoyproxyRatelimitOverHoursAndDays(t *testing.T) {
	t.Parallel()
	g := alike()
	g.units = []unit{hour, day}
	g.steps = []time.Duration{0, 0, 0, 0, 0, time.Second, 20 * time.Second, time.Hour, time.Hour, 24 * time.Hour}
	rapid.Check(t, func(rt *rapid.T) { compareAlike(t, rt, g, neverUnsaid) })
}

// So it is in one instant of any unit: a full bucket is a fresh window. Until when differs.
func TestMete_P10_IsAsEnvoyproxyRatelimitInOneInstant(t *testing.T) {
	t.Parallel()
	g := alike()
	g.steps = []time.Duration{0}
	rapid.Check(t, func(rt *rapid.T) {
		compareAlike(t, rt, g, func(s status) status {
			if s.unit != hour && s.unit != day {
				s.reset = -1
			}
			return neverUnsaid(s)
		})
	})
}

// alike are the requests that both answer alike if refused hits are charged.
func alike() dialect {
	return dialect{units: units(), limits: []uint32{0, 7, 8, 10, 12, 1000, math.MaxUint32}, hits: []uint64{1, 2, 3, 7}}
}

// neverUnsaid leaves out the time until a request fits that never will: some of its
// descriptors share a counter, and want more together than it can hold.
func neverUnsaid(s status) status {
	if s.never {
		s.reset = -1
	}
	return s
}

func compareAlike(t *testing.T, rt *rapid.T, g dialect, seen func(status) status) {
	t.Helper()
	c := drawConfig(rt, g)
	c.mete = "{refused_hits: charged}"
	begin := time.Duration(rapid.Int64Range(0, 400*24*60-2).Draw(rt, "begin")) * time.Minute
	if begin%time.Hour == 59*time.Minute {
		begin += time.Minute
	}
	p := play{conf: c, begin: begin, steps: drawSteps(rt, g, c), seen: seen}
	if d := p.compare(t); d != "" {
		rt.Fatal(d)
	}
}

// A play is what mete and a model are to answer.
type play struct {
	conf  *config
	ways  ways
	begin time.Duration // after the bubble's
	steps []step
	// seen is as much of a status as is compared; nil: all.
	seen func(status) status
}

// compare says in what mete differs from the model.
func (p *play) compare(t *testing.T) (difference string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m, k := newModel(p.conf, p.ways), newDesk(t, p.conf.yaml())
		time.Sleep(p.begin)
		var played strings.Builder
		for _, s := range p.steps {
			time.Sleep(s.after)
			now := time.Now().UTC()
			if p.ways.calendar == nil && now.Minute() == 59 {
				return // the last minute of an hour
			}
			want := m.answer(now, s.request)
			got, err := k.ask(s.request)
			fmt.Fprintf(&played, "%v: %v\n  model %v\n  mete  %v %v\n", now, s.request, want, got, err)
			if d := differ(want.seen(p.seen), got.seen(p.seen)); err != nil || d != "" {
				difference = d + "\n" + p.conf.yaml() + played.String()
				return
			}
		}
	})
	return difference
}

func (a answer) seen(f func(status) status) answer {
	for i := range a.statuses {
		if f != nil {
			a.statuses[i] = f(a.statuses[i])
		}
	}
	return a
}
