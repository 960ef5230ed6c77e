package admin

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/meteproject/mete/authz"
)

// toStatus returns the gRPC status of an error of a Quota.
func (s *Service) toStatus(what string, id authz.ID, err error) error {
	if of, ok := status.FromError(err); ok { // a peer has answered
		return of.Err()
	}
	message := fmt.Sprintf("%s decision %s: %v", what, id, err)
	switch {
	case errors.Is(err, authz.ErrUnknownDecision):
		return status.Error(codes.NotFound, message)
	case errors.Is(err, authz.ErrReported):
		return status.Error(codes.FailedPrecondition, message+": what was told first holds")
	case errors.Is(err, authz.ErrUnits):
		return badRequest(what, []*errdetails.BadRequest_FieldViolation{{Field: "units", Description: err.Error()}})
	case errors.Is(err, authz.ErrExhausted):
		return exhausted(message, err)
	case errors.Is(err, authz.ErrUnavailable):
		return status.Error(codes.Unavailable, message+": nothing was changed; try again")
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, message)
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, message)
	}
	s.log.Error().Err(err).Str("call", what).Str("decision", id.String()).Msg("call failed; answered INTERNAL")
	return status.Error(codes.Internal, "internal error")
}

// exhausted tells which limit has not enough left, and when to try again.
func exhausted(message string, err error) error {
	var refused *authz.RefusedError
	if !errors.As(err, &refused) {
		return status.Error(codes.ResourceExhausted, message)
	}
	details := []protoadapt.MessageV1{&errdetails.QuotaFailure{Violations: []*errdetails.QuotaFailure_Violation{{
		Subject: "tenant:" + refused.Node, Description: "limit " + refused.Limit + " has not as much left",
	}}}}
	if refused.RetryAfter > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(refused.RetryAfter)})
	}
	return withDetails(codes.ResourceExhausted, message, details...)
}
