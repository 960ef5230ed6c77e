package store_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store"
)

// A memberKV is one of several members that share their data. It does what it is asked, and
// answers as it is told.
type memberKV struct {
	clientv3.KV
	data *memoryKV
	how  traffic
}

const memberAway = 2 * time.Millisecond // there, and back

// Do implements [store.Doer]. What is asked of a member that hangs does not reach it.
func (m *memberKV) Do(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	wait := memberAway / 2
	switch m.how {
	case hangs:
		<-ctx.Done()
		return clientv3.OpResponse{}, ctx.Err()
	case ends:
		return clientv3.OpResponse{}, status.Error(codes.Unavailable, "connection is gone")
	case lags:
		wait = 200 * time.Millisecond
	case flows, swallows:
	}
	if err := waitFor(ctx, wait); err != nil {
		return clientv3.OpResponse{}, err
	}
	r, err := m.data.Do(ctx, op)
	if m.how == swallows {
		wait = time.Hour
	}
	if late := waitFor(ctx, wait); late != nil {
		return clientv3.OpResponse{}, late
	}
	return r, err
}

func waitFor(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A bubbleCluster is a cluster of three members in fake time, and a ledger over it.
type bubbleCluster struct {
	*store.Cluster
	members []*memberKV
	clients []*clientv3.Client
	ledger  *ledger
}

func startBubbleCluster(t *testing.T, mode store.Batching) *bubbleCluster {
	t.Helper()
	p, data := &bubbleCluster{}, &memoryKV{}
	for range 3 {
		m := &memberKV{data: data}
		c := clientv3.NewCtxClient(t.Context())
		c.KV = m
		p.members, p.clients = append(p.members, m), append(p.clients, c)
	}
	p.Cluster = store.ClusterOf(p.clients...)
	data.set(store.LiableKey("me"), nil)
	accounts := accountsOver(p.Cluster, mode)
	accounts.RoundTrip = p.RoundTrip
	p.ledger = &ledger{t: t, accounts: accounts, op: quota.Operation{Key: quota.Key{Tenant: "org:a"}, Holder: "me", Ceiling: 1e6}}
	return p
}

// inUse returns the preferred member.
func (p *bubbleCluster) inUse() *memberKV {
	for i, c := range p.clients {
		if c == p.Client() {
			return p.members[i]
		}
	}
	return nil
}

// One member after another hangs, breaks, swallows answers or is late; there is always one
// that answers, and no operation misses the 300 ms that a request waits (A56, A62).
func TestCluster_A56_MembersHangInTurn(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]traffic{"hang": hangs, "end": ends, "swallow": swallows, "lag": lags} {
		inModes(t, func(t *testing.T, mode store.Batching) {
			synctest.Test(t, func(t *testing.T) {
				p := startBubbleCluster(t, mode)
				for range 4 {
					for _, m := range p.members {
						m.how = flows
					}
					before := p.inUse()
					before.how = how
					for range 20 {
						if err := p.ledger.next(300 * time.Millisecond); err != nil {
							t.Fatalf("members %s in turn: operation %d: %v", name, p.ledger.op.Seq, err)
						}
						time.Sleep(10 * time.Millisecond)
					}
					if p.inUse() == before {
						t.Fatalf("members %s in turn: the bad one is still preferred", name)
					}
				}
			})
		})
	}
}
