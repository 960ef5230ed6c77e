package store

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ClusterHealth tells how the endpoints of a cluster are. It is drawn from the calls
// that were made, not from what connections look like.
type ClusterHealth struct {
	// Up is false once the last call on every endpoint was not answered.
	Up          bool
	Preferred   string        // endpoint that calls go to
	Quarantined []string      // endpoints that are avoided, in the order of the settings
	RoundTrip   time.Duration // see [Cluster.RoundTrip]
	Failovers   int64         // how often another endpoint became the preferred one
}

// Health tells how the endpoints are now.
func (c *Cluster) Health() ClusterHealth {
	now := time.Now() //nolint:forbidigo // shown, not decided on
	c.mu.Lock()
	defer c.mu.Unlock()
	h := ClusterHealth{Preferred: c.preferred.name, Failovers: c.failovers, RoundTrip: c.preferred.trips.shortest(now)}
	for _, e := range c.endpoints {
		h.Up = h.Up || !e.silent
		if now.Before(e.until) {
			h.Quarantined = append(h.Quarantined, e.name)
		}
	}
	return h
}

// errSilent: nothing was heard for too long.
var errSilent = errors.New("no word from etcd")

// isSilence reports whether an error says that an endpoint does not answer, or that it
// does not reach the others.
func isSilence(err error) bool {
	code := codeOf(err)
	return code == codes.Unavailable || code == codes.DeadlineExceeded || errors.Is(err, errSilent)
}

// codeOf returns the gRPC code of what a client of etcd returned.
func codeOf(err error) codes.Code {
	var etcd rpctypes.EtcdError
	switch {
	case err == nil:
		return codes.OK
	case errors.As(err, &etcd):
		return etcd.Code()
	case errors.Is(err, context.DeadlineExceeded):
		return codes.DeadlineExceeded
	case errors.Is(err, context.Canceled):
		return codes.Canceled
	default:
		return status.Code(err)
	}
}
