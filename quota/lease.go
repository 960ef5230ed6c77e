package quota

import "time"

// Shares are written in hundredths of a percent.
const whole = 10_000

// A LeaseRule says how large the leases of an account are and how long they live.
type LeaseRule struct {
	First       int64         // units of the first lease (A21)
	MaxShare    int64         // of the amount that one replica may hold, in hundredths of a percent (A23)
	Demand      time.Duration // how much of recent demand a lease covers (Q36)
	RenewAtUsed int64         // of the lease, in hundredths of a percent (A28)
	RenewAfter  time.Duration // age at which a lease is renewed (A29)
	UsableFor   time.Duration // age from which a lease is not spent from (A31)
	ReportEvery time.Duration // how long use waits to be reported at most; 0: until the renewal (A47, C23)
}

// DefaultLeaseRule returns the rule that holds where a plan says nothing (A21 to A23,
// A28, A29, A31).
func DefaultLeaseRule() LeaseRule {
	return LeaseRule{
		First: 10, MaxShare: 1000, Demand: 10 * time.Second,
		RenewAtUsed: 7000, RenewAfter: 45 * time.Second, UsableFor: 60 * time.Second,
	}
}

// Size returns how many units a replica should hold of an account with this
// amount: the first lease, then what recent demand needs, and at most the
// greatest share; but never less than one reservation, and at least 1
// (A21, A22, A23). What is left of the account is the store's to know (A24).
func (r LeaseRule) Size(amount, demand, reservation int64) int64 {
	size := max(r.First, demand)
	size = min(size, share(amount, r.MaxShare))
	return max(size, reservation, 1)
}

// share returns parts of amount, rounded down. Amounts have 15 digits and parts
// five, so the product can pass 2^63: the whole and the rest are taken apart.
func share(amount, parts int64) int64 {
	return amount/whole*parts + amount%whole*parts/whole
}

// An Instant is one reading of a replica's two clocks. A lease is over when
// either says so: the monotonic clock stands still while a machine sleeps, and
// the wall clock can be set back (case C040).
type Instant struct {
	Mono int64 // nanoseconds since the process began
	Wall int64 // nanoseconds since 1970
}

// since returns the time from then to i, by the clock that moved further.
func (i Instant) since(then Instant) time.Duration {
	return time.Duration(max(i.Mono-then.Mono, i.Wall-then.Wall))
}

// second returns the second of the monotonic clock, for a clock that went back
// before the process began its first one (case C039).
func (i Instant) second() int64 { return max(0, i.Mono) / int64(time.Second) }

// A lot is what is left of one lease.
type lot struct {
	id    uint64
	left  int64
	asked Instant // just before the request that brought it was sent
}

// demandSlots seconds of history are enough for the default Demand.
const demandSlots = 10

// A demand remembers the units of the last seconds.
type demand struct {
	slots [demandSlots]int64
	last  int64 // the second of the newest slot
	first int64 // the second of the first unit ever
}

func (d *demand) add(now Instant, n int64) {
	second := now.second()
	if d.first == 0 {
		d.first, d.last = second+1, second // first is kept one up: 0 means never
	}
	d.advance(second)
	slot := &d.slots[second%demandSlots]
	*slot = min(*slot+min(n, MaxUnits), MaxUnits)
}

func (d *demand) advance(second int64) {
	if second-d.last >= demandSlots {
		d.slots = [demandSlots]int64{}
		d.last = second
		return
	}
	for ; d.last < second; d.last++ {
		d.slots[(d.last+1)%demandSlots] = 0
	}
}

// lately returns the units of this second and the last one.
func (d *demand) lately(now Instant) int64 {
	if d.first == 0 {
		return 0
	}
	second := now.second()
	d.advance(second)
	return d.slots[second%demandSlots] + d.slots[(second+demandSlots-1)%demandSlots]
}

// over returns the units that span of demand at the recent rate comes to.
func (d *demand) over(now Instant, span time.Duration) int64 {
	if d.first == 0 {
		return 0
	}
	second := now.second()
	d.advance(second)
	var units int64
	for _, n := range d.slots {
		units += n
	}
	seen := min(int64(demandSlots), max(1, second-d.first+2))
	seconds := int64(span / time.Second)
	if seconds > 0 && units > MaxUnits/seconds {
		return MaxUnits
	}
	return units * seconds / seen
}
