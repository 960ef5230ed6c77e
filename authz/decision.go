package authz

import (
	"time"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/quota"
)

// An Outcome is the kind of answer.
type Outcome int

// The outcomes. Undecided is the zero value and is answered like an error:
// nobody is let through because nothing was decided.
const (
	Undecided Outcome = iota

	Allowed     // charged to everything
	Exempt      // a route or class that costs nothing, or an anonymous caller that the app lets through
	Grace       // past the amount, inside the grace band (C4)
	CountedOver // past the amount of a limit that only counts
	// UnavailableAllowed: etcd did not answer and the limit says allow (A57).
	UnavailableAllowed

	RateLimited     // 429
	QuotaExceeded   // 429
	RequestTooLarge // 429, without Retry-After: asks for more than the whole limit
	Unauthenticated // 401: no credential, or a bad one
	TenantUnknown   // 403: identity.without_tenant is deny
	Unavailable     // 503: etcd did not answer and the limit says deny (A60)

	// HeadersTooLarge: 431, there is no room for what says who calls, or there are more
	// headers than anybody reads. A Decider never says it; its callers do.
	HeadersTooLarge

	NoApp    // 404: no app has this name, host or domain
	NotReady // no documents have been read yet, or the app's was never valid
)

// Admits reports whether the request goes on.
func (o Outcome) Admits() bool {
	switch o {
	case Allowed, Exempt, Grace, CountedOver, UnavailableAllowed:
		return true
	case Undecided, RateLimited, QuotaExceeded, RequestTooLarge, Unauthenticated, TenantUnknown, Unavailable, HeadersTooLarge, NoApp, NotReady:
	}
	return false
}

// Word returns the word for o in refusal bodies and metrics.
func (o Outcome) Word() string {
	switch o {
	case RateLimited:
		return "rate_limited"
	case QuotaExceeded:
		return "quota_exceeded"
	case RequestTooLarge:
		return "request_too_large"
	case Unauthenticated:
		return "unauthenticated"
	case TenantUnknown:
		return "tenant_unknown"
	case Unavailable:
		return "quota_unavailable"
	case HeadersTooLarge:
		return "headers_too_large"
	case NoApp:
		return "app_unknown"
	case NotReady:
		return "not_ready"
	case Undecided:
		return "undecided"
	case Allowed:
		return "allowed"
	case Exempt:
		return "exempt"
	case Grace:
		return "grace"
	case CountedOver:
		return "counted_over"
	case UnavailableAllowed:
		return "unavailable_allow"
	}
	return "undecided"
}

// A Decision is the answer to one request. Callers may reuse one after Reset.
type Decision struct {
	ID      ID
	Outcome Outcome
	// Why is a sentence for the operator where nothing could be decided or
	// where the caller is refused for who it is. It holds no secret.
	Why string

	App       *plan.App // nil if none was found
	Tenant    string    // verified; "" for anonymous callers
	Principal string
	Class     string
	Route     string // name of the rule that matched

	// Limits are all limits that the request was measured by, in path order,
	// the leaf's first, each node's in the order of its plan.
	Limits []LimitState
	// Worst is the index in Limits of the refused limit with the longest wait,
	// which Retry-After follows; -1 if none refused.
	Worst int
	// RetryAfter is how long to wait; 0 where waiting cannot help.
	RetryAfter time.Duration

	UpgradeURL string

	charges []charge // what GiveBack gives back

	// For the reservation.
	rule        *plan.Rule // nil: no rule matched
	hits        int64
	check       bool      // false: it is charged whatever there is
	only        []string  // the units that it is charged; nil: all
	minute      time.Time // decides the windows
	leaf        string    // the tenant whose path was charged
	shared      bool      // by a slot that names share: nothing of it is settled or billed
	attribution string    // may point into the caller's buffer
	replayKey   [16]byte
	number      uint64 // of the reservation; 0: it was not sealed
}

// A LimitState is one limit as the request left it.
type LimitState struct {
	Limit  *plan.EffectiveLimit
	Tenant string // the node
	Plan   string // of the node; "": none
	Leaf   bool   // the node is the caller itself

	Asked   int64
	Refused bool
	// Shared says that the state is that of a slot which names without room share, on this
	// replica alone.
	Shared bool
	// Looked says that the limit was only looked at: what was asked for is not
	// taken from it, though the request may go on.
	Looked bool
	// Left is what is left after the request, never below 0. Used is what is
	// used of a quota, by all replicas as far as this one knows.
	Left, Used int64
	// Reserved are those of Used that requests which this replica admitted, and which run,
	// have reserved.
	Reserved int64
	// Returns is above 0 for a quota that refuses only because of what running requests have
	// reserved, and may not use: it is how long one usually runs, 1 to 30 s.
	Returns time.Duration
	// GraceLeft is what is left of the grace band once Left is 0.
	GraceLeft int64
	// Reset is, for a limit that has run out, the time until the request would
	// fit; for another bucket the time until it is full; for another quota the
	// time until it resets. Below 0: unknown or never.
	Reset time.Duration
	// Window is the length of the window: of a rate its written window, of a
	// quota the true length of the running one.
	Window   time.Duration
	ResetsAt time.Time // of a quota; zero for rates
	WindowID string    // of a quota
}

// Wait returns how long to wait for the limit; below 0: it never has room.
func (s *LimitState) Wait() time.Duration {
	if s.Returns > 0 {
		return s.Returns
	}
	return s.Reset
}

// Reset makes d the zero Decision, keeping its memory.
func (d *Decision) Reset() {
	*d = Decision{Limits: d.Limits[:0], charges: d.charges[:0], Worst: -1}
}

// A charge is one thing that was taken.
type charge struct {
	node      *node
	bucket    *slot        // of a rate
	purse     *quota.Purse // of a quota
	limit     string       // of a rate
	unit      string
	n         int64
	uncovered int64 // of n, that no lease covered
	held      held
}

// A held says how a charge is noted as one of a running request, see [quota.Purse.Reserve].
type held int

const (
	notHeld      held = iota
	heldFlat          // what is reserved is what is used
	heldMeasured      // the request may use less
)
