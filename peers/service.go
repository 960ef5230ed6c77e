package peers

import (
	"context"
	"fmt"
	"runtime/debug"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	metev1 "github.com/meteproject/mete/api/mete/v1"
	"github.com/meteproject/mete/authz"
)

// Register adds mete.v1.ReplicaService to a server, by which peers pass on to this
// process. It works whether Run runs or not.
func (r *Router) Register(s grpc.ServiceRegistrar) {
	metev1.RegisterReplicaServiceServer(s, &replicaService{r: r})
}

// replicaService settles for peers.
type replicaService struct {
	metev1.UnimplementedReplicaServiceServer
	r *Router
}

// SettleBatch implements [metev1.ReplicaServiceServer]. Once it has begun to settle it
// returns no error: after one nobody would know what became of the batch.
func (s *replicaService) SettleBatch(_ context.Context, req *metev1.SettleBatchRequest) (*metev1.SettleBatchResponse, error) {
	r := s.r
	if r.cfg.Ready != nil && !r.cfg.Ready() {
		return nil, status.Error(codes.Aborted, "settle a batch: this process has just begun and has no documents or no seal keys yet; nothing was settled, try again")
	}
	if req.GetProcess() != r.cfg.Process { // only once the others can know of this one, and what it remembers
		return nil, status.Errorf(codes.FailedPrecondition,
			"settle a batch of process %s: this is process %s, which took its address; nothing was settled", name(req.GetProcess()), name(r.cfg.Process))
	}
	now := r.cfg.Now()
	results := make([]metev1.Settled, 0, len(req.GetSettlements()))
	for _, one := range req.GetSettlements() {
		result := r.settleHere(now, one)
		r.stats.received.Count(result)
		results = append(results, toWire(result))
	}
	return &metev1.SettleBatchResponse{Results: results}, nil
}

// toWire returns a result as peers read it. Those of 1 to 8 are numbered alike; what is only
// told by a Router is none of a decider's.
func toWire(s authz.Settled) metev1.Settled {
	if s < authz.SettledAsReserved || s > authz.SettledMalformed {
		return metev1.Settled_SETTLED_UNSPECIFIED
	}
	return metev1.Settled(s) //nolint:gosec // bounded just before
}

// fromWire is the inverse of toWire. What only a later version knows is 0.
func fromWire(s metev1.Settled) authz.Settled {
	if s < metev1.Settled_SETTLED_AS_RESERVED || s > metev1.Settled_SETTLED_MALFORMED {
		return 0
	}
	return authz.Settled(s)
}

// panicked logs a panic with its stack. Its value may hold anything but is made by code of
// ours, which puts no token there.
func (r *Router) panicked(p any) {
	r.cfg.Log.Error().Str("panic", fmt.Sprint(p)).Bytes("stack", debug.Stack()).
		Msg("settlement panicked; what was reserved stays used")
}
