package differential_test

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// A model is a rate limit service that follows envoyproxy/ratelimit, but for what its ways change: one configuration, and what was
// counted. It was written from observation of that service (and its README), not from mete.
type model struct {
	conf     *config
	ways     ways
	counters map[string]counter
	looked   map[*rule]bool // a look has matched it
}

// ways are the stated differences: each switch turns one of them on. The zero ways are envoyproxy/ratelimit's.
type ways struct {
	// buckets: second and minute are token buckets, not windows.
	buckets bool
	// refusedFree: a request that is refused has taken nothing of any descriptor.
	refusedFree bool
	// calendar: windows are those of the calendar in this zone, and a request belongs to the one that holds the end of its minute.
	calendar *time.Location
	// quotaNeverRefuses: a quota_mode rule is never over, not even where all of a request are. So did envoyproxy/ratelimit until
	// early 2026.
	quotaNeverRefuses bool
	// refunds: negative hits give back.
	refunds bool
	// overridesApart: a limit that came along counts on its own.
	overridesApart bool
	// overridesShare: a limit that came along counts by the pattern of a shared rule.
	overridesShare bool
	// quotaRoomIsOK: a quota rule that is over is OK where another has room.
	quotaRoomIsOK bool
	// neverIsUnsaid: no time is said where waiting cannot help.
	neverIsUnsaid bool
	// looksAtRest: a look (0 hits) is over once nothing is left; there, once more than the limit was counted.
	looksAtRest bool
	// billsLooked: what a rule is charged that a look has matched before counts in full, beyond the limit too.
	billsLooked bool
}

func metesWays() ways {
	return ways{
		buckets: true, refusedFree: true, calendar: time.UTC, refunds: true,
		overridesApart: true, overridesShare: true, quotaRoomIsOK: true, neverIsUnsaid: true, looksAtRest: true,
		billsLooked: true,
	}
}

func newModel(conf *config, w ways) *model {
	return &model{conf: conf, ways: w, counters: map[string]counter{}, looked: map[*rule]bool{}}
}

// A request is a RateLimitRequest.
type request struct {
	domain      string
	hits        uint32 // 0: 1
	descriptors []descriptor
}

type descriptor struct {
	entries  []entry
	hits     *uint64 // its own, in place of the request's
	negative bool
	override *override
}

type entry struct{ key, value string }

type override struct {
	perUnit uint32
	unit    unit
}

// An answer is a RateLimitResponse.
type answer struct {
	over     bool
	statuses []status
}

type status struct {
	over      bool
	limited   bool // there is a current limit
	name      string
	perUnit   uint32
	unit      unit
	remaining uint32
	reset     int64  // seconds; -1: not said
	never     bool   // no time helps
	spare     uint32 // what is left where remaining is 0 because a quota rule would have refused: mete may say either
}

// A found is what a descriptor is counted by; its limit is nil where nothing is counted.
type found struct {
	rule          *rule // nil: none, or an override
	limit         *limit
	shadow, quota bool
	values        []string // of the entries as counted: a shared rule counts by its pattern
	apart         bool     // an override
}

func (m *model) answer(now time.Time, r request) answer {
	if r.domain != m.conf.domain {
		return answer{statuses: make([]status, len(r.descriptors))}.unsaid()
	}
	all := m.asked(now, r)
	m.refund(all)
	examine(now, all, m.ways)
	j := m.judge(all)
	a := answer{over: j.refused}
	for _, t := range all {
		t.enter(now)
		spared := t.shadow || t.quota && (m.ways.quotaNeverRefuses || j.room && m.ways.quotaRoomIsOK)
		t.refuses = t.over && !spared
		free := m.ways.refusedFree && (j.refused || t.over)
		switch {
		case t.refund || t.counter == nil:
		case t.bill:
			t.counter.owe(t.hits)
		case !free:
			t.counter.take(t.hits)
		}
		a.statuses = append(a.statuses, m.says(now, t))
	}
	m.look(all)
	return a
}

// look notes the rules that a request has looked at, for those after it.
func (m *model) look(all []*taking) {
	for _, t := range all {
		if t.hits == 0 && !t.refund {
			m.looked[t.rule] = true
		}
	}
}

func (a answer) unsaid() answer {
	for i := range a.statuses {
		a.statuses[i].reset = -1
	}
	return a
}

// find returns what each descriptor is counted by.
func (m *model) find(r request) []found {
	all := make([]found, len(r.descriptors))
	gone := map[string]bool{}
	for i, d := range r.descriptors {
		all[i] = m.match(d)
		if l := all[i].limit; l != nil {
			for _, name := range l.replaces {
				gone[name] = true
			}
		}
	}
	for i := range all {
		if l := all[i].limit; l != nil && !l.unlimited && gone[l.name] {
			all[i].limit = nil
		}
	}
	return all
}

// match walks down the rules, one level for each entry. The limit is that of the last level.
func (m *model) match(d descriptor) found {
	f := found{}
	rules := m.conf.rules
	var at *rule
	for _, e := range d.entries {
		at = choose(rules, e)
		if at == nil {
			break
		}
		rules = at.rules
		if at.share {
			f.values = append(f.values, at.value)
		} else {
			f.values = append(f.values, e.value)
		}
	}
	if at != nil {
		f.rule, f.limit, f.shadow, f.quota = at, at.limit, at.shadow, at.quota
	}
	if d.override != nil {
		m.overridden(&f, d)
	}
	return f
}

// overridden makes a limit that came along hold: nothing of the rule does then.
func (m *model) overridden(f *found, d descriptor) {
	values := f.values
	*f = found{limit: &limit{unit: d.override.unit, perUnit: d.override.perUnit}, apart: true}
	if m.ways.overridesShare && len(values) == len(d.entries) {
		f.values = values
		return
	}
	for _, e := range d.entries {
		f.values = append(f.values, e.value)
	}
}

// choose takes the exact rule, else the first with a star that fits, else the one without a value.
func choose(rules []*rule, e entry) *rule {
	for _, r := range rules {
		if r.key == e.key && r.value == e.value && r.value != "" {
			return r
		}
	}
	for _, r := range rules {
		if r.key == e.key && strings.Contains(r.value, "*") && starFits(r.value, e.value) {
			return r
		}
	}
	for _, r := range rules {
		if r.key == e.key && r.value == "" {
			return r
		}
	}
	return nil
}

// starFits reports whether a text is the pattern with each star replaced by some text.
func starFits(pattern, text string) bool {
	if pattern == "" {
		return text == ""
	}
	if pattern[0] != '*' {
		return text != "" && text[0] == pattern[0] && starFits(pattern[1:], text[1:])
	}
	for i := 0; i <= len(text); i++ {
		if starFits(pattern[1:], text[i:]) {
			return true
		}
	}
	return false
}

// A taking is one descriptor being counted.
type taking struct {
	found
	hits    uint64
	wanted  uint64 // with those of the descriptors before it on the same counter
	refund  bool
	bill    bool // of what was used already
	over    bool
	refuses bool    // so its status says
	counter counter // nil: nothing is counted
	end     int64   // of its window, in Unix seconds
}

// enter makes the counter follow this descriptor's limit: others may share it with another one.
func (t *taking) enter(now time.Time) {
	if t.counter != nil {
		t.counter.at(now, t.end, t.limit)
	}
}

func (m *model) asked(now time.Time, r request) []*taking {
	var all []*taking
	for i, f := range m.find(r) {
		d := &r.descriptors[i]
		t := &taking{found: f, hits: max(1, uint64(r.hits)), refund: d.negative && m.ways.refunds}
		if d.hits != nil {
			t.hits = *d.hits
		}
		if f.limit != nil && !f.limit.unlimited {
			t.counter, t.end = m.counter(now, d, f)
			t.enter(now)
		}
		t.bill = m.ways.billsLooked && f.rule != nil && m.looked[f.rule] && t.hits > 0 && !t.refund
		all = append(all, t)
	}
	return all
}

// refund gives back, whatever becomes of the request.
func (m *model) refund(all []*taking) {
	for _, t := range all {
		if t.refund && t.counter != nil {
			t.counter.give(t.hits)
		}
	}
}

// examine finds out which are over. What a descriptor asks for counts for those after it.
func examine(now time.Time, all []*taking, w ways) {
	before := map[counter]uint64{}
	for _, t := range all {
		t.enter(now)
		switch {
		case t.counter == nil || t.refund:
			continue
		case t.hits > 0:
			t.wanted = before[t.counter] + t.hits
			t.over = !t.counter.fits(t.wanted)
		case w.looksAtRest:
			t.over = t.counter.left() == 0
		default:
			t.over = !t.counter.fits(before[t.counter])
		}
		if !t.bill { // which takes nothing from those after it
			before[t.counter] += t.hits
		}
	}
}

// A judgement is what becomes of a request.
type judgement struct {
	refused bool
	room    bool // in some quota rule
}

func (m *model) judge(all []*taking) judgement {
	var j judgement
	quotas, quotasOver := 0, 0
	for _, t := range all {
		switch {
		case t.counter == nil || t.refund:
		case t.quota:
			quotas++
			if t.over && !t.shadow {
				quotasOver++
			}
		case t.over && !t.shadow:
			j.refused = true
		}
	}
	j.room = quotasOver < quotas
	if quotas > 0 && !j.room && !m.ways.quotaNeverRefuses {
		j.refused = true
	}
	return j
}

// counter returns what a descriptor is counted in, and until when.
func (m *model) counter(now time.Time, d *descriptor, f found) (c counter, end int64) {
	var key strings.Builder
	for i, e := range d.entries {
		fmt.Fprintf(&key, "%q=%q,", e.key, f.values[i])
	}
	begin, end := m.ways.window(now, f.limit)
	bucket := m.ways.buckets && (f.limit.unit == second || f.limit.unit == minute)
	switch {
	case bucket:
		key.WriteString(string(f.limit.unit))
	case m.ways.calendar != nil:
		fmt.Fprintf(&key, "%s %d", f.limit.unit, begin)
	default:
		fmt.Fprint(&key, begin) // the same in two units is the same counter there
	}
	if f.apart && m.ways.overridesApart {
		fmt.Fprintf(&key, " override %d", f.limit.perUnit)
	}
	c = m.counters[key.String()]
	if c == nil {
		if bucket {
			c = newBucket(now, f.limit)
		} else {
			c = new(windowed)
		}
		m.counters[key.String()] = c
	}
	return c, end
}

// says is what a descriptor's counter says now.
func (m *model) says(now time.Time, t *taking) status {
	s := status{reset: -1}
	if t.limit == nil {
		return s
	}
	if t.limit.unlimited {
		s.remaining = math.MaxUint32
		return s
	}
	s.limited, s.name, s.perUnit, s.unit = true, t.limit.name, t.limit.perUnit, t.limit.unit
	s.remaining = uint32(min(t.counter.left(), math.MaxUint32))
	s.reset = t.counter.reset(now, t)
	s.over = t.refuses
	s.never = t.refuses && t.wanted > uint64(t.limit.perUnit) && t.limit.perUnit > 0
	switch {
	case t.over && t.quota && !t.shadow && m.ways.quotaNeverRefuses:
		s.reset = -1
	case t.over && t.shadow:
		s.remaining = 0 // it would have refused
	case t.over && !t.refuses:
		s.spare, s.remaining = s.remaining, 0
	case t.refuses && s.reset == 0:
		s.reset = 1
	case s.never && m.ways.neverIsUnsaid:
		s.reset = -1
	}
	return s
}
