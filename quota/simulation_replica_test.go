package quota_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/meteproject/mete/quota"
)

// A simReplica is one replica of a simulation, over all its lives.
type simReplica struct {
	sim  *simulation
	name string
	skew time.Duration

	life    int
	since   int64           // when this life began
	holders []string        // by life
	dying   []string        // holders that are liable no more, or will not be
	gone    map[string]bool // of them, those that are liable no more
	paper   paper
	unread  []quota.Orphan // that no life has read, and the store may still hear of
	dropped int64          // by keepers of earlier lives, and journals
	unknown int64          // lost by keepers of earlier lives
	spins   int            // looks for nothing in this second
	second  int64

	keeper *quota.Keeper // nil: dead
	mu     sync.Mutex
	purses map[string]*quota.Purse
	terms  *quota.Terms
	board  *simBoard
	cut    int64 // time until which it is cut off from the store
	wakes  int64 // when it was planned to be looked at

	waiters []*simWaiter
}

// A simWaiter is a request that waits for a lease.
type simWaiter struct {
	key   quota.Key
	n     int64
	since int64
	ready <-chan struct{}
}

var errSim = errors.New("no answer")

func (r *simReplica) dead() bool { return r.keeper == nil }

// clock is r's own.
func (r *simReplica) clock() time.Time { return simBase().Add(time.Duration(r.sim.now) + r.skew) }

func (r *simReplica) at() quota.Instant { return r.keeper.Instant(r.clock()) }

// start begins a life: what the last one left is reported first.
func (r *simReplica) start() {
	s := r.sim
	r.life++
	r.since = s.now
	holder := fmt.Sprint(r.name, ".", r.life)
	r.recover()
	r.holders = append(r.holders, holder)
	r.purses, r.terms = map[string]*quota.Purse{}, s.terms()
	cfg := quota.KeeperConfig{Store: nil, Now: r.clock, Journal: &r.paper, Gone: func(string) {}}
	r.board = &simBoard{r: r, followed: map[quota.Key]bool{}}
	cfg.Board = r.board
	r.keeper = quota.NewKeeper(cfg, holder)
	r.keeper.SetReplicas(len(s.replicas))
	s.note("%s begins", holder)
}

// recover reports what the journal of the last life tells.
func (r *simReplica) recover() {
	s := r.sim
	for _, o := range r.paper.orphans() {
		if s.plan.amnesia {
			r.unread = append(r.unread, o)
			continue
		}
		got, err := quota.Recover(context.Background(), s.memory, &o, r.clock().UnixNano())
		if err != nil {
			s.t.Fatalf("recover %+v: %v", o, err)
		}
		s.note("%s recovers %+v of %+v", r.name, got, o)
		s.lost[withoutRoot(o.Key)] += got.Lost
		if slices.Contains(r.dying, o.Holder) && got == (quota.Recovered{}) && o.Used < o.Reported {
			s.lost[withoutRoot(o.Key)] += o.Used - o.Reported // what was given back is lost, too
		}
		r.dropped += got.Dropped
	}
	r.paper = paper{}
}

// giveUp makes a holder not liable. What its journal had and its account has not is lost
// from now on; until now it might have come late.
func (r *simReplica) giveUp(holder string) {
	if r.gone[holder] {
		return
	}
	if r.gone == nil {
		r.gone = map[string]bool{}
	}
	r.gone[holder] = true
	s := r.sim
	left := r.unread[:0]
	for _, o := range r.unread {
		switch {
		case o.Holder != holder:
			left = append(left, o)
		case o.Used > quota.Unbased/2:
			s.lost[withoutRoot(o.Key)] += o.Used - quota.Unbased
		default:
			s.lost[withoutRoot(o.Key)] += o.Used - s.own(o)
		}
	}
	r.unread = left
	for _, key := range s.memory.Accounts() {
		for _, h := range s.memory.Account(key).Holders {
			for _, l := range h.Leases {
				if h.ID == holder && l.Exact {
					s.lost[key] -= l.Units
				}
			}
		}
	}
	s.memory.SetLiable(holder, false)
}

// own returns what an orphan's account has of its holder.
func (s *simulation) own(o quota.Orphan) int64 {
	for _, h := range s.memory.Account(o.Key).Holders {
		if h.ID == o.Holder {
			return h.Used
		}
	}
	return 0
}

// crash kills r. It begins again some time later; its last incarnation stays liable for
// longer.
func (r *simReplica) crash() {
	s := r.sim
	if r.dead() {
		return
	}
	r.checkBound()
	holder := r.holders[len(r.holders)-1]
	s.note("%s is killed", holder)
	stats := r.keeper.Stats()
	r.dropped += stats.DroppedUnits
	r.unknown += stats.Overshoot[quota.ReplicaLost]
	r.keeper, r.purses, r.waiters = nil, nil, nil
	r.dying = append(r.dying, holder)
	s.after(s.some(40*time.Second), r, func() {
		if r.dead() {
			r.start()
		}
	})
	s.after(time.Minute+s.some(time.Minute), nil, func() { r.giveUp(holder) })
}

// rebirth takes r's incarnation for gone while r lives on. It hears of that a little
// later.
func (r *simReplica) rebirth() {
	s, life := r.sim, r.life
	old := r.holders[len(r.holders)-1]
	r.dying = append(r.dying, old)
	r.giveUp(old)
	holder := fmt.Sprint(r.name, ".", r.life, ".", len(r.holders))
	r.holders = append(r.holders, holder)
	s.note("%s is gone", old)
	s.after(s.some(3*time.Second), r, func() {
		if r.life == life && !r.dead() && r.holders[len(r.holders)-1] == holder {
			s.note("%s goes on", holder)
			r.keeper.SetHolder(holder)
		}
	})
}

// forget forgets what is settled, as an eviction does.
func (r *simReplica) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(r.purses)) {
		if r.keeper.Forget(r.purses[name]) {
			r.sim.note("%s forgets %s", r.name, name)
			delete(r.purses, name)
		}
	}
}

// checkBound holds what dies with r against what its bound says (A45).
func (r *simReplica) checkBound() {
	if r.dead() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, p := range r.purses {
		if u := p.Unreported(); u > p.Bound() {
			r.sim.t.Errorf("%s %s: %d units die, the bound said %d", r.name, name, u, p.Bound())
		}
	}
}

func (r *simReplica) cutOff(d time.Duration) {
	r.sim.note("%s is cut off for %v", r.name, d)
	r.cut = max(r.cut, r.sim.now+int64(d))
}

// hear makes r follow new terms, once it is not cut off any more.
func (r *simReplica) hear(tm *quota.Terms) {
	if r.dead() {
		return
	}
	if r.cut > r.sim.now {
		r.sim.after(time.Duration(r.cut-r.sim.now)+time.Millisecond, r, func() { r.hear(tm) })
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.terms.Version < tm.Version {
		r.terms = tm
		for _, name := range slices.Sorted(maps.Keys(r.purses)) {
			r.purses[name].SetTerms(r.at(), tm)
		}
	}
}

// caller is one caller: a request now, and the next one some time later.
func (r *simReplica) caller() {
	s := r.sim
	if s.over() {
		return
	}
	busy := int(s.now/int64(time.Minute))%len(s.replicas) == int(r.name[1]-'0') // each minute another one
	pause := 300 * time.Millisecond
	if busy {
		pause = 40 * time.Millisecond
	}
	s.after(s.some(pause), r, r.caller)
	if r.dead() {
		return
	}
	key := quota.Key{Root: "org:a", Tenant: "org:a", Limit: fmt.Sprint("l", s.rng.IntN(2)), Window: fmt.Sprint(s.now / int64(5*time.Minute))}
	r.request(&simWaiter{key: key, n: 1 + s.rng.Int64N(4), since: s.now})
}

// request does what a request does, now or once more after a wait.
func (r *simReplica) request(w *simWaiter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, p := r.at(), r.purse(w.key)
	waited := time.Duration(r.sim.now - w.since)
	switch v := p.Room(at, w.n); {
	case v == quota.Fits:
		r.admit(p, at, w, false)
	case v == quota.Spent:
		r.sim.refused++
	case waited >= p.Wait() && p.GaveUp(at, waited):
		r.sim.refused++
	case waited >= p.Wait() || p.FailingFor(at) > 0:
		p.Ask(w.n)
		if r.sim.plan.allow && p.LetsOn(at, w.n) {
			r.admit(p, at, w, true)
		} else {
			r.sim.refused++
		}
	default:
		w.ready = p.Await(w.n)
		r.await(w)
	}
}

// await looks at w again when it is told to, or when its patience ends.
func (r *simReplica) await(w *simWaiter) {
	r.waiters = append(r.waiters, w)
	life := r.life
	r.sim.after(time.Duration(w.since-r.sim.now)+300*time.Millisecond, r, func() {
		if i := slices.Index(r.waiters, w); i >= 0 && r.life == life {
			r.waiters = slices.Delete(r.waiters, i, i+1)
			r.request(w)
		}
	})
}

// answer lets those look again whose wait is over.
func (r *simReplica) answer() {
	waiters := r.waiters
	r.waiters = nil
	for _, w := range waiters {
		select {
		case <-w.ready:
			r.request(w)
		default:
			r.waiters = append(r.waiters, w)
		}
	}
}

func (r *simReplica) admit(p *quota.Purse, at quota.Instant, w *simWaiter, letOn bool) {
	s := r.sim
	uncovered := p.Charge(at, w.n)
	if letOn {
		p.LetOn(uncovered)
	}
	key := withoutRoot(w.key)
	s.admitted[key] += w.n
	if s.rng.IntN(12) > 0 {
		return
	}
	life := r.life
	s.after(s.some(time.Second), r, func() { // an answer that nobody heard
		if r.dead() || r.life != life {
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		next := r.purses[w.key.Limit]
		if p.Gone() && (next == nil || next.Key() != w.key || next.Gone()) {
			return // it stays used
		}
		p.Refund(r.at(), w.n, uncovered)
		s.admitted[key] -= w.n
	})
}

func (r *simReplica) purse(k quota.Key) *quota.Purse {
	if p := r.purses[k.Limit]; p != nil && p.Key() == k && !p.Closed() {
		return p
	} else if p != nil && p.Key() != k {
		p.Close() // its window is over
	}
	p := r.keeper.Open(k, quota.Window{ID: k.Window}, r.terms, &r.mu)
	p.SetTerms(r.at(), r.terms)
	r.purses[k.Limit] = p
	return p
}

// pump sends off what r's keeper has to do, and plans the next look.
func (r *simReplica) pump() {
	if r.dead() {
		return
	}
	r.answer()
	for f := r.keeper.Depart(); f != nil; f = r.keeper.Depart() {
		r.fly(f)
	}
	at := r.sim.now + int64(max(time.Millisecond, r.keeper.Pause()))
	if r.wakes <= r.sim.now || at < r.wakes {
		r.wakes = at
		r.sim.after(time.Duration(at-r.sim.now), r, func() {})
	}
}

// fly takes an operation to the store and its answer back. Each way takes its time;
// either may be lost, and a request that comes late is applied all the same.
func (r *simReplica) fly(f *quota.Flight) {
	s, life := r.sim, r.life
	if f.Op == nil {
		if r.second != s.now/int64(time.Second) {
			r.second, r.spins = s.now/int64(time.Second), 0
		}
		if r.spins++; r.spins == 500 {
			s.t.Errorf("%v: %s looks 500 times a second for nothing", time.Duration(s.now), r.name)
		}
		r.arrive(f, life, quota.Result{}, nil)
		return
	}
	op := *f.Op
	there, back := s.some(8*time.Millisecond), s.some(8*time.Millisecond)
	lostThere, lostBack := false, false
	if s.plan.faults {
		roll := s.rng.IntN(60)
		lostThere, lostBack = roll == 0 || r.cut > s.now, roll == 1
		if roll == 2 {
			there = s.some(time.Second) // perhaps after it was given up
		}
	}
	if s.plan.fussy && s.rng.IntN(40) == 0 {
		s.after(there, r, func() { r.arrive(f, life, quota.Result{}, fmt.Errorf("no space: %w", quota.ErrNotApplied)) })
		return
	}
	answered := false
	s.after(f.Wait, r, func() {
		if !answered {
			answered = true
			r.arrive(f, life, quota.Result{}, errSim)
		}
	})
	if lostThere {
		return
	}
	s.after(there, r, func() {
		res, err := s.apply(op)
		if lostBack || r.cut > s.now {
			return
		}
		s.after(back, r, func() {
			if !answered {
				answered = true
				r.arrive(f, life, res, err)
			}
		})
	})
}

// arrive gives the keeper its answer, if it still lives.
func (r *simReplica) arrive(f *quota.Flight, life int, res quota.Result, err error) {
	if r.life != life || r.dead() {
		return
	}
	heldBack := f.Arrive(res, err)
	if !heldBack {
		f.Land(false)
		return
	}
	r.sim.after(quota.StaleWait, r, func() {
		if r.life == life && !r.dead() {
			f.Land(true)
		}
	})
}

// A simBoard carries word between the replicas of a simulation.
type simBoard struct {
	r        *simReplica
	followed map[quota.Key]bool
}

func (b *simBoard) Recall(_ context.Context, key quota.Key) error {
	s := b.r.sim
	s.note("%s recalls %s", b.r.name, key.Limit)
	for _, other := range s.replicas {
		if other != b.r {
			s.after(s.some(20*time.Millisecond), other, func() {
				if !other.dead() && other.cut <= s.now {
					other.keeper.Recalled(key)
				}
			})
		}
	}
	return nil
}

// Follow implements [quota.Board].
func (b *simBoard) Follow(key quota.Key) {
	b.followed[withoutRoot(key)] = true
	b.changed(key, b.r.sim.memory.Account(key))
}

// changed tells r how an account is, a little later.
func (b *simBoard) changed(key quota.Key, a quota.Account) {
	keeper, s := b.r.keeper, b.r.sim
	if keeper == nil || !b.followed[withoutRoot(key)] || b.r.cut > s.now {
		return
	}
	s.after(s.some(20*time.Millisecond), b.r, func() {
		if b.r.keeper == keeper {
			keeper.Changed(key, a)
		}
	})
}

// Unfollow implements [quota.Board].
func (b *simBoard) Unfollow(key quota.Key) { delete(b.followed, withoutRoot(key)) }
