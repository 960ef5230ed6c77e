package quota_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store/storetest"
)

// A ledger is what a store in memory has really done, replies lost or not. It checks
// the rule after every operation.
type ledger struct {
	*storetest.Memory
	loose bool // use without a lease is expected: only grants are held to the rule

	mu     sync.Mutex
	own    map[string]map[quota.Key]int64 // use by holder, as last applied
	gone   map[string]bool
	broken string
}

func (l *ledger) Apply(ctx context.Context, op quota.Operation) (quota.Result, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.Account(op.Key)
	res, err := l.Memory.Apply(ctx, op)
	after := l.Account(op.Key)
	was, is := before.Used()+before.Leased(), after.Used()+after.Leased()
	if is > was && is > op.Ceiling && (!l.loose || res.Granted > 0 && after.Leased() > before.Leased()) {
		l.blame("used %d + leased %d passes %d after %+v on %+v", after.Used(), after.Leased(), op.Ceiling, op, before)
	}
	if err == nil && op.Seq > 0 && !l.gone[op.Holder] {
		if l.own[op.Holder] == nil {
			l.own[op.Holder] = map[quota.Key]int64{}
		}
		l.own[op.Holder][op.Key] = res.Own
	}
	var sum int64
	for _, accounts := range l.own {
		sum += accounts[op.Key]
	}
	if sum != after.Used() {
		l.blame("the account says %d used, its holders reported %d, after %+v", after.Used(), sum, op)
	}
	return res, err
}

func (l *ledger) blame(format string, args ...any) {
	if l.broken == "" {
		l.broken = fmt.Sprintf(format, args...)
	}
}

// lose makes a holder not liable: nothing that it reports may count from now on.
func (l *ledger) lose(holder string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gone[holder] = true
	l.SetLiable(holder, false)
}

// A site is a replica in a storm, with a purse for each account and window.
type site struct {
	name    string
	skew    time.Duration
	keeper  *quota.Keeper
	paper   paper
	link    *storetest.Link
	stop    func()
	allow   bool // its limits say allow when the store is away
	doubts  bool // it has lost an incarnation while answers were lost
	crashed bool

	mu       sync.Mutex // guards the purses, and what follows
	terms    *quota.Terms
	purses   map[string]*quota.Purse
	admitted map[quota.Key]int64
	undone   map[quota.Key]int64 // given back, which admitted is already less
	holders  []string
}

func (s *site) at() quota.Instant { return s.keeper.Instant(time.Now().Add(s.skew)) }

func (s *site) purse(k quota.Key) *quota.Purse {
	if p := s.purses[k.Limit]; p != nil {
		if p.Key() == k && !p.Closed() {
			return p
		}
		if p.Key() != k {
			p.Close() // its window is over
		}
	}
	p := s.keeper.Open(k, quota.Window{ID: k.Window}, s.terms, &s.mu)
	p.SetTerms(s.at(), s.terms)
	s.purses[k.Limit] = p
	return p
}

// charge does what a request does and returns what takes it back, or nil if it was
// refused.
func (s *site) charge(k quota.Key, n int64) (undo func()) {
	start := time.Now()
	for {
		s.mu.Lock()
		at, p := s.at(), s.purse(k)
		verdict := p.Room(at, n)
		waited := time.Since(start)
		failing := verdict == quota.Short && (p.FailingFor(at) > 0 || waited >= s.keeper.Wait())
		switch {
		case failing && p.GaveUp(at, waited):
			failing = false
		case failing:
			p.Ask(n)
			failing = !s.allow || p.LetsOn(at, n)
		case verdict == quota.Short:
			ready := p.Await(n)
			s.mu.Unlock()
			select {
			case <-ready:
			case <-time.After(s.keeper.Wait() - waited):
			}
			continue
		}
		if verdict == quota.Fits || failing && s.allow {
			uncovered := p.Charge(at, n)
			if uncovered > 0 {
				p.LetOn(uncovered)
			}
			s.admitted[k] += n
			undo = func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				p.Refund(s.at(), n, uncovered)
				s.admitted[k] -= n
				s.undone[k] += n
			}
		}
		s.mu.Unlock()
		return undo
	}
}

func (s *site) follow(tm *quota.Terms) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.terms = tm
	for _, p := range s.purses {
		p.SetTerms(s.at(), tm)
	}
}

// renew makes s go on under a new incarnation some time after it lost its last one.
func (s *site) renew(l *ledger, after time.Duration) {
	s.mu.Lock()
	old := s.holders[len(s.holders)-1]
	next := fmt.Sprint(s.name, ".", len(s.holders))
	s.holders = append(s.holders, next)
	s.mu.Unlock()
	l.lose(old)
	time.Sleep(after)
	s.keeper.SetHolder(next)
}

// TestFleet_A33_A34_A45_A53_C101_Storm plays replicas while terms change, windows
// roll over, links are cut, replies and incarnations are lost and replicas die.
func TestFleet_A33_A34_A45_A53_C101_Storm(t *testing.T) {
	t.Parallel()
	for seed := range uint64(16) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { newStorm(t, seed).play() })
		})
	}
}

type storm struct {
	t      *testing.T
	rng    *rand.Rand
	ledger *ledger
	sites  []*site
	faults bool // replies are lost and links cut
	losses bool // incarnations are lost
	rev    int64
	amount int64
}

func newStorm(t *testing.T, seed uint64) *storm {
	t.Helper()
	w := &storm{t: t, rng: rand.New(rand.NewPCG(seed, 7)), faults: seed%2 == 1, losses: seed%4 != 1, rev: 1, amount: 600}
	allow := seed%3 == 0
	w.ledger = &ledger{Memory: &storetest.Memory{}, own: map[string]map[quota.Key]int64{}, gone: map[string]bool{}, loose: w.losses || allow}
	w.ledger.SetGuard(w.guard())
	var boards *storetest.Boards
	if seed%5 > 0 {
		boards = storetest.NewBoards(w.ledger.Memory, time.Duration(seed)*10*time.Millisecond)
	}
	for i := range 4 {
		name := fmt.Sprint("s", i)
		s := &site{name: name, allow: allow, holders: []string{name + ".0"}, terms: w.terms(), purses: map[string]*quota.Purse{}, admitted: map[quota.Key]int64{}, undone: map[quota.Key]int64{}}
		var store quota.Store = w.ledger
		if w.faults {
			store = &flaky{Store: store, rng: rand.New(rand.NewPCG(seed, uint64(i)))}
		}
		s.link = storetest.Partition(store)
		s.skew = time.Duration(w.rng.IntN(2000)) * time.Millisecond
		cfg := quota.KeeperConfig{Store: s.link, Now: func() time.Time { return time.Now().Add(s.skew) }, Journal: &s.paper}
		if boards != nil {
			cfg.Board = boards.Join(func() *quota.Keeper { return s.keeper })
		}
		s.keeper = quota.NewKeeper(cfg, name+".0")
		s.keeper.SetReplicas(4)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = s.keeper.Run(ctx) }()
		s.stop = func() { cancel(); <-done }
		t.Cleanup(s.stop)
		w.sites = append(w.sites, s)
	}
	return w
}

func (w *storm) guard() quota.Guard { return quota.Guard{Kind: "Plan", Name: "free", Revision: w.rev} }

func (w *storm) terms() *quota.Terms {
	tm := terms(w.amount)
	tm.Version, tm.Guards = w.rev, []quota.Guard{w.guard()}
	return tm
}

func (w *storm) play() {
	end := time.Now().Add(6 * time.Minute)
	var load sync.WaitGroup
	for i, s := range w.sites {
		for range 2 {
			rng := rand.New(rand.NewPCG(w.rng.Uint64(), uint64(i)))
			load.Go(func() { w.load(s, rng, end) })
		}
	}
	for time.Now().Before(end) {
		time.Sleep(time.Duration(w.rng.IntN(5000)) * time.Millisecond)
		w.event(&load)
	}
	load.Wait()
	for _, s := range w.sites {
		s.link.Heal()
	}
	time.Sleep(4 * time.Minute)
	synctest.Wait()
	w.check()
}

func (w *storm) load(s *site, rng *rand.Rand, end time.Time) {
	for time.Now().Before(end) {
		k := quota.Key{Root: "org:a", Tenant: "org:a", Limit: fmt.Sprint("l", rng.IntN(3)), Window: fmt.Sprint(time.Now().Unix() / 100)}
		s.mu.Lock()
		crashed := s.crashed
		s.mu.Unlock()
		if crashed {
			return
		}
		undo := s.charge(k, 1+rng.Int64N(4))
		if undo != nil && rng.IntN(6) == 0 {
			time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
			undo()
		}
		time.Sleep(time.Duration(rng.IntN(700)) * time.Millisecond)
	}
}

// event does one thing that goes wrong, or changes.
func (w *storm) event(all *sync.WaitGroup) {
	s := w.sites[w.rng.IntN(len(w.sites))]
	lag := time.Duration(w.rng.IntN(1500)) * time.Millisecond
	switch roll := w.rng.IntN(20); {
	case roll < 6: // an edit, in words or in substance, which each replica hears of a little later
		w.rev++
		if roll < 3 {
			w.amount = 300 + 100*w.rng.Int64N(6)
		}
		w.ledger.SetGuard(w.guard())
		tm := w.terms()
		for i, s := range w.sites {
			time.AfterFunc(lag*time.Duration(i)/4, func() { s.follow(tm) })
		}
		time.Sleep(lag)
	case roll < 10 && w.faults:
		s.link.Cut()
		time.AfterFunc(10*lag, s.link.Heal)
	case roll < 13 && w.losses:
		s.mu.Lock()
		s.doubts, lag = s.doubts || w.faults, lag/2
		crashed := s.crashed
		s.mu.Unlock()
		if !crashed {
			all.Go(func() { s.renew(w.ledger, lag) })
			time.Sleep(lag)
		}
	case roll == 19 && s != w.sites[0]: // killed; nobody is liable for it some time later
		s.mu.Lock()
		crashed := s.crashed
		s.crashed = true
		holder := s.holders[len(s.holders)-1]
		s.mu.Unlock()
		if !crashed {
			s.stop()
			all.Go(func() { time.Sleep(30 * lag); w.ledger.lose(holder) })
		}
	}
}

func (w *storm) check() {
	w.t.Helper()
	if w.ledger.broken != "" {
		w.t.Fatal(w.ledger.broken)
	}
	total := int64(0)
	for _, key := range w.ledger.Accounts() {
		for _, h := range w.ledger.Account(key).Holders {
			if len(h.Leases) > 0 && !w.ledger.gone[h.ID] {
				w.t.Errorf("%v: %s still holds %v", key, h.ID, h.Leases)
			}
		}
	}
	for _, s := range w.sites {
		for key, admitted := range s.admitted {
			key.Root = "org:a"
			var counted int64
			for _, h := range s.holders {
				counted += w.ledger.own[h][key]
			}
			total += counted
			if s.crashed { // what was given back may have died with it too
				admitted += s.undone[key]
			}
			if counted > admitted || counted < admitted && !s.crashed && !s.doubts {
				w.t.Errorf("%s (crashed %v, doubts %v): %v: %d admitted, %d counted", s.name, s.crashed, s.doubts, key, admitted, counted)
			}
		}
	}
	if total < 1000 {
		w.t.Errorf("only %d units in all", total)
	}
}
