package quota

import "slices"

// MaxUnits is the ceiling of accounts that never refuse.
const MaxUnits = 999_999_999_999_999

// A Key names one account.
type Key struct {
	Root   string // the root of the tenant's tree, which decides the shard
	Tenant string
	Limit  string
	Window string // Window.ID
}

// account returns k without its root, which decides where an account is and not which
// one it is.
func (k Key) account() Key {
	k.Root = ""
	return k
}

// An Account is the shared state of one (tenant, limit, window). The zero Account
// is one that nobody has used. Accounts are values: Apply never changes the one
// that it is given.
type Account struct {
	Base    int64    // used by holders that were folded away, less what was cleared
	Holders []Holder // sorted by ID
	Unknown []byte   // fields that a newer version wrote; kept as they are
}

// A Holder is what one incarnation of a replica has to do with an account. Only
// the holder itself changes it, until it is gone.
type Holder struct {
	ID   string
	Seq  uint64 // of the last operation applied
	Used int64  // cumulative; shrinks by refunds alone
	// Reserved are those of Used that requests had reserved which ran then.
	Reserved int64
	Leases   []Lease // sorted by ID
	Unknown  []byte
}

// A Lease is a number of units that a holder may spend without asking.
type Lease struct {
	ID      uint64 // the Seq of the operation that granted it
	Units   int64
	Version int64  // quota version of the terms it was made under; for people
	Exact   bool   // counts as used when its holder is gone (Q45)
	Unknown string // as Holder's; a string, so that leases can be compared
}

// Used returns the units used by all holders.
func (a Account) Used() int64 {
	used := a.Base
	for _, h := range a.Holders {
		used += h.Used
	}
	return used
}

// Reserved returns those of the used units that running requests have reserved, as of each
// holder's last report.
func (a Account) Reserved() int64 {
	var reserved int64
	for _, h := range a.Holders {
		reserved += h.Reserved
	}
	return reserved
}

// Leased returns the units out on lease.
func (a Account) Leased() int64 {
	var out int64
	for _, h := range a.Holders {
		out += h.leased()
	}
	return out
}

func (h Holder) leased() int64 {
	var out int64
	for _, l := range h.Leases {
		out += l.Units
	}
	return out
}

// An Operation is what a holder does to an account in one step: it reports its
// use, says which leases it still holds, and may ask for another one.
//
// The same Operation may be applied any number of times: a second time changes
// nothing and gives the same answer. A holder never has two operations on one
// account under way, and never goes on to the next Seq while it does not know
// what became of the last one.
type Operation struct {
	Key    Key
	App    string // the app whose time zone the first use fixes (A18)
	Holder string
	// Seq is 1 for the holder's first operation on the account, then one more
	// each time. An operation with Seq 0 changes nothing and only tells what the
	// account knows: a purse that may have had a forerunner begins with one.
	Seq uint64

	Used     int64 // cumulative use of this holder; below 0 after refunds of what a forerunner had reported
	Reserved int64 // of Used: what requests that run have reserved
	// Hold are the leases that go on, with what is left of them. All others are
	// closed, and so is one with nothing left: a later refund must not go into it.
	Hold []Lease

	// Want asks for a lease of up to Want units and at least Min; 0 asks for
	// none. Min is at least 1 where Want is not 0.
	Want, Min int64
	// Waiting is what requests wait for in all; 0: nobody waits. Where no more than
	// ExactBelow is left, only so much is lent as they spend at once, and it counts as
	// used should the holder be gone (Q45).
	Waiting, ExactBelow int64

	Ceiling  int64 // of used + leased
	Replicas int   // live replicas, this one included; at least 1
	Version  int64 // quota version of the terms, stamped on the lease
	// Guards must hold for a lease to be granted; an operation that asks for
	// nothing is applied without them. A store checks them in the transaction
	// that applies the operation, and so it does the holder's own liable key,
	// which every operation needs.
	Guards []Guard

	// Gone are holders that the store has found not to be liable any more. The
	// store fills it in and guards it in the same transaction (design 6.4).
	Gone []string
}

// A Guard is a document that must still be at the revision that the terms were
// computed from. Revision 0: it must not exist.
type Guard struct {
	Kind, Name string
	Revision   int64
}

// A Result is what an Operation did.
type Result struct {
	Granted int64  // units of the new lease; its ID is the operation's Seq
	Left    int64  // that nobody has used or holds, after the operation; below 0 after an overshoot
	Used    int64  // by all holders
	Leased  int64  // by all holders, the new lease included
	Seq     uint64 // of the last operation of this holder that was applied
	Own     int64  // used by this holder
	Exact   int64  // on lease to this holder, and counts as used should it be gone (Q45)
}

// Apply returns a after op, and what op did. It is the only place where accounts
// are computed, in every store.
//
// A grant is at most what is left. It is also at most left / replicas / 2, so that
// near the end all replicas get some, but never below Min if that much is left
// (Q41). Where no more than ExactBelow is left it is what requests wait for, and an
// exact lease (Q45). A holder that is Gone is folded into the base with its use, and
// its leases are closed (A33), the exact ones as used. An operation whose Seq the account has seen answers from the account and
// changes nothing.
func Apply(a Account, op Operation) (Account, Result) {
	i, known := a.find(op.Holder)
	if op.Seq == 0 || known && a.Holders[i].Seq >= op.Seq {
		return a, a.result(op)
	}
	n := a.without(op.Gone, op.Holder)
	h := Holder{ID: op.Holder}
	if known {
		h = a.Holders[i]
	}
	held := h.Used + h.leased()
	h.Seq, h.Used, h.Reserved = op.Seq, op.Used, op.Reserved
	h.Leases = keep(h.Leases, op.Hold, max(0, held-op.Used))
	n.put(h)
	left := op.Ceiling - n.Used() - n.Leased()
	if granted := grant(op, left); granted > 0 {
		h.Leases = append(h.Leases, Lease{ID: op.Seq, Units: granted, Version: op.Version, Exact: left <= op.ExactBelow})
		n.put(h)
	}
	return n, n.result(op)
}

// grant returns how much of what is left op gets.
func grant(op Operation, left int64) int64 {
	if op.Want <= 0 || left < op.Min {
		return 0
	}
	if left <= op.ExactBelow {
		if op.Waiting == 0 {
			return 0
		}
		return max(op.Min, min(op.Waiting, left))
	}
	share := left / int64(max(1, op.Replicas)) / 2
	return max(op.Min, min(op.Want, share))
}

// keep returns the leases of old that hold lists, with hold's units but never more
// than room in all: a holder cannot make units by saying that it has them, or by
// saying it twice.
func keep(old, hold []Lease, room int64) []Lease {
	kept := make([]Lease, 0, len(old)+1)
	for _, l := range old {
		i := slices.IndexFunc(hold, func(h Lease) bool { return h.ID == l.ID })
		if i < 0 {
			continue
		}
		units := min(hold[i].Units, room)
		if units <= 0 {
			continue
		}
		room -= units
		l.Units = units
		kept = append(kept, l)
	}
	return kept
}

// result tells what op did, or had done before, to a.
func (a Account) result(op Operation) Result {
	r := Result{Used: a.Used(), Leased: a.Leased()}
	r.Left = op.Ceiling - r.Used - r.Leased
	if i, known := a.find(op.Holder); known {
		h := a.Holders[i]
		r.Granted, r.Seq, r.Own, r.Exact = h.lease(op.Seq), h.Seq, h.Used, h.exact()
	}
	return r
}

// exact returns the units of the leases that count as used when h is gone.
func (h Holder) exact() int64 {
	var units int64
	for _, l := range h.Leases {
		if l.Exact {
			units += l.Units
		}
	}
	return units
}

func (h Holder) lease(id uint64) int64 {
	for _, l := range h.Leases {
		if l.ID == id {
			return l.Units
		}
	}
	return 0
}

func (a Account) find(id string) (int, bool) {
	return slices.BinarySearchFunc(a.Holders, id, func(h Holder, id string) int {
		switch {
		case h.ID < id:
			return -1
		case h.ID > id:
			return 1
		}
		return 0
	})
}

// without returns a copy of a with the holders gone folded into the base, with what
// they used and what they held exactly. The
// holder self is never folded: it is plainly there.
func (a Account) without(gone []string, self string) Account {
	n := Account{Base: a.Base, Unknown: a.Unknown, Holders: make([]Holder, 0, len(a.Holders)+1)}
	for _, h := range a.Holders {
		if h.ID != self && slices.Contains(gone, h.ID) {
			n.Base += h.Used + h.exact()
			continue
		}
		n.Holders = append(n.Holders, h)
	}
	return n
}

// put replaces or inserts h. The holders of a copy are the copy's own.
func (a *Account) put(h Holder) {
	i, known := a.find(h.ID)
	if known {
		a.Holders[i] = h
		return
	}
	a.Holders = slices.Insert(a.Holders, i, h)
}
