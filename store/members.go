package store

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// How long etcd keeps the keys of a replica that says nothing, and how often it
// says something: three chances and more before a key is lost.
const (
	presenceTTL  = 30 * time.Second
	presenceTick = 10 * time.Second
	liableTTL    = 30 * time.Minute
	liableTick   = 60 * time.Second
)

// Members keeps this replica's keys alive and tells which other replicas there
// are. Fields are set before Run and not changed after.
type Members struct {
	cluster *Cluster
	name    string

	Presence Presence // Clock is filled in
	Now      func() time.Time
	Log      zerolog.Logger
	// OnIncarnation is called with each new incarnation once its liable key
	// exists, the first included, by Renew before that, and once more when
	// Check has found that it goes on. OnLive is called with the number of live replicas when it changes. Each is called one call
	// at a time.
	OnIncarnation func(id string)
	OnLive        func(n int)
	// OnPeers is called with what Peers returns when that changes, one call at a
	// time; the map is the callee's.
	OnPeers func(map[uint64]string)
	// OnSuccessors is called with the live processes that remember what others before
	// them have settled, by the numbers of those, when that changes, before OnPeers.
	OnSuccessors func(map[uint64]uint64)

	// PresenceTTL and LiableTTL replace 30 s and 30 min in tests; a key is kept
	// alive at a third and a thirtieth of them.
	PresenceTTL, LiableTTL time.Duration

	wake    chan struct{} // own liable key may be lost, or Renew was called
	owes    atomic.Bool   // Owe was called
	doubted atomic.Bool   // Check was called, and is not answered yet
	telling sync.Mutex    // held while OnIncarnation is called

	mu       sync.Mutex
	id       string             // guarded by mu, as all below
	live     map[string]present // by incarnation
	liable   map[string]bool
	reported int
	told     map[uint64]string // to OnPeers
	zones    []string          // versions of the data of live replicas, as they were last
	after    map[uint64]uint64 // told to OnSuccessors
}

// NewMembers returns the membership of the replica called name.
func NewMembers(cluster *Cluster, name string) *Members {
	m := &Members{
		cluster: cluster, name: name, Log: zerolog.Nop(),
		Now:         time.Now, //nolint:forbidigo // the default of an edge
		PresenceTTL: presenceTTL, LiableTTL: liableTTL,
		wake: make(chan struct{}, 1),
	}
	m.id = m.newIncarnation()
	return m
}

// newIncarnation returns the name, made fit for a key and for protobuf, and 64
// random bits: a restarted replica never goes on with an old sequence.
func (m *Members) newIncarnation() string {
	return strings.ToValidUTF8(m.name, "_") + "-" + randomID(8)
}

// Incarnation returns the current incarnation. Its keys may not exist yet.
func (m *Members) Incarnation() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.id
}

// Live returns the number of live replicas, this one included.
func (m *Members) Live() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.count()
}

func (m *Members) count() int {
	n := len(m.live)
	if _, seen := m.live[m.id]; !seen {
		n++
	}
	return n
}

// Liable reports whether an incarnation may still hold units, as far as is known
// here: before the first read everybody may.
func (m *Members) Liable(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.liable == nil || m.liable[id] || id == m.id
}

// Replicas returns what the live replicas tell of themselves, by incarnation.
func (m *Members) Replicas() map[string]Presence {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make(map[string]Presence, len(m.live))
	for id, p := range m.live {
		all[id] = p.Presence
	}
	return all
}

// Run registers this replica and keeps it registered until ctx is done; then it
// deletes its keys, so that no replica waits for them to run out. A process that stops a
// replica settles its accounts first.
func (m *Members) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { m.watch(ctx) })
	wg.Go(func() { m.keepLiable(ctx) })
	wg.Wait()
	return ctx.Err()
}

// Renew begins a new incarnation at once: the store is not the one that the present
// one leased from, so that none of its leases may be spent. Run makes its keys;
// until then the store refuses it as one that is gone.
func (m *Members) Renew() {
	m.telling.Lock()
	defer m.telling.Unlock()
	m.mu.Lock()
	m.id = m.newIncarnation()
	id := m.id
	m.mu.Unlock()
	m.poke()
	if m.OnIncarnation != nil {
		m.OnIncarnation(id)
	}
}

// Check has Run look at once whether this replica's liable key is still there: the
// store has said that it is not, and the watch may be cut off. Then OnIncarnation
// tells how it is: the store's word may be older than the key.
func (m *Members) Check() {
	m.doubted.Store(true)
	m.poke()
}

// tell calls OnIncarnation with id, unless it is over already: nobody goes on with
// an old one after a new one.
func (m *Members) tell(id string) {
	m.telling.Lock()
	defer m.telling.Unlock()
	if m.OnIncarnation != nil && m.Incarnation() == id {
		m.OnIncarnation(id)
	}
}

// keepLiable holds one liable key after another, each a new incarnation.
func (m *Members) keepLiable(ctx context.Context) {
	for last := ""; ctx.Err() == nil; {
		m.drain()
		last = m.next(last)
		m.incarnation(ctx, last)
	}
}

// next returns an incarnation that is not last: the one of Renew, or a new one.
func (m *Members) next(last string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.id == last {
		m.id = m.newIncarnation()
	}
	return m.id
}

func (m *Members) poke() {
	select {
	case m.wake <- struct{}{}:
	default: // a wake-up is already waiting
	}
}

func (m *Members) drain() {
	select {
	case <-m.wake:
	default:
	}
}

// incarnation lives one incarnation: until its liable key is lost, another one has
// begun, or ctx is done. It leaves no keys behind that it can delete.
func (m *Members) incarnation(ctx context.Context, id string) {
	liable := keptKey{cluster: m.cluster, key: liableKey(id), ttl: m.LiableTTL, value: func() string { return "" }}
	presence := keptKey{cluster: m.cluster, key: replicaKey(id), ttl: m.PresenceTTL, value: m.presence}
	// An unknown outcome leaves at worst a lease that runs out; the key is put
	// again under a new one.
	for pause := firstPause; liable.create(ctx) != nil; pause = min(2*pause, lastPause) {
		if wait(ctx, pause) != nil || m.Incarnation() != id {
			return
		}
	}
	defer func() { m.leave(ctx, m.leftKeys(&presence, &liable)...) }()
	m.tell(id)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { m.keepPresence(ctx, &presence) })
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.wake:
		case <-time.After(m.untilNextLook()):
		}
		if why := m.over(ctx, id, &liable); why != "" {
			m.Log.Warn().Str("incarnation", id).Str("reason", why).Msg("going on as a new incarnation")
			return
		}
	}
}

// untilNextLook returns how long the liable key is left alone.
func (m *Members) untilNextLook() time.Duration {
	if m.doubted.Load() {
		return lastPause // etcd did not answer
	}
	return jitter(m.LiableTTL / (liableTTL / liableTick))
}

// over keeps an incarnation alive, or tells why it is over.
func (m *Members) over(ctx context.Context, id string, liable *keptKey) string {
	doubted := m.doubted.Swap(false) // what is doubted from now on needs another look
	switch {
	case m.Incarnation() != id:
		return "the store was restored or replaced"
	case errors.Is(liable.keepAlive(ctx), rpctypes.ErrLeaseNotFound):
		return "the liable lease ran out"
	}
	switch exists, err := liable.exists(ctx); {
	case err != nil && doubted:
		m.doubted.Store(true)
	case err == nil && !exists:
		return "the liable key is gone"
	case err == nil && doubted:
		m.tell(id)
	}
	return ""
}

// keepPresence registers this replica again as often as it takes: the key is the
// same each time, so that it is not counted twice.
func (m *Members) keepPresence(ctx context.Context, k *keptKey) {
	failed := firstPause
	for {
		err := k.keepAlive(ctx)
		// A key can be lost without its lease: deleted by somebody, or put under an
		// earlier lease by a request that came late.
		if k.lease == clientv3.NoLease || errors.Is(err, rpctypes.ErrLeaseNotFound) || err == nil && k.missing(ctx) {
			err = k.create(ctx)
		}
		pause := jitter(m.PresenceTTL / (presenceTTL / presenceTick))
		if err != nil {
			pause, failed = failed, min(2*failed, lastPause)
		} else {
			failed = firstPause
		}
		if wait(ctx, pause) != nil {
			return
		}
	}
}

func (m *Members) presence() string {
	p := m.Presence
	p.Clock = m.Now().UTC()
	b, err := json.Marshal(p)
	if err != nil {
		panic("store: a presence that JSON cannot express: " + err.Error())
	}
	return string(b)
}

// watch follows the keys of all replicas.
func (m *Members) watch(ctx context.Context) {
	w := watcher{
		cluster: m.cluster, log: m.Log, name: "members",
		spans: []span{prefixSpan(ReplicasPrefix), prefixSpan(LiablePrefix)},
	}
	w.run(ctx, m.batch)
}

func (m *Members) batch(b batch) error {
	m.mu.Lock()
	if b.full {
		m.live, m.liable = map[string]present{}, map[string]bool{}
	}
	for _, c := range b.changes {
		m.change(c)
	}
	n := m.count()
	moved := n != m.reported
	m.reported = n
	lost := !m.liable[m.id]
	peers, other := m.newPeers()
	after, changed := m.newSuccessors()
	zones, differ := m.newZones()
	m.mu.Unlock()
	if differ {
		m.Log.Warn().Strs("time_zones", zones).
			Msg("replicas reckon with different data of time zones, so that windows may begin at different moments; bring them to one version")
	}
	if lost {
		m.poke()
	}
	if moved && m.OnLive != nil {
		m.OnLive(n)
	}
	if changed && m.OnSuccessors != nil {
		m.OnSuccessors(after)
	}
	if other && m.OnPeers != nil {
		m.OnPeers(peers)
	}
	return nil
}

func (m *Members) change(c change) {
	if escaped, ok := strings.CutPrefix(c.key, LiablePrefix); ok {
		if id, ok := unescape(escaped); ok {
			set(m.liable, id, true, c.deleted())
		}
		return
	}
	escaped, _ := strings.CutPrefix(c.key, ReplicasPrefix)
	if id, ok := unescape(escaped); ok {
		p := present{revision: c.revision}
		// A version whose presence cannot be read is a replica all the same.
		_ = json.Unmarshal(c.value(), &p.Presence)
		set(m.live, id, p, c.deleted())
	}
}

func set[V any](m map[string]V, key string, v V, remove bool) {
	if remove {
		delete(m, key)
		return
	}
	m[key] = v
}

// jitter returns d less up to a fifth, so that replicas started together do not
// call together for ever.
func jitter(d time.Duration) time.Duration {
	return d - time.Duration(rand.Int64N(int64(d/5)+1)) //nolint:gosec // not a secret
}

// wait waits for d; an error if ctx ends before that.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
