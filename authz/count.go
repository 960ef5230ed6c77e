package authz

import (
	"time"

	"github.com/meteproject/mete/plan"
)

// A DescriptorAsk is one descriptor of a rate limit request. Its strings may point into
// the caller's buffers: nothing of it is kept after CountDescriptors returns.
type DescriptorAsk struct {
	Entries []plan.DescriptorEntry
	// Hits is what the descriptor counts for, at most [plan.MaxAmount]; 0 only looks
	// whether anything is left (P13, case C046).
	Hits int64
	// Refund gives Hits back instead. It is never over the limit.
	Refund bool
	// Override is a limit that Envoy has sent along; it holds in place of the rule's,
	// and needs no rule (P14, S31). HasOverride: there is one.
	Override    plan.DescriptorLimit
	HasOverride bool
	// Unreadable says that the limit that Envoy has sent along, or all that the
	// descriptor says, cannot be read: its rule holds, and without a rule it is over
	// the limit (case C156).
	Unreadable bool
}

// A Count is the answer to all descriptors of a rate limit request. Callers may reuse
// one after Reset.
type Count struct {
	// Outcome is Allowed, UnavailableAllowed, RateLimited, QuotaExceeded or
	// RequestTooLarge; Unavailable where etcd is away and the domain says deny, or where
	// no document of the domain was ever valid; NoApp where the domain is not known,
	// which limits nothing; NotReady; Undecided where the caller has gone.
	Outcome Outcome
	// Why is a sentence for the operator where nothing could be decided.
	Why    string
	Domain *plan.Domain // nil: not known
	// Items are the descriptors, in the order of the request.
	Items []Counted
	// Worst is the index of the descriptor that refused with the longest wait; -1: none
	// refused.
	Worst int
	// RetryAfter is how long to wait; 0 where waiting cannot help.
	RetryAfter time.Duration

	charges []charge
	scratch countScratch
}

// A Counted is one descriptor as the request left it.
type Counted struct {
	// Match is the rule; nil: none matched.
	Match *plan.DescriptorMatch
	// State is the limit as the request left it; State.Limit is nil where there is none:
	// no rule, a rule without limit, one that another rule replaces, an unlimited one, or
	// what cannot be read.
	State LimitState
	// Named tells that the document or Envoy gives the limit a name.
	Named     bool
	Unlimited bool
	Replaced  bool // by the rule of another descriptor (P4)
	// Over tells that the descriptor's status is OVER_LIMIT.
	Over bool
	// Shadowed tells that it would be, but for shadow mode.
	Shadowed bool
	// Full says that the limit has no room for the hits, whether that refuses or not.
	Full bool
}

// Reset makes c the zero Count, keeping its memory.
func (c *Count) Reset() {
	*c = Count{Items: c.Items[:0], charges: c.charges[:0], scratch: c.scratch.reset(), Worst: -1}
}

// Refused reports whether the answer is OVER_LIMIT.
func (c *Count) Refused() bool {
	return c.Outcome == RateLimited || c.Outcome == QuotaExceeded || c.Outcome == RequestTooLarge
}
