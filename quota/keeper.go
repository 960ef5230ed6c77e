package quota

import (
	"sync"
	"sync/atomic"
	"time"
)

// KeeperConfig is what a Keeper is made of.
type KeeperConfig struct {
	Store Store
	// Now reads this process's clocks, the monotonic one included.
	Now func() time.Time
	// Wait is how long an operation may take before the store counts as
	// failing (A56): 300 ms unless set.
	Wait time.Duration
	// UnavailableFor is how long after a failure nobody waits again (A61): 5 s
	// unless set.
	UnavailableFor time.Duration
	// RefusalMemory is how long "nothing left" is remembered (A35): 10 s unless
	// set, at most 60 s.
	RefusalMemory time.Duration
	// Parallel is how many operations may be under way at once: 128 unless set, so
	// that a store that takes 64 at a time always has the next ones.
	Parallel int
	// NewAccounts is how many accounts names without a document may newly open in a
	// minute, see Ration; 0: any number.
	NewAccounts int
	// Board carries word between replicas about accounts with nothing left. Nil:
	// a request is refused though other replicas hold units that they do not need.
	Board Board
	// Journal remembers use across a kill of this process. Nil: nothing does.
	Journal Journal
	// SameAccount reports whether two keys that differ in their roots name one account.
	// Nil: they do.
	SameAccount func(a, b Key) bool
	// Gone is called when the store says that this replica's incarnation is not
	// liable any more; SetHolder is expected to follow. May be nil.
	Gone func(holder string)
}

// staleWait is how long waiters are held back after the store found the terms
// old. New ones are a watch event away, which takes a few milliseconds.
const staleWait = 20 * time.Millisecond

// probeEvery is how often a failing store is tried, by one operation.
const probeEvery = time.Second

// closedFor is how long a closed purse can still take something back. It is longer
// than any call of which the answer may come too late.
const closedFor = 2 * time.Second

// A Keeper keeps the purses of one replica filled and reports what they used. All
// methods are safe for concurrent use.
type Keeper struct {
	cfg    KeeperConfig
	origin time.Time
	live   atomic.Int64
	away   atomic.Int64 // monotonic time until which the store counts as failing
	learns atomic.Int64 // monotonic time until which no lease is asked for
	stats  keeperStats

	rations ration

	mu     sync.Mutex
	holder string
	purses map[Key]*Purse // by keys without their roots
	// late are purses of accounts in trees that their tenants have left, see OpenLate: of
	// each account one.
	late      map[Key][]*Purse // by keys without their roots
	forgotten bool             // some purse was forgotten under this incarnation
	lost      bool             // the store says that this incarnation is not liable
	lanes     lanes
	reviews   reviewHeap
	inFlight  int
	// newInFlight are those of inFlight that belong to new names.
	newInFlight int
	most        int // purses since the map was made
	probeAt     int64
	salt        uint64 // of the last purse
	toldIn      int64  // second
	told        int    // refusals that the others were told of in it

	wakeUp chan struct{}
}

// NewKeeper returns a keeper for the incarnation holder. It starts nothing.
func NewKeeper(cfg KeeperConfig, holder string) *Keeper {
	if cfg.Wait <= 0 {
		cfg.Wait = 300 * time.Millisecond
	}
	if cfg.UnavailableFor <= 0 {
		cfg.UnavailableFor = 5 * time.Second
	}
	if cfg.RefusalMemory <= 0 {
		cfg.RefusalMemory = 10 * time.Second
	}
	cfg.RefusalMemory = min(cfg.RefusalMemory, time.Minute)
	if cfg.Parallel <= 0 {
		cfg.Parallel = 128
	}
	k := &Keeper{
		cfg: cfg, origin: cfg.Now(), holder: holder,
		purses: make(map[Key]*Purse), late: make(map[Key][]*Purse), wakeUp: make(chan struct{}, 1),
	}
	k.live.Store(1)
	return k
}

// Instant reads both clocks from t.
func (k *Keeper) Instant(t time.Time) Instant {
	return Instant{Mono: int64(t.Sub(k.origin)), Wall: t.UnixNano()}
}

// Wait returns how long a request may wait for a lease.
func (k *Keeper) Wait() time.Duration { return k.cfg.Wait }

// nextSalt returns what makes the jitter of a purse its own. The caller holds k's lock.
func (k *Keeper) nextSalt() uint64 {
	for _, b := range []byte(k.holder) {
		k.salt = (k.salt ^ uint64(b)) * 1099511628211 // FNV: replicas differ by their names
	}
	k.salt++
	return k.salt
}

// SetReplicas tells how many replicas are live, this one included.
func (k *Keeper) SetReplicas(n int) { k.live.Store(int64(max(1, n))) }

func (k *Keeper) replicas() int { return int(k.live.Load()) }

// SetHolder makes the keeper go on under a new incarnation: the old one's leases
// are not spent from any more, and use that it had not reported goes on. An
// operation of the old one is brought to an end first. The same incarnation again
// tells that it is liable, should the store have said otherwise.
func (k *Keeper) SetHolder(holder string) {
	k.mu.Lock()
	again := k.holder == holder
	if again && !k.lost {
		k.mu.Unlock()
		return
	}
	if !again {
		k.holder, k.forgotten = holder, false
	}
	if k.lost {
		k.lost = false
		k.away.Store(0) // requests need not wait in vain any more
	}
	open := k.open()
	k.mu.Unlock()
	for _, p := range open {
		p.mu.Lock()
		if !again {
			p.lots, p.batch = nil, 0
		}
		k.poke(p)
		p.mu.Unlock()
	}
}

// lostHolder reports whether the store takes this incarnation for gone.
func (k *Keeper) lostHolder() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.lost
}

// lose records that the store takes an incarnation for gone: until the next one
// begins, one operation a second finds out whether that is still so.
func (k *Keeper) lose(holder string) {
	k.mu.Lock()
	k.lost = k.lost || k.holder == holder
	k.mu.Unlock()
	if k.cfg.Gone != nil {
		k.cfg.Gone(holder)
	}
}

// now reads both clocks.
func (k *Keeper) now() Instant { return k.Instant(k.cfg.Now()) }

func (k *Keeper) incarnation() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.holder
}

// mayHaveForerunner reports whether a new purse's account may have been used by a
// purse that was forgotten since.
func (k *Keeper) mayHaveForerunner() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.forgotten
}

// Away reports whether the store has failed in the last moments, so that nobody
// should wait for it (A61).
func (k *Keeper) Away(now Instant) bool { return now.Mono < k.away.Load() }

// AwayFor returns how long requests will go on not to wait; 0 if they do.
func (k *Keeper) AwayFor(now Instant) time.Duration {
	return time.Duration(max(0, k.away.Load()-now.Mono, k.learns.Load()-now.Mono))
}

// Learn makes the keeper ask for no lease for d: the store was restored, and does not
// know what other replicas may still spend (P43). Use is reported meanwhile, and
// requests are decided as if the store were away.
func (k *Keeper) Learn(d time.Duration) {
	k.learns.Store(k.now().Mono + int64(d))
}

func (k *Keeper) learning(now Instant) bool { return now.Mono < k.learns.Load() }

// Fail records that the store did not answer a request in time.
func (k *Keeper) Fail(now Instant) {
	k.away.Store(now.Mono + int64(k.cfg.UnavailableFor))
}
