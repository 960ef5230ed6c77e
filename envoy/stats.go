package envoy

import (
	"sync/atomic"
	"time"

	"github.com/meteproject/mete/authz"
)

// outcomes is how many outcomes there are.
const outcomes = int(authz.NotReady) + 1

// tallies count decisions by their outcome.
type tallies [outcomes]atomic.Uint64

type counters struct {
	checks, descriptors tallies
	counted             tallies
	gone                atomic.Uint64
	malformed           atomic.Uint64
	panics              atomic.Uint64
	logs                logCounters
	settlements         authz.SettledTally // by RLS
	unnumbered          atomic.Uint64
	unreserved          atomic.Uint64
	unreadableUnits     atomic.Uint64

	unreadableDescriptors atomic.Uint64
	roomier               counted // requests that show that Envoy takes more headers than we were told
	leftOut               struct{ decision, state atomic.Uint64 }
}

// Stats are counts since the start.
type Stats struct {
	// Checks are decisions on ext_authz requests, Descriptors those on rate limit
	// descriptors that name a tenant of an app. The index is the authz.Outcome.
	Checks, Descriptors [outcomes]uint64
	// Counted are rate limit requests that a domain's own rules were asked about. The
	// index is the authz.Outcome: NoApp is that of a domain that nobody knows, which
	// limits nothing.
	Counted [outcomes]uint64
	// Gone are calls whose caller had left or run out of time before the answer;
	// what they were charged was given back.
	Gone uint64
	// Malformed are calls answered with InvalidArgument.
	Malformed uint64
	// Panics are calls answered with INTERNAL after a panic, and entries of the access
	// log that ended in one.
	Panics uint64

	// Intake is what connections take.
	Intake IntakeStats
	// LeftOutDecision and LeftOutState are answers without the header that the request had
	// no room for.
	LeftOutDecision, LeftOutState uint64
	// Logs are what came by the access log.
	Logs LogStats
	// Settlements are rate limit descriptors that name a reservation, by the
	// authz.Settled.
	Settlements [authz.SettledKinds]uint64
	// Unnumbered are those without hits_addend, and Unreserved those with an empty
	// reservation. Both settle nothing.
	Unnumbered, Unreserved uint64
	// UnreadableUnits are rate limit descriptors of an app with an entry "units" that says
	// no number, or names no unit of the app. They are decided as if it were not there.
	UnreadableUnits uint64
	// UnreadableDescriptors are rate limit descriptors with a limit of Envoy's that is none,
	// with more than 64 entries or 64 KiB in a key or value, or beyond the first 1,000 of a
	// request. Their rules decide; what has no rule is over the limit (case C156).
	UnreadableDescriptors uint64
}

// HeadersTooLarge is how many checks were refused with 431.
func (s *Stats) HeadersTooLarge() uint64 { return s.Checks[authz.HeadersTooLarge] }

// Stats returns the counts. They are read one by one while calls go on.
func (s *Server) Stats() Stats {
	return Stats{
		Checks:      s.counters.checks.read(),
		Descriptors: s.counters.descriptors.read(),
		Counted:     s.counters.counted.read(),
		Gone:        s.counters.gone.Load(),
		Malformed:   s.counters.malformed.Load(),
		Panics:      s.counters.panics.Load(),

		Intake: s.intake.read(),
		Logs:   s.counters.logs.read(),

		LeftOutDecision: s.counters.leftOut.decision.Load(),
		LeftOutState:    s.counters.leftOut.state.Load(),

		Settlements: s.counters.settlements.Read(),
		Unnumbered:  s.counters.unnumbered.Load(),
		Unreserved:  s.counters.unreserved.Load(),

		UnreadableUnits: s.counters.unreadableUnits.Load(), UnreadableDescriptors: s.counters.unreadableDescriptors.Load(),
	}
}

func (t *tallies) read() (out [outcomes]uint64) {
	for i := range t {
		out[i] = t[i].Load()
	}
	return out
}

// count counts a decision that was begun at now.
func (s *Server) count(t *tallies, o authz.Outcome, now time.Time) {
	if o >= 0 && int(o) < outcomes {
		t[o].Add(1)
	}
	if s.onDecided != nil {
		s.onDecided(s.now().Sub(now))
	}
}
