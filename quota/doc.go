// Package quota lets many replicas spend from one quota without asking before
// each request.
//
// # The idea
//
// A tenant may use 10,000 units a month, through any of several replicas. A counter in
// a shared store that every request reads and writes is exact, but adds a round trip to
// each request and makes the busiest tenant's counter the limit of the whole service.
// Counters of their own that replicas add up once in a while cost nothing, and let each
// replica admit the last units again. Shares of a fixed size refuse a tenant at one
// replica while its units lie idle at another.
//
// So a replica borrows. It asks the store for a lease of a few units, spends from it in
// memory, and asks for the next one before the first is used up. One rule holds for
// every account at every moment, whichever replica dies and whichever message is lost:
//
//	used + units out on lease ≤ ceiling
//
// # The price
//
// The store has one operation for a lease in place of one for a request. What one
// replica holds another does not have: near the end of a quota leases are small, units
// that lie idle are recalled, and those of a replica that is killed are missing until
// it is not liable any more. A first request waits for its lease.
//
// # How far it can be off
//
// A tenant can use more than its quota in the ways that [Cause] lists, and in no other
// (features A43 to A50); each has its own count. The metric mete_overshoot_bound_units is
// how much it can be at the worst.
//
// # The parts
//
// An [Account] is the shared state, changed by one pure function, [Apply], through a
// [Store] that compares before it swaps. A [Purse] is one replica's side of an account:
// charging it is arithmetic in memory. The [Keeper] keeps purses filled behind the
// requests' back. This is the life of a purse:
//
//	         Open
//	          │            Await            Apply: granted
//	          ▼          ┌────────► asks ─────────────────┐
//	        empty ───────┤           │                    ▼
//	          ▲          │           │ refused          filled ──┐ Charge, Refund, Settle
//	          │          │           ▼                    │ ▲    │
//	          │          └──────── spent                  │ └────┘
//	          │       (remembered for 10 s,               │
//	          │        or until units come back)          │ much of it is used, or it is old:
//	          │                                           │ asks again, while it is spent from
//	          └───────────────────────────────────────────┘ nobody uses it: all goes back
//
//	Close: nothing is spent from it any more; what was used is reported, what was not
//	goes back, and once the store knows of both (Settled) the keeper forgets the purse.
//
// An operation whose answer is lost is repeated as it was until its outcome is known: the
// store knows it by its number.
//
// The package is pure: it does no I/O of its own and reads no clock but the Now
// that it is given.
package quota
