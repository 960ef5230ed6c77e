package authz

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/ratelimit"
)

// A node is what this replica keeps of one tenant: its buckets and purses.
type node struct {
	tenant string
	used   atomic.Int64 // second of the last request, for eviction
	path   atomic.Pointer[path]

	declared atomic.Bool // its name has a document
	shared   bool        // it stands for all names of a slot, see sharing
	order    int         // of a shared one, in which they are locked
	born     int64       // monotonic time of its first request

	mu sync.Mutex // guards what follows, the purses of the slots included
	// generation of the snapshot that the slots were last made to follow.
	generation uint64
	followed   int64  // monotonic time by which terms were computed that it follows
	root       string // of the tree that the purses are in
	dead       bool   // evicted: a path that leads here has to be built again
	slots      []*slot
	// purses are all that mu guards and the keeper may still know: those of the
	// slots, and closed ones that are not settled yet.
	purses  []*quota.Purse
	rations int // new accounts that it may still open of those of the keeper's minute
	minute  int64
}

// declare notes whether n's name has a document. One that an override names has none, and
// stays declared.
func (n *node) declare(declared bool) {
	if declared && !n.declared.Load() {
		n.declared.Store(true)
		n.mu.Lock()
		defer n.mu.Unlock()
		for _, p := range n.purses {
			p.Declared()
		}
	}
}

// isNew reports whether n's name has no document and was first seen less than a minute ago.
func (n *node) isNew(now quota.Instant) bool {
	return !n.declared.Load() && now.Mono-n.born < int64(newFor)
}

// oneOff reports whether n's name has no document, was in use for less than a minute, and
// has not been for some time.
func (n *node) oneOff(now quota.Instant) bool {
	used := n.used.Load() * int64(time.Second)
	return !n.declared.Load() && used-n.born < int64(newFor) && now.Mono-used >= int64(oneOffRest)
}

// A slot is one limit of a node in one app: a bucket or a purse. A tenant that may
// use several apps has slots for each, so that what one has spent is not forgotten
// while another is used. Accounts are the tenant's alone: of one limit and window,
// all apps have one purse.
type slot struct {
	app     string
	limit   *plan.EffectiveLimit
	counter counterState // of a rate limit descriptor's slot

	bucket     ratelimit.Bucket // of a rate
	*quotaSlot                  // of a quota; nil for a rate, of which there may be millions
}

// A quotaSlot is what a slot has for a quota.
type quotaSlot struct {
	// account names the accounts, but for their tree and window.
	account quota.Key

	calendar quota.Calendar
	terms    *quota.Terms
	window   quota.Window
	purse    *quota.Purse // of window; nil until the first charge
	// late is the purse of the window that was asked for before this one:
	// around the boundary requests of both come in, by when they began.
	lateWindow quota.Window
	late       *quota.Purse
	// next is the purse of the window after this one, opened a little before it begins.
	nextWindow quota.Window
	next       *quota.Purse
	nextFrom   time.Time // when it is opened
}

// at returns the purse of the window that holds an instant, and makes it the slot's
// own; nil if it is not open, or not any more.
func (s *quotaSlot) at(instant time.Time) *quota.Purse {
	if s.purse != nil && s.window.Holds(instant) && !s.purse.Closed() {
		return s.purse
	}
	if s.late != nil && s.lateWindow.Holds(instant) && !s.late.Closed() {
		s.purse, s.late, s.window, s.lateWindow = s.late, s.purse, s.lateWindow, s.window
		return s.purse
	}
	return nil
}

// purses are those of s, some of them nil; of a rate all.
func (s *slot) purses() (all [3]*quota.Purse) {
	if s.quotaSlot == nil {
		return all
	}
	return [...]*quota.Purse{s.purse, s.late, s.next}
}

// opened notes that n's lock guards a purse, and forgets those that are gone.
func (n *node) opened(p *quota.Purse) {
	if !slices.Contains(n.purses, p) {
		n.purses = append(slices.DeleteFunc(n.purses, (*quota.Purse).Gone), p)
	}
}

// leave lets go of the purses of s. The caller holds n's lock, and no slot of n that
// is still needed has s's purses.
func (n *node) leave(s *slot) {
	if s.quotaSlot == nil {
		return
	}
	purses := s.purses()
	s.purse, s.window, s.late, s.lateWindow = nil, quota.Window{}, nil, quota.Window{}
	s.next, s.nextWindow = nil, quota.Window{}
	for _, p := range purses {
		n.close(p)
	}
}

// close closes a purse, unless it is nil or another slot of n has it.
func (n *node) close(p *quota.Purse) {
	if p == nil {
		return
	}
	having := 0
	for _, s := range n.slots {
		if all := s.purses(); slices.Contains(all[:], p) {
			having++
		}
	}
	if having == 0 {
		p.Close()
	}
}

// moveTo makes n a part of the tree under root, where its accounts are: purses that
// are open elsewhere are closed. The caller holds n's lock.
func (n *node) moveTo(root string) {
	if n.root == root {
		return
	}
	n.root = root
	for _, s := range n.slots {
		n.leave(s)
	}
}

// follow makes n's slots follow terms, unless newer ones have been followed, and
// returns them in the order of the terms, and how many units of debts were forgiven. The
// caller holds n's lock.
func (n *node) follow(cur *current, now quota.Instant, terms *plan.NodeTerms, app *plan.App) (slots []*slot, forgiven int64) {
	slots = make([]*slot, len(terms.Limits))
	for i := range terms.Limits {
		l := &terms.Limits[i]
		s := n.slot(app.Name, l)
		if s == nil || s.limit.Kind != l.Kind {
			s = &slot{app: app.Name}
			if l.Kind == plan.Rate {
				s.bucket = ratelimit.NewBucket(rate(l, cur.replicas), now.Mono)
			} else {
				s.quotaSlot = &quotaSlot{account: quota.Key{Tenant: n.tenant, Limit: l.Name}}
			}
		}
		forgiven += n.turn(s, cur, now, terms, l, app)
		slots[i] = s
	}
	forgiven += n.replace(now, app.Name, slots)
	n.generation, n.followed = cur.generation, now.Mono
	return slots, forgiven
}

// slot returns the slot of a limit in an app by its name, or nil.
func (n *node) slot(app string, l *plan.EffectiveLimit) *slot {
	for _, s := range n.slots {
		if s.app == app && s.limit.Name == l.Name {
			return s
		}
	}
	return nil
}

// replace makes slots those of an app, and closes the purses of the ones that are
// no longer among them. It returns how many units of debts are forgiven with these.
func (n *node) replace(now quota.Instant, app string, slots []*slot) (forgiven int64) {
	old := n.slots
	n.slots = slices.Clone(slots)
	for _, s := range old {
		if s.app != app {
			n.slots = append(n.slots, s)
		}
	}
	for _, s := range old {
		if slices.Contains(n.slots, s) {
			continue
		}
		n.leave(s)
		if s.limit.Kind == plan.Rate {
			forgiven += s.bucket.Debt(now.Mono)
		}
	}
	return forgiven
}

// turn makes s follow l, and returns how many units of a debt were forgiven. A new rate
// holds from when the replica saw it, not from the tenant's next request (case C017).
func (n *node) turn(s *slot, cur *current, now quota.Instant, terms *plan.NodeTerms, l *plan.EffectiveLimit, app *plan.App) (forgiven int64) {
	before := s.limit
	s.limit = l
	if l.Kind == plan.Rate {
		return s.turnRate(cur, before)
	}
	s.terms = quotaTerms(terms, l, app)
	n.cut(s)
	for _, p := range s.purses() {
		if p != nil {
			p.SetTerms(now, s.terms)
		}
	}
	return 0
}

// turnRate makes a bucket follow the rate of its limit, which was another one before or
// the same (nil: none), and the number of replicas that share it.
func (s *slot) turnRate(cur *current, before *plan.EffectiveLimit) (forgiven int64) {
	r := rate(s.limit, cur.replicas)
	if before != nil && before.Amount == s.limit.Amount && before.Burst == s.limit.Burst &&
		before.Window == s.limit.Window && before.Replicas == s.limit.Replicas {
		return s.bucket.SetShare(cur.since, r)
	}
	return s.bucket.SetRate(cur.since, r)
}

// cut makes s follow the calendar of its limit. Windows that are not the same ones have
// other accounts. A time zone that was read again is the same one.
func (n *node) cut(s *slot) {
	before := s.calendar
	s.calendar = Calendar(s.limit)
	if a, b := before.Zone, s.calendar.Zone; a != nil && b != nil && a.String() == b.String() {
		before.Zone = b
	}
	if before != s.calendar {
		n.leave(s)
	}
}

// rate returns what this replica enforces of l.
func rate(l *plan.EffectiveLimit, replicas int) ratelimit.Rate {
	r := ratelimit.Rate{Amount: l.Amount, Window: l.Window, Burst: l.Burst}
	if l.Replicas == plan.Split {
		return ratelimit.Share(r, replicas)
	}
	return r
}

// quotaTerms turns what the documents say of l into what a purse needs.
func quotaTerms(terms *plan.NodeTerms, l *plan.EffectiveLimit, app *plan.App) *quota.Terms {
	t := &quota.Terms{
		App: app.Name, Amount: l.Amount, Ceiling: ceiling(l), Counts: l.Unlimited || l.WhenUsedUp.Count,
		Rule: quota.LeaseRule{
			First: l.Lease.First, MaxShare: l.Lease.MaxShare, Demand: l.Lease.Demand,
			RenewAtUsed: l.Lease.RenewAtUsed, RenewAfter: l.Lease.RenewAfter, UsableFor: l.Lease.UsableFor,
			ReportEvery: l.Lease.ReportEvery,
		},
		ExactBelow: share(l.Amount, l.Lease.ExactBelow), Wait: l.Lease.Wait,
		Cap:     quota.Cap{Units: l.AllowCap.Units, For: l.AllowCap.For},
		Version: terms.Version, Void: terms.Void,
		Guards: make([]quota.Guard, len(terms.Guards)),
	}
	for i, g := range terms.Guards {
		t.Guards[i] = quota.Guard{Kind: string(g.Kind), Name: g.Name, Revision: g.Revision}
	}
	return t
}

// ceiling returns how far requests are admitted: the amount and its grace band.
// Limits that only count are admitted as far as numbers go.
func ceiling(l *plan.EffectiveLimit) int64 {
	if l.Unlimited || l.WhenUsedUp.Count {
		return quota.MaxUnits
	}
	return min(quota.MaxUnits, l.Amount+share(l.Amount, l.WhenUsedUp.Grace))
}

// share returns a part of amount, in hundredths of a percent, rounded down.
func share(amount, part int64) int64 {
	const whole = 10_000
	return amount/whole*part + amount%whole*part/whole
}

// Calendar returns the rule by which the windows of a quota follow each other.
func Calendar(l *plan.EffectiveLimit) quota.Calendar {
	return quota.Calendar{Kind: calendarKind(l.Reset.Kind), Anchor: l.Reset.Anchor, Zone: l.Zone, Times: l.Reset.Times}
}

func calendarKind(k plan.ResetKind) quota.CalendarKind {
	switch k {
	case plan.CalendarHour:
		return quota.Hour
	case plan.CalendarDay:
		return quota.Day
	case plan.CalendarWeek:
		return quota.Week
	case plan.CalendarMonth:
		return quota.Month
	case plan.CalendarYear:
		return quota.Year
	case plan.CalendarBilling:
		return quota.Billing
	case plan.Cron, plan.Every, plan.AfterFirstUse:
		// Never in a snapshot: plan refuses what this version cannot enforce.
	}
	return 0
}

// evict makes n dead if it can be dropped without anybody noticing: nobody has asked
// for it lately, every bucket is full (R32) and every purse is settled, those that are
// closed included, for the next node of the tenant would guard them by another lock.
// Else it returns for how long n has to stay at least. Purses are forgotten on the way; a
// node that stays opens them again. The caller makes sure that nobody finds a dead node.
func (n *node) evict(k *quota.Keeper, now quota.Instant, what eviction) (stay time.Duration) {
	if n.used.Load() > (now.Mono-int64(restBeforeEviction))/int64(time.Second) || !n.mu.TryLock() {
		return restBeforeEviction
	}
	defer n.mu.Unlock()
	stay = n.drained(now, what)
	if stay > 0 && what == evicting {
		return stay
	}
	for _, p := range n.purses {
		if k.Forget(p) {
			continue
		}
		if what > evicting && !n.declared.Load() && !p.Closed() {
			p.Close()
		}
		stay = max(stay, restBeforeEviction)
	}
	n.dead = stay == 0
	return stay
}

// drained returns for how long n has to stay for the sake of its buckets.
func (n *node) drained(now quota.Instant, what eviction) time.Duration {
	if what == displacing && n.isNew(now) {
		return 0
	}
	for _, s := range n.slots {
		if s.limit.Kind == plan.Rate && !s.bucket.Full(now.Mono) {
			return s.bucket.UntilFull(now.Mono)
		}
	}
	return 0
}
