package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/meteproject/mete/store"
)

// A cluster is an etcd of members that can be killed and paused. Nothing is ever
// compacted in it, so that every revision can be looked at afterwards.
type cluster struct {
	members []*member
	client  *clientv3.Client // straight to the members, not over the links
}

// A member is one etcd process. It keeps its ports and its data over a restart.
type member struct {
	binary, log string
	args        []string
	client      string // host:port
	process     *process
}

// startCluster starts n members with their data under dir and waits until they
// answer.
func startCluster(ctx context.Context, binary, dir string, n int) (*cluster, error) {
	ports, err := freePorts(2 * n)
	if err != nil {
		return nil, err
	}
	peers := make([]string, n)
	for i := range n {
		peers[i] = fmt.Sprintf("m%d=http://127.0.0.1:%d", i, ports[n+i])
	}
	c := &cluster{}
	for i := range n {
		m := newMember(binary, dir, i, ports[i], ports[n+i], strings.Join(peers, ","))
		if err := m.start(); err != nil {
			c.close()
			return nil, err
		}
		c.members = append(c.members, m)
	}
	if err := c.connect(ctx, c.endpoints()...); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func newMember(binary, dir string, i, clientPort, peerPort int, peers string) *member {
	name := fmt.Sprint("m", i)
	client, peer := fmt.Sprintf("http://127.0.0.1:%d", clientPort), fmt.Sprintf("http://127.0.0.1:%d", peerPort)
	return &member{
		binary: binary, log: filepath.Join(dir, "etcd-"+name+".log"), client: strings.TrimPrefix(client, "http://"),
		args: []string{
			"--name", name, "--data-dir", filepath.Join(dir, "etcd-"+name), "--log-level", "warn",
			"--listen-client-urls", client, "--advertise-client-urls", client,
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
			"--initial-cluster", peers, "--initial-cluster-token", "chaos",
			"--heartbeat-interval", "50", "--election-timeout", "500", // a leader that is gone costs half a second or so
		},
	}
}

func (m *member) start() (err error) {
	m.process, err = startProcess(m.log, m.binary, m.args...)
	return err
}

// connect waits until the cluster answers.
func (c *cluster) connect(ctx context.Context, endpoints ...string) (err error) {
	if c.client, err = clientv3.New(clientv3.Config{
		Endpoints: endpoints, DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second, Logger: zap.NewNop(),
	}); err != nil {
		return err
	}
	return retry(ctx, 20*time.Second, "etcd does not answer", func(ctx context.Context) error {
		_, err := c.client.Get(ctx, "x")
		return err
	})
}

func (c *cluster) endpoints() []string {
	var all []string
	for _, m := range c.members {
		all = append(all, m.client)
	}
	return all
}

// commit does a transaction of puts, as often as it takes.
func (c *cluster) commit(ctx context.Context, puts ...clientv3.Op) error {
	return retry(ctx, 20*time.Second, "write documents", func(ctx context.Context) error {
		_, err := c.client.Txn(ctx).Then(puts...).Commit()
		return err
	})
}

// revision returns the newest revision.
func (c *cluster) revision(ctx context.Context) (revision int64, err error) {
	err = retry(ctx, 20*time.Second, "read the revision", func(ctx context.Context) error {
		r, err := c.client.Get(ctx, "x")
		if err == nil {
			revision = r.Header.Revision
		}
		return err
	})
	return revision, err
}

// used returns what accounts say now that tenants used.
func (c *cluster) used(ctx context.Context) (map[string]int64, error) {
	r, err := c.client.Get(ctx, store.AccountsPrefix, clientv3.WithPrefix())
	if err != nil {
		return nil, err
	}
	used := map[string]int64{}
	for _, kv := range r.Kvs {
		k, ok := store.ParseAccountKey(string(kv.Key))
		a, err := readAccount(kv.Value)
		if err != nil || !ok {
			return nil, fmt.Errorf("%s is no account: %w", kv.Key, err)
		}
		used[k.Tenant] += a.Used()
	}
	return used, nil
}

// close ends the members at once.
func (c *cluster) close() {
	if c.client != nil {
		_ = c.client.Close()
	}
	for _, m := range c.members {
		m.process.kill()
	}
}

// retry calls f, with half a second each time, until it succeeds or within is over.
func retry(ctx context.Context, within time.Duration, what string, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		try, done := context.WithTimeout(ctx, 500*time.Millisecond)
		err := f(try)
		done()
		if err == nil {
			return nil
		}
		if sleep(ctx, 20*time.Millisecond) != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
}

// sleep waits for d; an error if ctx ends before that.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
