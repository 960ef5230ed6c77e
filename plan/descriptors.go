package plan

import (
	"math"
	"reflect"
	"regexp"
	"slices"
	"time"
)

// A RateLimits is a document of rate limit descriptors in the YAML of
// envoyproxy/ratelimit. It is never changed once decoded or merged.
type RateLimits struct {
	Domain string
	Rules  []DescriptorRule // in the order written
	// Settings is what is written under "mete"; nil: nothing, see [DefaultDomainSettings].
	Settings *DomainSettings
	// File is where the document was read from. Documents of a domain are merged in
	// the order of their files.
	File string

	at       pos // of the domain
	index    int // of the document in its file
	settings pos // of what is written under "mete"

	settingsFile string // where the settings were read from
}

// Same reports whether two documents say the same, wherever and in whatever way they are
// written: {} for nothing, or 07 for 7, is no difference.
func (l *RateLimits) Same(other *RateLimits) bool {
	return l.Domain == other.Domain && reflect.DeepEqual(l.Settings, other.Settings) && sameRules(l.Rules, other.Rules)
}

// sameRules compares rules in their order, which patterns are tried in.
func sameRules(a, b []DescriptorRule) bool {
	return slices.EqualFunc(a, b, func(a, b DescriptorRule) bool {
		return a.Spot() == b.Spot() && reflect.DeepEqual(a.Limit, b.Limit) &&
			a.Shadow == b.Shadow && a.QuotaMode == b.QuotaMode && a.ShareThreshold == b.ShareThreshold &&
			a.DetailedMetric == b.DetailedMetric && a.ValueToMetric == b.ValueToMetric &&
			(len(a.Metadata)+len(b.Metadata) == 0 || reflect.DeepEqual(a.Metadata, b.Metadata)) && sameRules(a.Rules, b.Rules)
	})
}

// A DescriptorRule matches one entry of a descriptor, and its Rules the entries after it.
type DescriptorRule struct {
	Key string
	// Value is what the entry's value must be: exactly, or, with "*" in it, as a
	// pattern in which each "*" stands for any run of bytes, an empty one too. "": any.
	// "*" in a key stands for itself.
	Value string
	// Regex is what the entry's value must match as a whole, in the syntax of RE2, in
	// place of Value (P9); "": none.
	Regex string
	// When is a condition on the whole descriptor, an expression of CEL (P18): the rule is
	// none where it is false. "": none.
	When string
	// Path names the rule in messages: "edge / org=acme / route".
	Path string

	Limit          *DescriptorLimit // nil: a match here is not a limit
	Shadow         bool             // counted, never refused
	QuotaMode      bool             // refuses only where all quota rules of a request do
	ShareThreshold bool             // all values that match the pattern share one counter
	DetailedMetric bool             // metrics of the limit show the values of all entries
	ValueToMetric  bool             // metrics show the value of this entry
	// Metadata is handed to Envoy with the answer: text, bool, float64, []any and
	// map[string]any; nil: none.
	Metadata map[string]any
	Rules    []DescriptorRule

	regex *regexp.Regexp
	when  *condition
	file  string
	at    pos
}

// A DescriptorSpot is what tells a rule from the others of its level.
type DescriptorSpot struct{ Key, Value, Regex, When string }

// Spot returns what tells the rule from the others of its level.
func (r *DescriptorRule) Spot() DescriptorSpot {
	return DescriptorSpot{r.Key, r.Value, r.Regex, r.When}
}

// A DescriptorLimit is what a rule allows.
type DescriptorLimit struct {
	Name      string // "": none was written
	Unlimited bool   // counted, never refused; the limit has no Unit then
	// Amount is units a window, from 0 to 4,294,967,295; 0 admits nothing.
	Amount     int64
	Unit       DescriptorUnit
	Multiplier int64    // how many units long the window is; 1 unless written
	Replaces   []string // names of limits that do not count where this one matches
}

// A DescriptorUnit is the unit of a window.
type DescriptorUnit int

// The units. Second and minute are buckets; the others are quotas, shared by all replicas.
const (
	UnitSecond DescriptorUnit = iota + 1
	UnitMinute
	UnitHour
	UnitDay
	UnitWeek
	UnitMonth
	UnitYear
)

// String returns the unit as documents spell it.
func (u DescriptorUnit) String() string {
	if u < UnitSecond || u > UnitYear {
		return "no unit"
	}
	return unitWords()[u-UnitSecond]
}

func unitWords() []string {
	return []string{"second", "minute", "hour", "day", "week", "month", "year"}
}

// Bucket reports whether a limit is a token bucket, and with what window.
func (l *DescriptorLimit) Bucket() (window time.Duration, ok bool) {
	switch l.Unit {
	case UnitSecond:
		return time.Duration(l.Multiplier) * time.Second, true
	case UnitMinute:
		return time.Duration(l.Multiplier) * time.Minute, true
	case UnitHour, UnitDay, UnitWeek, UnitMonth, UnitYear:
	}
	return 0, false
}

// LongestMultiplier returns how many units a window may have: a bucket's fills within
// a year, any other lasts 100 years at most.
func (u DescriptorUnit) LongestMultiplier() int64 {
	const day, years = 24, 100
	switch u {
	default: // unknown, and reported
		return math.MaxUint32
	case UnitSecond:
		return int64(longestWindow / time.Second)
	case UnitMinute:
		return int64(longestWindow / time.Minute)
	case UnitHour:
		return years * 365 * day
	case UnitDay:
		return years * 365
	case UnitWeek:
		return years * 52
	case UnitMonth:
		return years * 12
	case UnitYear:
		return years
	}
}

// A DescriptorEntry is one key and value of a descriptor, as bytes that need not be UTF-8.
type DescriptorEntry struct{ Key, Value string }
