package quota

import "time"

// The parts of a Purse. Each is guarded as the purse is, but for its place.

// A since is the time from which on something holds, if it does.
type since struct {
	at  Instant
	set bool
}

// A refusal remembers that a store had no more than left units to give.
type refusal struct {
	since
	left int64
}

// A stock is what a purse may spend.
type stock struct {
	lots    []lot // oldest first
	batch   int64 // spendable just after the last grant
	inSlice bool  // units are lent only as requests wait for them
	spent   bool  // since the last grant
	demand  demand
	filled  Instant       // when the last grant was asked for
	early   time.Duration // how much before its time that grant is renewed (P69)
}

// A tally is what was used.
type tally struct {
	used  int64 // cumulative, under the known holder
	past  int64 // used beyond MaxUnits, where counting ends; kept for what is given back
	marks []mark
	// pending is since when there is use, or a refund, that is not reported.
	pending  since
	overdue  bool // etcd answers again: what was let on meanwhile is reported at once
	cell     Cell // nil: nothing to be remembered yet
	reserved reservations
}

// known is what the store knows, as of the last operation that is known to be applied.
type known struct {
	holder      string // incarnation that used and seq belong to; "": none yet
	seq         uint64
	reported    int64
	held        int64 // units that it counts as leased to us
	exact       int64 // of held, that count as used when holder is gone
	others      int64 // used by others
	unbased     bool  // cell counts from what the store has of a forerunner
	contacted   bool
	lastContact Instant
}

// A flight is an operation under way, or of unknown outcome.
type flight struct {
	op      *Operation // nil: there is none
	opTerms *Terms
	opAsked Instant
	doubt   bool       // an earlier try of op may have been applied
	inquest *Operation // of a lost holder: op asks whether it was applied
	recount *Operation // reports what has waited too long: op asks whether it was applied
	maybe   bool       // an operation before op may have been applied by a holder that is gone since
}

// waiters are the requests that wait for a lease.
type waiters struct {
	waiting since         // when the first began to wait for a lease that is neither granted nor refused
	wait    chan struct{} // closed when the operation that waiters need has ended
	need    int64         // of the largest waiter
	needs   int64         // of all waiters
	crowd   int64         // what those lacked who were last told to look again
}

// refusals are why nothing is asked for.
type refusals struct {
	refusal refusal
	dry     since // as refusal, while others hold units that have not been recalled
	failed  since // the store to answer, or to answer in time
	stale   bool  // the terms are old: nothing is asked for until they change
	retryAt int64 // monotonic time before which the store is not asked
}

// recalls are what replicas ask of each other.
type recalls struct {
	recall      recall
	following   bool  // the board tells of the account's changes
	returning   bool  // another replica has asked for what is not needed
	wantedUntil int64 // monotonic time until which another replica may be refusing requests
}

// doubts are what may prove to be past the quota.
type doubts struct {
	over, opOver excess // as it is, and as the operation under way reports it
	suspect      int64  // spent from leases since terms may have changed unheard
	outage       outage
}

// A newcomer is a name without a document that was first seen a moment ago, see Newcomer.
type newcomer struct {
	newUntil int64 // monotonic time until which its name is new
	ration   int64 // the minute of the ration that its account takes up; 0: none
}

// An agenda is when a purse is looked at.
type agenda struct {
	poked    bool   // the keeper knows that a renewal is due
	reviewAt int64  // monotonic time of the next planned look; 0: none
	salt     uint64 // of the next jitter
}

// An ending is how far a purse is from being forgotten.
type ending struct {
	closing  bool
	closedAt Instant
	gone     bool // forgotten: another purse may have taken its place
}

// A place is where a purse is in its keeper's queues, under the keeper's lock.
type place struct {
	busy   bool // a goroutine of the keeper is with the store for this purse
	queued bool // in one of the keeper's queues
	urgent bool // in the one of those that are waited for
	again  bool // poked while busy
	late   bool // of a new name, which goes after the others; as of when it was queued or taken
}
