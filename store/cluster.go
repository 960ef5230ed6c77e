package store

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
)

// A Cluster is an etcd, with a client for each of its endpoints. Calls go to one of
// them, the preferred one, until it is silent: then another one is preferred, and
// nobody goes back to the silent one for 15 s while there is another. With one client
// of all endpoints, a member that hangs would get every third call for 13 s, which is
// the soonest that its connection can be known to be dead.
//
// An endpoint is silent when a call on it ends as unavailable or runs out of time. A
// call that its caller gives up, or that had less than 100 ms, says nothing about it.
// An only endpoint stays preferred whatever it does.
//
// A Cluster implements [Doer]. Its methods may be called concurrently.
type Cluster struct {
	log       zerolog.Logger
	endpoints []*endpoint // never empty

	mu        sync.Mutex
	preferred *endpoint // guarded by mu, as all below and the fields of endpoints
	failovers int64
}

// An endpoint is one way to the cluster.
type endpoint struct {
	name   string
	client *clientv3.Client

	trips  roundTrips    // guarded by Cluster.mu
	silent bool          // its last call was not answered; guarded by Cluster.mu
	until  time.Time     // it is in quarantine; guarded by Cluster.mu
	next   chan struct{} // closed when it is silent once more; guarded by Cluster.mu
}

var _ Doer = (*Cluster)(nil)

const (
	// quarantine is longer than a dead connection takes to be noticed.
	quarantine = 15 * time.Second
	// leastTry is how long an endpoint must have had for its silence to count: a
	// caller's last try may be short.
	leastTry = 100 * time.Millisecond
)

// NewCluster returns the cluster that cfg names. It does not wait for it: an etcd
// that is away is not an error here. The caller closes it.
func NewCluster(cfg Config) (*Cluster, error) {
	var clients []*clientv3.Client
	for _, e := range cfg.Endpoints {
		one := cfg
		one.Endpoints = []string{e}
		client, err := dial(one, len(cfg.Endpoints) > 1)
		if err != nil {
			return nil, errors.Join(err, closeAll(clients))
		}
		clients = append(clients, client)
	}
	if len(clients) == 0 {
		return nil, clientv3.ErrNoAvailableEndpoints
	}
	c := ClusterOf(clients...)
	c.log = cfg.Log
	// Replicas that start together should not all go to one member.
	c.preferred = c.endpoints[rand.IntN(len(clients))] //nolint:gosec // not a secret
	return c, nil
}

// ClusterOf returns the cluster that clients lead to, at least one, each by an
// endpoint of its own. The first is preferred. They are closed by Close or by
// no matter which replica made them.
func ClusterOf(clients ...*clientv3.Client) *Cluster {
	c := &Cluster{log: zerolog.Nop()}
	for _, client := range clients {
		name := strings.Join(client.Endpoints(), ",")
		if name == "" {
			name = "in process"
		}
		c.endpoints = append(c.endpoints, &endpoint{name: name, client: client, next: make(chan struct{})})
	}
	c.preferred = c.endpoints[0]
	return c
}

// Close closes all clients.
func (c *Cluster) Close() error { return closeAll(c.Clients()) }

func closeAll(clients []*clientv3.Client) error {
	var errs []error
	for _, client := range clients {
		errs = append(errs, client.Close())
	}
	return errors.Join(errs...)
}

// Client returns the client of the preferred endpoint. It is for what stays on one
// endpoint; how its calls end is not noticed here.
func (c *Cluster) Client() *clientv3.Client { return c.choose().client }

// Clients returns the clients of all endpoints, in the order of the settings.
func (c *Cluster) Clients() []*clientv3.Client {
	clients := make([]*clientv3.Client, 0, len(c.endpoints))
	for _, e := range c.endpoints {
		clients = append(clients, e.client)
	}
	return clients
}

// Do implements [Doer]. What only reads is asked of one endpoint after another until
// one answers, each with an even part of the time that is left, but 120 ms at least, or two round trips to
// an endpoint that is farther away.
// What writes is sent once: after an error nobody knows whether it was done.
func (c *Cluster) Do(ctx context.Context, op clientv3.Op) (r clientv3.OpResponse, err error) {
	do := func(ctx context.Context, client *clientv3.Client) error {
		r, err = client.Do(ctx, op)
		return err
	}
	if writes(op) {
		err = c.once(ctx, do)
	} else {
		err = c.repeat(ctx, do)
	}
	return r, err
}

// writes reports whether op may change anything.
func writes(op clientv3.Op) bool {
	if !op.IsTxn() {
		return !op.IsGet()
	}
	_, then, otherwise := op.Txn()
	for _, ops := range [][]clientv3.Op{then, otherwise} {
		for _, op := range ops {
			if writes(op) {
				return true
			}
		}
	}
	return false
}

// once makes one call and takes note of how it ends.
func (c *Cluster) once(ctx context.Context, do func(context.Context, *clientv3.Client) error) error {
	e, began := c.choose(), time.Now() //nolint:forbidigo // measures patience
	err := do(ctx, e.client)
	switch code := codeOf(err); {
	case code == codes.Canceled:
	case !isSilence(err):
		c.answered(e, time.Since(began)) //nolint:forbidigo // as above
	case code != codes.DeadlineExceeded || time.Since(began) >= leastTry: //nolint:forbidigo // as above
		c.fault(e, err)
	}
	return err
}

// repeat makes a call that does no harm if it is made more than once.
func (c *Cluster) repeat(ctx context.Context, do func(context.Context, *clientv3.Client) error) error {
	for left := len(c.endpoints); left > 1; left-- {
		bounded, cancel := context.WithTimeout(ctx, part(ctx, left, patienceFor(c.RoundTrip())))
		err := c.once(bounded, do)
		cancel()
		if ctx.Err() != nil || !isSilence(err) {
			return err
		}
	}
	return c.once(ctx, do)
}

// part returns how long the first of n endpoints may take: least at least.
func part(ctx context.Context, n int, least time.Duration) time.Duration {
	end, ok := ctx.Deadline()
	if !ok {
		return callTimeout
	}
	return max(least, time.Until(end)/time.Duration(n)) //nolint:forbidigo // context deadlines are on the real clock
}

// choose returns the preferred endpoint.
func (c *Cluster) choose() *endpoint {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.preferred
}

// answered notes that an endpoint has answered, after took.
func (c *Cluster) answered(e *endpoint, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e.trips.add(time.Now(), took) //nolint:forbidigo // decides nothing that is stored
	if e.silent {
		c.log.Info().Str("endpoint", e.name).Msg("etcd answers again")
	}
	e.silent, e.until = false, time.Time{}
	if c.preferred.silent {
		c.prefer(e)
	}
}

// fault notes that an endpoint is silent. Of the others, the one is preferred that
// never was, or was longest ago.
func (c *Cluster) fault(e *endpoint, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(e.next)
	e.next = make(chan struct{})
	if !e.silent {
		c.log.Warn().Str("endpoint", e.name).Err(err).Msg("etcd does not answer")
	}
	e.silent = true
	if c.single() {
		return
	}
	e.until = time.Now().Add(quarantine) //nolint:forbidigo // decides nothing that is stored
	if e != c.preferred {
		return
	}
	best := e
	for _, other := range c.endpoints {
		if other.until.Before(best.until) {
			best = other
		}
	}
	c.prefer(best)
}

// prefer makes e the preferred endpoint. The caller holds mu.
func (c *Cluster) prefer(e *endpoint) {
	if e != c.preferred {
		c.preferred = e
		c.failovers++
	}
}

// single reports whether there is no other endpoint to go to.
func (c *Cluster) single() bool { return len(c.endpoints) == 1 }

// suspected returns what is closed when e is silent the next time; nil if there is no
// other endpoint.
func (c *Cluster) suspected(e *endpoint) <-chan struct{} {
	if c.single() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return e.next
}
