package ledger

import (
	"hash/maphash"
	"math"
	"strings"
	"time"
)

// An Outcome is what became of units. There are only those two that an account is made
// of: what it has of a window as used is the sum of counted less the sum of refunded.
// Use above a reservation is counted, once more, and so is use past the ceiling:
// whether there was room for it is known to the account alone, and only later. What was
// refused or is exempt is not in an account and so is no use.
type Outcome uint8

// The outcomes.
const (
	Counted  Outcome = iota + 1 // charged, when the request was admitted or when it had ended
	Refunded                    // charged before, and given back
)

const outcomes = int(Refunded) + 1

// Word returns the word for o in events; "" if o is none of the outcomes.
func (o Outcome) Word() string {
	switch o {
	case Counted:
		return "counted"
	case Refunded:
		return "refunded"
	}
	return ""
}

// A Use is units of one quota that one request has used, or has been given back.
type Use struct {
	// At is the wall time that the use belongs to, and with it the hour: uses of
	// different hours (UTC) are in different events.
	At time.Time

	App, Tenant, Limit, Unit string
	Window                   string // its id
	Class, Principal         string // "": none
	Route, Attribution       string // "": none

	Outcome Outcome
	Units   int64 // from 0; use of 0 units is in no event
}

const (
	hour = int64(time.Hour)
	// maxText is how many bytes of what callers can choose freely are told apart.
	maxText = 256
)

// A key is everything that an event tells of its units.
type key struct {
	app, tenant, limit, unit, window     string
	class, principal, route, attribution string

	hour    int64 // since 1970
	outcome Outcome
	merged  bool // of several principals, routes and attributions
}

// keyOf returns the key that u belongs to, with u's own texts.
func keyOf(u *Use, at int64) key {
	return key{
		app: u.App, tenant: u.Tenant, limit: u.Limit, unit: u.Unit, window: u.Window,
		class: u.Class, principal: cut(u.Principal), route: cut(u.Route), attribution: cut(u.Attribution),
		hour: at / hour, outcome: u.Outcome,
	}
}

func cut(s string) string { return s[:min(len(s), maxText)] }

// merge makes k the key for all that differ from it in what callers can make up.
func (k *key) merge() {
	k.principal, k.route, k.attribution, k.merged = "", "", "", true
}

// hash returns a hash of that in k of which there are many. Keys that differ in the rest
// alone are few.
func (k *key) hash(seed maphash.Seed) uint64 {
	const odd = 0x9e3779b97f4a7c15
	h := maphash.String(seed, k.tenant)
	for _, s := range [...]string{k.limit, k.principal, k.route, k.attribution} {
		h = h*odd + maphash.String(seed, s)
	}
	return h
}

// clone returns k with texts of its own.
func (k *key) clone() key {
	own := *k
	texts := [...]*string{
		&own.app, &own.tenant, &own.limit, &own.unit, &own.window,
		&own.class, &own.principal, &own.route, &own.attribution,
	}
	var all strings.Builder
	for _, t := range texts {
		all.WriteString(*t)
	}
	rest := all.String()
	for _, t := range texts {
		*t, rest = rest[:len(*t)], rest[len(*t):]
	}
	return own
}

// fits reports whether the sum of a and b, which are not negative, is an int64.
func fits(a, b int64) bool { return a <= math.MaxInt64-b }
