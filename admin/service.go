package admin

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	metev1 "github.com/meteproject/mete/api/mete/v1"
	"github.com/meteproject/mete/authz"
)

// A Quota takes reports and extends reservations, at the process that decided.
// *peers.Router does, and *authz.Decider where there is one process only; their promises hold.
// An error that is a gRPC status is answered as it is.
type Quota interface {
	Report(ctx context.Context, now time.Time, id authz.ID, units map[string]int64) (map[string]int64, error)
	Extend(ctx context.Context, now time.Time, id authz.ID, units map[string]int64) (map[string]int64, error)
}

// Config is what a Service is made of.
type Config struct {
	Quota Quota            // required
	Now   func() time.Time // required: this process's clock
	Log   zerolog.Logger   // nowhere
}

// A Service implements mete.v1.QuotaService. It is safe for concurrent use.
type Service struct {
	metev1.UnimplementedQuotaServiceServer

	quota Quota
	now   func() time.Time
	log   zerolog.Logger
}

// NewService returns a Service. See Register and Handler.
func NewService(cfg Config) *Service {
	if cfg.Quota == nil || cfg.Now == nil {
		panic("admin: NewService needs a Quota and a clock")
	}
	return &Service{quota: cfg.Quota, now: cfg.Now, log: cfg.Log}
}

// Register adds s to a gRPC server.
func Register(r grpc.ServiceRegistrar, s *Service) { metev1.RegisterQuotaServiceServer(r, s) }

// Settle implements [metev1.QuotaServiceServer].
func (s *Service) Settle(ctx context.Context, req *metev1.SettleRequest) (*metev1.SettleResponse, error) {
	units, err := s.answer(ctx, "settle", req, s.quota.Report)
	if err != nil {
		return nil, err
	}
	return &metev1.SettleResponse{Units: units}, nil
}

// Extend implements [metev1.QuotaServiceServer].
func (s *Service) Extend(ctx context.Context, req *metev1.ExtendRequest) (*metev1.ExtendResponse, error) {
	units, err := s.answer(ctx, "extend", req, s.quota.Extend)
	if err != nil {
		return nil, err
	}
	return &metev1.ExtendResponse{Units: units}, nil
}

// answer does what was asked. Its errors are gRPC statuses.
func (s *Service) answer(ctx context.Context, what string, req request,
	do func(context.Context, time.Time, authz.ID, map[string]int64) (map[string]int64, error),
) (units map[string]int64, err error) {
	defer func() {
		if p := recover(); p != nil {
			s.log.Error().Str("call", what).Str("panic", fmt.Sprint(p)).Bytes("stack", debug.Stack()).Msg("call panicked; answered INTERNAL")
			units, err = nil, status.Error(codes.Internal, "internal error")
		}
	}()
	id, err := check(what, req)
	if err != nil {
		return nil, err
	}
	units, err = do(ctx, s.now(), id, req.GetUnits())
	if err != nil {
		return nil, s.toStatus(what, id, err)
	}
	return units, nil
}
