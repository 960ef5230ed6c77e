package authz

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/quota"
)

// Config is what a Decider is made of.
type Config struct {
	Keeper *quota.Keeper
	// Now reads the clocks, for what is decided after a wait.
	Now func() time.Time
	// MaxTenants is how many tenants are kept: 40,000 unless set (R31). Past it only
	// those with a document are, beside what settlements need; the others share slots.
	MaxTenants int
	// MaxCounters is how many counters of rate limit descriptors are kept, beside those:
	// 40,000 unless set. Past it only those of the rules' own values are; the others share
	// slots.
	MaxCounters int
	// MaxRuleSeries is how many rules of rate limit domains are counted by name, at most:
	// 10,000 unless set (P6, case C027). See Stats.Rules.
	MaxRuleSeries int
	// Waited is told how long a request waited for a lease. May be nil.
	Waited func(time.Duration)
	// Process names this process among all replicas, for ever: 64 random bits.
	Process uint64
	// Used is told what quotas are charged and given back, in the order in which it
	// happens to each request. Its argument ends with the call. May be nil.
	Used func(*Use)
	// Looked is told the path of each rule of a rate limit domain that a descriptor with
	// 0 hits has matched, the first time that this process sees one: charges of the rule
	// are bills from then on, at all replicas. It must not block. May be nil.
	Looked func(path string)
	// Room returns where a page of numbers is remembered beyond the end of this process,
	// with none settled; nil: there is no room now. It does no I/O. Nil: nothing is.
	Room func(PageName) *Page
	// Before are the pages that earlier processes have left where Room finds room.
	Before []*Page
	// Keep keeps the token of a reservation beyond the end of this process, so that what
	// that leaves unsettled can be told. It does no I/O and does not keep token. May be nil.
	Keep func(token []byte)
}

// A Decider decides requests. It is safe for concurrent use.
type Decider struct {
	keeper *quota.Keeper
	now    func() time.Time
	waited func(time.Duration)
	active *active
	// counters are those of rate limit descriptors, by the name of the counter and
	// what its limit counts in. No tenant is among them.
	counters *active
	shared   *sharing // of both
	current  atomic.Pointer[current]
	stats    *stats
	process  uint64
	told     func(*Use)
	looked   func(path string)
	later    laterRules
	keep     func(token []byte) // may be nil

	seals        atomic.Pointer[seals]
	numbers      numbers
	heirs        heirs
	open         openReservations
	reservations sync.Pool // *Reservation
	usual        durations

	verified verified  // tokens of signed headers
	replays  completed // mutations, by their idempotency keys
}

// New returns a Decider that has no documents yet: it answers NotReady.
func New(cfg Config) *Decider {
	if cfg.MaxTenants <= 0 {
		cfg.MaxTenants = 40_000
	}
	if cfg.MaxCounters <= 0 {
		cfg.MaxCounters = 40_000
	}
	if cfg.Waited == nil {
		cfg.Waited = func(time.Duration) {}
	}
	d := &Decider{
		keeper: cfg.Keeper, now: cfg.Now, waited: cfg.Waited,
		active: newActive(cfg.Keeper, cfg.MaxTenants), counters: newActive(cfg.Keeper, cfg.MaxCounters),
		shared: newSharing(cfg.MaxTenants + cfg.MaxCounters), stats: newStats(cfg.MaxRuleSeries),
		process: cfg.Process, looked: cfg.Looked, told: cfg.Used, keep: cfg.Keep,
	}
	d.numbers.process, d.numbers.room, d.heirs.room = cfg.Process, cfg.Room, cfg.Room
	d.heirs.restoreAll(cfg.Before)
	d.current.Store(&current{replicas: 1})
	return d
}

// SetSnapshot makes every request from now on see s. A request that is being
// decided goes on with what it saw.
func (d *Decider) SetSnapshot(s *plan.Snapshot) {
	d.replace(func(c *current) { c.snapshot = s })
}

// SetReplicas tells how many replicas are live, this one included: split limits
// are shared out again (R24, R25).
func (d *Decider) SetReplicas(n int) {
	d.keeper.SetReplicas(n)
	d.replace(func(c *current) {
		c.replicas = max(1, n)
		c.shares++
	})
}

// SetShadowMode makes every request from now on, if on, be admitted whatever limits
// there are (P2). Quotas of tenants count on past their end; of the rules of a domain
// metrics count what they would have refused. Who is refused for who it is stays refused. It may be switched while requests are decided (case C126).
func (d *Decider) SetShadowMode(on bool) {
	d.replace(func(c *current) { c.shadow = on })
}

func (d *Decider) replace(change func(*current)) {
	for {
		old := d.current.Load()
		next := *old
		change(&next)
		next.generation++
		next.since = d.keeper.Instant(d.now()).Mono
		if d.current.CompareAndSwap(old, &next) {
			return
		}
	}
}

// Declared reports whether a tenant has a document, valid or not; also where no documents
// have been read yet, so that nobody can tell.
func (d *Decider) Declared(tenant string) bool {
	s := d.current.Load().snapshot
	return s == nil || s.HasTenant(tenant)
}

// Ready reports whether documents have been read.
func (d *Decider) Ready() bool { return d.current.Load().snapshot != nil }

// Decide fills dec, which must be Reset, with the answer to req at now. It waits
// for a lease at most as long as the keeper says, never past ctx's deadline, and
// returns at once when ctx ends: then dec is Undecided and nothing is charged.
func (d *Decider) Decide(ctx context.Context, now time.Time, req *Request, dec *Decision) {
	dec.ID = NewID(now).tagged(d.process)
	d.decide(ctx, now, req, dec)
	d.stats.count(dec)
	d.tellCharges(dec)
}

func (d *Decider) decide(ctx context.Context, now time.Time, req *Request, dec *Decision) {
	patience := patience{keeper: d.keeper, since: now}
	for {
		cur := d.current.Load()
		if cur.snapshot == nil {
			dec.Outcome, dec.Why = NotReady, "no documents have been read from etcd yet"
			return
		}
		done, lease, limit := d.decideUnder(cur, now, req, dec, &patience)
		if done {
			break
		}
		id := dec.ID // the documents or the purses changed: decide again
		dec.Reset()
		dec.ID = id
		if lease != nil {
			patience.wait(ctx, now, lease, limit)
		}
		if errors.Is(ctx.Err(), context.Canceled) {
			break
		}
		now = d.now()
	}
	d.waitEnded(&patience)
}

// decideUnder decides req under one snapshot. It reports whether dec holds the
// answer; if not, the caller decides again, after it has waited for lease if that
// is not nil, until limit after the request came. patience reports whether there is time
// to wait.
func (d *Decider) decideUnder(cur *current, now time.Time, req *Request, dec *Decision, patience *patience) (done bool, lease <-chan struct{}, limit time.Duration) {
	app := findApp(cur.snapshot, req, dec)
	if app == nil {
		return true, nil, 0
	}
	dec.App = app
	caller, charged := d.identify(cur.snapshot, app, now, req, dec)
	if !charged {
		return true, nil, 0
	}
	p := d.price(cur.snapshot, app, now, req, &caller)
	p.check = p.check && !cur.shadow
	if p.rule != nil {
		dec.Route = p.rule.Name
	}
	if p.free() {
		dec.Tenant, dec.Outcome = caller.stable(), Exempt
		return true, nil, 0
	}
	at := d.keeper.Instant(now)
	leaf := d.leaf(cur, app, caller.tenant, at)
	dec.Tenant = leaf.tenant // the caller's name may point into a buffer
	if dec.shared = leaf.shared; dec.shared {
		dec.Tenant = caller.stable()
	}
	path := d.path(cur, app, leaf, now, at)
	if path.refusesUnknown(app, dec) || path.broken(app, &p, dec) {
		return true, nil, 0
	}
	a := attempt{
		d: d, cost: p, path: path, leaf: leaf, moment: moment{now, at, minute(patience.since, req.Start)}, // a wait changes no window
		leasing: leasing{impatient: patience.over, waited: now.Sub(patience.since)},
	}
	dec.check, dec.only = p.quotas(), p.only
	dec.rule, dec.hits, dec.minute, dec.leaf, dec.replayKey = p.rule, p.hits, a.minute, leaf.tenant, p.replayKey
	if app.Attribution != "" {
		dec.attribution = attribution(req, app.Attribution)
	}
	if done = a.run(dec); done && dec.shared && dec.Outcome.Admits() {
		d.stats.uncounted.Add(p.weight())
	}
	return done, a.short, a.wait
}

// appExtension names the app in Envoy's context extensions.
const appExtension = "mete-app"

// findApp returns the app that req is for: by rate limit domain, by name or by host. If
// there is none, dec holds the answer.
//
// Which host a request names is for its sender to say, so that a host without an app is
// answered.
func findApp(s *plan.Snapshot, req *Request, dec *Decision) *plan.App {
	var app *plan.App
	name := req.App
	if name == "" {
		name, _ = req.Extension(appExtension)
	}
	switch {
	case req.Domain != "":
		app = s.AppByDomain(req.Domain)
	case name != "":
		app = s.App(name)
	default:
		app = s.AppByHost(req.Host)
	}
	switch {
	case app != nil && app.NeverValid != "":
		neverValid(app, req, dec)
		return nil
	case app != nil:
		return app
	}
	if app = s.StandIn(name); app != nil && req.Domain == "" {
		neverValid(app, req, dec)
		return nil
	}
	dec.Outcome, dec.Why = NoApp, "no app has this name, domain or host"
	return nil
}

// neverValid answers for an app that was never valid: as if etcd were away. But where mete
// is asked who calls, and does not know, it lets nobody on: that is no answer then, and
// Envoy's failure mode decides.
func neverValid(app *plan.App, req *Request, dec *Decision) {
	dec.Why = app.NeverValid
	switch {
	case app.Defaults.OnUnavailable == plan.Deny:
		dec.App, dec.Outcome = app, Unavailable
	case req.Domain != "":
		dec.App, dec.Outcome = app, UnavailableAllowed
	default:
		dec.Outcome = NotReady
	}
}

// Domain returns what a rate limit domain has: the app that is bound to it and rules of
// its own; nil for what it has not.
func (d *Decider) Domain(name string) (*plan.App, *plan.Domain) {
	s := d.current.Load().snapshot
	if s == nil {
		return nil, nil
	}
	return s.AppByDomain(name), s.Domain(name)
}

// refusesUnknown answers for a tenant that nobody declared, that no default plan
// covers, or that belongs to another app.
func (p *path) refusesUnknown(app *plan.App, dec *Decision) bool {
	t := p.terms
	switch {
	case t.Foreign:
		dec.Why = "the tenant belongs to another app"
	case !t.Known && app.Defaults.Plan == "" && t.Broken == "":
		dec.Why = "no tenant of this name is declared and the app has no default plan"
	default:
		return false
	}
	dec.Outcome = TenantUnknown
	if app.Identity.WithoutTenant == plan.Allow {
		dec.Outcome = Exempt // without a plan there is no limit (R13)
	}
	return true
}

// broken answers for a tenant whose terms cannot be known: that is never "no
// limit" (case C004), it is as if etcd were away.
func (p *path) broken(app *plan.App, c *cost, dec *Decision) bool {
	if p.terms.Broken == "" {
		return false
	}
	c.unavailable(app, dec, p.terms.Broken)
	return true
}

// unavailable answers where nothing can be counted, as if etcd were away.
func (p *cost) unavailable(app *plan.App, dec *Decision, why string) {
	dec.Why = why
	choice := p.choice
	if choice == plan.ChoiceUnset {
		choice = app.Defaults.OnUnavailable
	}
	dec.Outcome = UnavailableAllowed
	if choice == plan.Deny && p.quotas() {
		dec.Outcome = Unavailable
	}
}

// maxSkew is how far Envoy's clock may be from ours for the start of a request to
// be believed.
const maxSkew = 5 * time.Minute

// minute returns the instant that decides the window of a request (A17).
func minute(now, start time.Time) time.Time {
	if d := now.Sub(start); start.IsZero() || d > maxSkew || d < -maxSkew {
		start = now
	}
	return quota.EndOfMinute(start)
}

// GiveBack undoes what dec charged, for an answer that nobody will hear, and makes its
// token void. It changes nothing where somebody has heard the answer after all: it is
// settled, or the app has reported what it used. Nor does a repeat.
func (d *Decider) GiveBack(now time.Time, dec *Decision) {
	if dec.number > 0 && !d.void(now, dec) {
		dec.charges = dec.charges[:0]
		return
	}
	d.tellGivenBack(dec)
	d.undo(now, dec)
}

// undo gives dec's charges back, and tells nobody.
func (d *Decider) undo(now time.Time, dec *Decision) {
	dec.charges = d.giveBack(now, dec.ID, dec.charges)
}

// giveBack gives the charges of a decision back and returns none, in the same memory.
func (d *Decider) giveBack(now time.Time, id ID, charges []charge) []charge {
	at := d.keeper.Instant(now)
	for _, c := range charges {
		c.node.mu.Lock()
		if c.purse != nil {
			c.purse.Refund(at, c.n, c.uncovered)
			c.release(at, id)
		} else {
			c.bucket.bucket.Give(at.Mono, c.n)
		}
		c.node.mu.Unlock()
	}
	return charges[:0]
}

// Stats returns the counts of decisions and of kept tenants.
func (d *Decider) Stats() Stats {
	s := d.stats.read()
	s.Tenants, s.Evicted = d.active.count.Load(), d.active.drops.Load()
	s.Shared = d.shared.requests.Load()
	s.Counters, s.EvictedCounters = d.counters.count.Load(), d.counters.drops.Load()
	s.Sealed = int64(d.numbers.last.Load()) //nolint:gosec // nobody counts so far
	s.Unsettled, s.Missing = d.numbers.open()
	left, missing := d.heirs.open()
	s.Unsettled, s.Missing = s.Unsettled+left, s.Missing+missing
	d.open.read(&s)
	if snap := d.current.Load().snapshot; snap != nil {
		s.FailedConditions = snap.FailedConditions()
	}
	return s
}
