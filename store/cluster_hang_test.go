package store_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store"
)

// A proxied cluster has three members, a proxy in front of each, and a replica's side
// of it that knows the proxies alone.
type proxied struct {
	*store.Cluster
	proxies []*proxy
	direct  *clientv3.Client // of all members, past the proxies
}

func startProxied(t *testing.T) *proxied {
	t.Helper()
	endpoints, _ := startCluster(t)
	p := &proxied{}
	var names []string
	for _, e := range endpoints {
		one := startProxy(t, e)
		p.proxies, names = append(p.proxies, one), append(names, one.endpoint())
	}
	var err error
	if p.direct, err = store.Connect(store.Config{Endpoints: endpoints, Log: zerolog.Nop()}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.direct.Close() })
	if p.Cluster, err = store.NewCluster(store.Config{Endpoints: names, Log: zerolog.Nop()}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	// Every connection is made: tests are about what happens to it.
	for _, c := range p.Clients() {
		if _, err := c.Get(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// inUse returns the proxy of the preferred endpoint.
func (p *proxied) inUse() *proxy {
	i := slices.IndexFunc(p.proxies, func(one *proxy) bool { return one.endpoint() == p.Health().Preferred })
	return p.proxies[i]
}

func (p *proxied) set(f traffic) {
	for _, one := range p.proxies {
		one.set(f)
	}
}

// A ledger applies operations to one account and knows what must come out.
type ledger struct {
	t        *testing.T
	accounts *store.Accounts
	op       quota.Operation
}

func newLedger(t *testing.T, p *proxied) *ledger {
	t.Helper()
	me := unique(t)
	put(t, p.direct, store.LiableKey(me), "")
	return &ledger{t: t, accounts: store.NewAccounts(p.Cluster), op: quota.Operation{Key: quota.Key{Tenant: me}, Holder: me, Ceiling: 1e6}}
}

// spend reports one unit after another, in tries of the 300 ms that a request waits, each
// until it is applied. How many are applied at their first try is the machine's to say: that
// none is late is what [TestCluster_A56_MembersHangInTurn] tests, in fake time.
func (l *ledger) spend(n int) {
	l.t.Helper()
	for range n {
		err := l.next(300 * time.Millisecond)
		for end := time.Now().Add(patience); err != nil; err = l.apply(300 * time.Millisecond) {
			if time.Now().After(end) {
				l.t.Fatalf("operation %d: %v", l.op.Seq, err)
			}
		}
	}
}

// next uses one more unit.
func (l *ledger) next(limit time.Duration) error {
	l.op.Seq++
	l.op.Used++
	return l.apply(limit)
}

// apply applies the newest operation, again if need be.
func (l *ledger) apply(limit time.Duration) error {
	ctx, cancel := context.WithTimeout(l.t.Context(), limit)
	defer cancel()
	r, err := l.accounts.Apply(ctx, l.op)
	if err == nil && (r.Used != l.op.Used || r.Seq != l.op.Seq) {
		l.t.Errorf("got %+v, want %d used at %d", r, l.op.Used, l.op.Seq)
	}
	return err
}

// A replicaOf a proxied cluster does all that a replica does with its store.
type replicaOf struct {
	ledger  *ledger
	docs    *replica
	members *member
	edits   int
}

// Presences are long for what must be kept alive on a machine that does much else, and short
// for what is to run out; etcd counts in seconds.
const longTTL, shortTTL = 24 * time.Second, 3 * time.Second

func startReplicaOf(t *testing.T, p *proxied, presence time.Duration) *replicaOf {
	t.Helper()
	r := &replicaOf{ledger: newLedger(t, p)}
	r.docs = startPatient(t, p)
	r.docs.until("the first read", func(*plan.Snapshot) bool { return true })
	r.members = startMemberOf(t, p.Cluster, "a", presence)
	eventually(t, "registered", func() bool { return len(r.members.Replicas()) == 1 && len(r.members.incarnations()) == 1 })
	r.edit(t, p)
	return r
}

// startPatient starts documents with the settings of production: silence alone is
// noticed after 15 s.
func startPatient(t *testing.T, p *proxied) *replica {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &replica{Documents: store.NewDocuments(p.Cluster), t: t, cancel: cancel}
	r.OnReset = func() { r.mu.Lock(); defer r.mu.Unlock(); r.resets++ }
	r.done.Go(func() { _ = r.Run(ctx) })
	t.Cleanup(r.stop)
	return r
}

// edit writes a document and waits until it is in force.
func (r *replicaOf) edit(t *testing.T, p *proxied) {
	t.Helper()
	r.edits++
	put(t, p.direct, store.DocumentKey(plan.KindPlan, "pro"), planText("pro", r.edits))
	r.docs.until(fmt.Sprint("edit ", r.edits), hasAmount("pro", int64(r.edits)))
}

// keptAlive waits until a presence is kept alive once more.
func keptAlive(t *testing.T, p *proxied, key string) {
	t.Helper()
	presence, err := p.direct.Get(t.Context(), key)
	if err != nil || len(presence.Kvs) != 1 {
		t.Fatal(presence, err)
	}
	left := int64(math.MaxInt64)
	eventually(t, "kept alive", func() bool {
		before := left
		lease, err := p.direct.TimeToLive(t.Context(), clientv3.LeaseID(presence.Kvs[0].Lease))
		if err == nil {
			left = lease.TTL
		}
		time.Sleep(20 * time.Millisecond)
		return left > before
	})
}

// keepsPresence runs do and reports whether the presence key was there all the time.
func keepsPresence(t *testing.T, p *proxied, key string, do func()) bool {
	t.Helper()
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(t.Context()))
	defer cancel()
	watch := p.direct.Watch(ctx, key, clientv3.WithFilterPut(), clientv3.WithCreatedNotify())
	<-watch
	do()
	last := put(t, p.direct, key+"/end", "")
	del(t, p.direct, key+"/end")
	r, err := p.direct.Get(t.Context(), key)
	if err != nil || len(r.Kvs) != 1 {
		return false
	}
	// Nothing was deleted since it was created if it is of before.
	return r.Kvs[0].CreateRevision < last && r.Kvs[0].Version == 1
}

// A member hangs, breaks, swallows answers or is late: operations are applied, each once,
// edits come into force, and the replica stays registered (A56, A62, C110, C118).
func TestCluster_A56_OneBadMemberCostsNothing(t *testing.T) {
	for name, how := range map[string]traffic{"hangs": hangs, "ends": ends, "swallows": swallows, "lags": lags, "hangs, in batches": hangs} {
		t.Run(name, func(t *testing.T) {
			p := startProxied(t)
			r := startReplicaOf(t, p, longTTL)
			if strings.HasSuffix(name, "batches") {
				r.ledger.accounts.SetBatching(store.Nested)
			}
			for _, one := range p.proxies {
				one.late = 400 * time.Millisecond
			}
			presence := store.ReplicaKey(r.members.Incarnation())
			kept := keepsPresence(t, p, presence, func() {
				bad := p.inUse()
				bad.set(how)
				r.ledger.spend(50)
				r.edit(t, p)
				if name == "hangs" {
					keptAlive(t, p, presence)
				}
				r.ledger.spend(10)
				if h := p.Health(); h.Failovers == 0 || !h.Up || h.Preferred == bad.endpoint() {
					t.Errorf("health %+v", h)
				}
			})
			if !kept || r.members.Live() != 1 || len(r.members.incarnations()) != 1 {
				t.Errorf("presence kept: %v; %d live, incarnations %v", kept, r.members.Live(), r.members.incarnations())
			}
			p.set(flows)
			r.edit(t, p)
			r.ledger.spend(10)
			r.docs.stop()
			r.members.stop()
			if r.docs.resets != 0 {
				t.Errorf("%d resets", r.docs.resets)
			}
		})
	}
}

// A member that is not in use may hang as it likes.
func TestCluster_AnotherMemberHangs(t *testing.T) {
	p := startProxied(t)
	r := startReplicaOf(t, p, longTTL)
	used := p.inUse()
	for _, one := range p.proxies {
		if one != used {
			one.set(hangs)
			break
		}
	}
	r.ledger.spend(50)
	r.edit(t, p)
}

// Where nothing but a watch is on the member, its connection tells when it breaks.
func TestCluster_AWatchMovesWhenItsConnectionBreaks(t *testing.T) {
	t.Parallel()
	p := startProxied(t)
	r := startPatient(t, p)
	put(t, p.direct, store.DocumentKey(plan.KindPlan, "pro"), planText("pro", 1))
	r.until("plan", hasAmount("pro", 1))
	p.inUse().set(ends)
	put(t, p.direct, store.DocumentKey(plan.KindPlan, "pro"), planText("pro", 2))
	r.until("edit", hasAmount("pro", 2))
}

// Where nothing but a watch is on a member that hangs, its silence tells.
func TestCluster_AWatchMovesWhenItIsSilent(t *testing.T) {
	t.Parallel()
	p := startProxied(t)
	r := startDocumentsOf(t, p.Cluster, zerolog.Nop()) // silence is noticed after 2 s
	put(t, p.direct, store.DocumentKey(plan.KindPlan, "pro"), planText("pro", 1))
	r.until("plan", hasAmount("pro", 1))
	p.inUse().set(hangs)
	put(t, p.direct, store.DocumentKey(plan.KindPlan, "pro"), planText("pro", 2))
	r.until("edit", hasAmount("pro", 2))
	if h := p.Health(); h.Failovers == 0 {
		t.Errorf("health %+v", h)
	}
}

// One member after another hangs; there is always one that does not.
func TestCluster_MembersHangInTurn(t *testing.T) {
	p := startProxied(t)
	r := startReplicaOf(t, p, longTTL)
	for range 4 {
		p.set(flows)
		p.inUse().set(hangs)
		r.ledger.spend(20)
		r.edit(t, p)
	}
}

// C110: cut off from all members for longer than its presence lasts, a replica is
// registered again with a new lease, counted once, and has gone on deciding.
func TestCluster_C110_APartition(t *testing.T) {
	t.Parallel()
	p := startProxied(t)
	r := startReplicaOf(t, p, shortTTL)
	id := r.members.Incarnation()
	before, err := p.direct.Get(t.Context(), store.ReplicaKey(id))
	if err != nil || len(before.Kvs) != 1 {
		t.Fatal(before, err)
	}
	p.set(hangs)
	eventually(t, "the presence runs out", func() bool { return get(t, p.direct, store.ReplicaKey(id)) == "" })
	if amount(r.docs.Snapshot(), "pro") != int64(r.edits) || r.members.Live() != 1 {
		t.Errorf("meanwhile the plan allows %d, and %d replicas live", amount(r.docs.Snapshot(), "pro"), r.members.Live())
	}
	eventually(t, "health tells", func() bool { return !p.Health().Up })
	p.set(flows)
	eventually(t, "registered again", func() bool {
		got, err := p.direct.Get(t.Context(), store.ReplicasPrefix, clientv3.WithPrefix())
		return err == nil && len(got.Kvs) == 1 && string(got.Kvs[0].Key) == store.ReplicaKey(id) && got.Kvs[0].Lease != before.Kvs[0].Lease
	})
	eventually(t, "counted once", func() bool { return r.members.Live() == 1 && len(r.members.Replicas()) == 1 && p.Health().Up })
	if ids := r.members.incarnations(); r.members.Incarnation() != id || len(ids) != 1 {
		t.Errorf("incarnations %v: its liable key was never gone", ids)
	}
	r.edit(t, p)
	r.ledger.spend(5)
}

// A clean stop leaves at once, though the member in use hangs.
func TestCluster_R26_ACleanStopPastAHungMember(t *testing.T) {
	t.Parallel()
	p := startProxied(t)
	r := startReplicaOf(t, p, longTTL)
	id := r.members.Incarnation()
	p.inUse().set(hangs)
	began := time.Now()
	r.members.stop()
	if took := time.Since(began); took > store.LeaveTimeout+atOnce {
		t.Errorf("took %v", took)
	}
	if get(t, p.direct, store.ReplicaKey(id)) != "" || get(t, p.direct, store.LiableKey(id)) != "" {
		t.Error("it left keys")
	}
}

// An etcd that is back is found soon, however long it was away.
func TestNewCluster_DialsAnewEachSecond(t *testing.T) {
	t.Parallel()
	p := startProxy(t, ownServer(t).Endpoint())
	p.set(ends)
	c, err := store.NewCluster(store.Config{Endpoints: []string{p.endpoint()}, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	answer := make(chan error, 1)
	go func() {
		_, err := c.Do(ctx, aGet())
		answer <- err
	}()
	// With the pauses of grpc-go, which grow from a second by 1.6, there are seven in 30 s, and the next pause is 17 s.
	eventually(t, "ten dials", func() bool { return p.dialled() >= 10 })
	p.set(flows)
	began := time.Now()
	if err := <-answer; err != nil || time.Since(began) > atOnce {
		t.Errorf("%v after %v", err, time.Since(began))
	}
}
