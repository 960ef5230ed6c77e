package peers

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	metev1 "github.com/meteproject/mete/api/mete/v1"
	"github.com/meteproject/mete/authz"
)

// askFor is how long a call of QuotaService that was passed on may take if its caller
// sets no limit: longer than anybody waits for a lease.
const askFor = 10 * time.Second

// passedOn is the metadata of a call that a peer passed on. It is never passed on
// again.
const passedOn = "mete-forwarded"

// Report is [authz.Decider.Report], at the process that decided: the id's tag tells which. What a
// peer answers with an error is that gRPC status, else errors are those of the decider.
func (r *Router) Report(ctx context.Context, now time.Time, id authz.ID, units map[string]int64) (map[string]int64, error) {
	return r.ask(ctx, id, question{
		here: func() (map[string]int64, error) { return r.cfg.Decider.Report(ctx, now, id, units) },
		there: func(ctx context.Context, peer metev1.QuotaServiceClient) (map[string]int64, error) {
			answer, err := peer.Settle(ctx, &metev1.SettleRequest{Decision: id.String(), Units: units})
			return answer.GetUnits(), err
		},
	})
}

// Extend is [authz.Decider.Extend], at the process that decided, like Report. After an
// error of the kind Unavailable that a peer is the cause of, units may have been reserved.
func (r *Router) Extend(ctx context.Context, now time.Time, id authz.ID, units map[string]int64) (map[string]int64, error) {
	return r.ask(ctx, id, question{
		here: func() (map[string]int64, error) { return r.cfg.Decider.Extend(ctx, now, id, units) },
		there: func(ctx context.Context, peer metev1.QuotaServiceClient) (map[string]int64, error) {
			answer, err := peer.Extend(ctx, &metev1.ExtendRequest{Decision: id.String(), Units: units})
			return answer.GetUnits(), err
		},
	})
}

// A question is one call, asked here or there.
type question struct {
	here  func() (map[string]int64, error)
	there func(context.Context, metev1.QuotaServiceClient) (map[string]int64, error)
}

// ask asks the replicas that may have decided. Tags are short, so that may be several.
func (r *Router) ask(ctx context.Context, id authz.ID, q question) (units map[string]int64, err error) {
	peers := r.tagged(id)
	if len(peers) == 0 || len(metadata.ValueFromIncomingContext(ctx, passedOn)) > 0 {
		return q.here()
	}
	if uint16(r.cfg.Process) == id.Tag() { //nolint:gosec // the tag is its end
		if units, err = q.here(); !errors.Is(err, authz.ErrUnknownDecision) {
			return units, err
		}
	}
	for _, p := range peers {
		r.stats.asked.Add(1)
		if units, err = p.ask(ctx, q); status.Code(err) != codes.NotFound {
			return units, err
		}
	}
	return units, err
}

// tagged returns the peers that may have made a decision.
func (r *Router) tagged(id authz.ID) (peers []*peer) {
	for process, p := range r.view.Load().peers {
		if uint16(process) == id.Tag() { //nolint:gosec // the tag is its end
			peers = append(peers, p)
		}
	}
	return peers
}

// ask asks p.
func (p *peer) ask(ctx context.Context, q question) (map[string]int64, error) {
	conn, err := p.line.get()
	if err != nil {
		p.r.stats.failed.Add(1)
		return nil, status.Errorf(codes.Unavailable, "ask replica %s, which decided: %v", name(p.process), err)
	}
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	units, err := q.there(metadata.AppendToOutgoingContext(ctx, passedOn, "1"), metev1.NewQuotaServiceClient(conn))
	switch s := status.Convert(err); s.Code() { //nolint:exhaustive // the others are its answers
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		p.r.stats.failed.Add(1)
		s = status.Newf(s.Code(), "ask replica %s, which decided: %s", name(p.process), s.Message())
		return nil, s.Err()
	}
	return units, err
}
