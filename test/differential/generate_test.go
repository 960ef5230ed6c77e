package differential_test

import (
	"math"
	"time"

	"pgregory.net/rapid"
)

// What is generated is small in its words, so that requests meet rules, rules meet each other, and limits are met.

// A dialect bounds what is generated.
type dialect struct {
	units     []unit
	overrides bool
	quota     bool
	negative  bool
	limits    []uint32
	hits      []uint64 // a descriptor's own
	// steps are how far the clock may move before a request.
	steps []time.Duration
}

func everything() dialect {
	return dialect{
		units: units(), overrides: true, quota: true, negative: true,
		limits: []uint32{0, 1, 2, 3, 3, 4, 5, 6, 8, 10, 1000, math.MaxUint32},
		hits:   []uint64{0, 0, 1, 1, 2, 2, 4, 7, math.MaxUint32, 1 << 40},
		steps: []time.Duration{
			0, 0, 0, 0, 0, 250 * time.Millisecond, time.Second, 20 * time.Second, time.Minute, 59 * time.Minute, time.Hour,
			24 * time.Hour, 7 * 24 * time.Hour, 31 * 24 * time.Hour, 366 * 24 * time.Hour,
		},
	}
}

func of[T any](values ...T) *rapid.Generator[T] { return rapid.SampledFrom(values) }

// once is true in one of n cases.
func once(t *rapid.T, n int, label string) bool { return rapid.IntRange(1, n).Draw(t, label) == n }

func drawConfig(t *rapid.T, g dialect) *config {
	return &config{domain: "edge", rules: g.rules(t, 1)}
}

func (g dialect) rules(t *rapid.T, level int) []*rule {
	var all []*rule
	taken := map[entry]bool{}
	for range rapid.IntRange(1, 5-level).Draw(t, "rules") {
		r := g.rule(t, level)
		if at := (entry{r.key, r.value}); !taken[at] {
			taken[at] = true
			all = append(all, r)
		}
	}
	return all
}

func (g dialect) rule(t *rapid.T, level int) *rule {
	r := &rule{
		key:            of("org", "route").Draw(t, "key"),
		value:          of("", "", "a", "b", "img/1", "img/*", "*/1", "i*/*", "*", "a*").Draw(t, "value"),
		shadow:         once(t, 8, "shadow"),
		detailedMetric: once(t, 12, "detailed"),
		metricValues:   once(t, 12, "value metric"),
	}
	r.quota = g.quota && once(t, 8, "quota")
	if n := len(r.value); n > 0 && r.value[n-1] == '*' {
		r.share = once(t, 2, "share")
	}
	if !once(t, 6, "no limit") {
		r.limit = g.limit(t)
	}
	if level < 3 && once(t, 2, "deeper") {
		r.rules = g.rules(t, level+1)
	}
	return r
}

func (g dialect) limit(t *rapid.T) *limit {
	l := &limit{name: of("", "", "one", "two", "three").Draw(t, "name")}
	if once(t, 6, "replaces") {
		if n := of("one", "two", "three").Draw(t, "replaced"); n != l.name {
			l.replaces = append(l.replaces, n)
		}
	}
	if once(t, 10, "unlimited") {
		l.unlimited = true
		return l
	}
	l.unit = rapid.SampledFrom(g.units).Draw(t, "unit")
	l.perUnit = rapid.SampledFrom(g.limits).Draw(t, "per unit")
	return l
}

// A step is a request, some time after the one before.
type step struct {
	after time.Duration
	request
}

func drawSteps(t *rapid.T, g dialect, c *config) []step {
	var all []step
	for range rapid.IntRange(1, 40).Draw(t, "steps") {
		all = append(all, step{rapid.SampledFrom(g.steps).Draw(t, "after"), g.request(t, c)})
	}
	return all
}

func (g dialect) request(t *rapid.T, c *config) request {
	r := request{domain: c.domain, hits: of[uint32](0, 0, 0, 1, 1, 2, 3).Draw(t, "request hits")}
	if g.overrides && once(t, 8, "many hits") {
		r.hits = math.MaxUint32
	}
	if once(t, 40, "elsewhere") {
		r.domain = "elsewhere"
	}
	for range of(1, 1, 1, 2, 2, 3).Draw(t, "descriptors") {
		r.descriptors = append(r.descriptors, g.descriptor(t, c))
	}
	if once(t, 8, "twice") {
		r.descriptors = append(r.descriptors, r.descriptors[0])
	}
	return r
}

func (g dialect) descriptor(t *rapid.T, c *config) descriptor {
	d := descriptor{entries: drawEntries(t, c)}
	if once(t, 3, "own hits") {
		hits := rapid.SampledFrom(g.hits).Draw(t, "hits")
		d.hits = &hits
	}
	if g.overrides && once(t, 12, "override") {
		// Envoy's enumeration for requests knows no week.
		d.override = &override{of[uint32](0, 1, 3, 5, 100).Draw(t, "own limit"), of(second, minute, hour, day, month, year).Draw(t, "own unit")}
	}
	d.negative = g.negative && once(t, 15, "negative")
	return d
}

// drawEntries walks down the rules, mostly.
func drawEntries(t *rapid.T, c *config) []entry {
	if once(t, 30, "no entries") {
		return nil
	}
	var all []entry
	rules := c.rules
	for range 4 {
		e := entry{of("org", "route").Draw(t, "entry key"), of("a", "b", "img/1", "img/2", "img/", "i/1", "", "ab", "*", "img/*").Draw(t, "entry value")}
		var to *rule
		if len(rules) > 0 && !once(t, 10, "astray") {
			to = rapid.SampledFrom(rules).Draw(t, "to")
			e.key = to.key
			if to.value != "" && to.value[len(to.value)-1] != '*' && to.value[0] != '*' {
				e.value = to.value
			}
		}
		all = append(all, e)
		if to == nil || len(to.rules) == 0 || once(t, 4, "shorter") {
			if !once(t, 20, "too deep") {
				break
			}
		}
		if to != nil {
			rules = to.rules
		}
	}
	return all
}
