package admin

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/plan"
)

// maxRequest is how large a request may be: room for a thousand units.
const maxRequest = 64 << 10

// A request is one of either method.
type request interface {
	proto.Message
	GetDecision() string
	GetUnits() map[string]int64
}

// check returns the id that req names, or an error that tells all that is wrong with
// req.
func check(what string, req request) (authz.ID, error) {
	if size := proto.Size(req); size > maxRequest {
		return authz.ID{}, status.Errorf(codes.ResourceExhausted, "%s: the request has %d bytes, more than %d", what, size, maxRequest)
	}
	var wrong []*errdetails.BadRequest_FieldViolation
	complain := func(field, format string, args ...any) {
		wrong = append(wrong, &errdetails.BadRequest_FieldViolation{Field: field, Description: fmt.Sprintf(format, args...)})
	}
	id, err := authz.ParseID(req.GetDecision())
	switch {
	case req.GetDecision() == "":
		complain("decision", "is empty: send the id that the request had in its header x-quota-decision")
	case err != nil:
		complain("decision", "%s: %v", shown(req.GetDecision()), err)
	}
	if len(req.GetUnits()) == 0 {
		complain("units", "is empty: name at least one unit, such as {\"tokens\": 1234}")
	}
	for _, unit := range slices.Sorted(maps.Keys(req.GetUnits())) {
		n, field := req.GetUnits()[unit], "units["+shown(unit)+"]"
		if unit == "" {
			complain(field, "has no name")
		}
		if n < 0 || n > plan.MaxAmount {
			complain(field, "%d is not from 0 to %d", n, int64(plan.MaxAmount))
		}
	}
	return id, badRequest(what, wrong)
}

// shown quotes a text of a caller's, cut where it is long.
func shown(s string) string {
	const most = 64
	if len(s) > most {
		return strconv.Quote(strings.ToValidUTF8(s[:most], "")) + "…"
	}
	return strconv.Quote(s)
}

// badRequest returns the error that names the fields that are wrong; nil if none is.
func badRequest(what string, wrong []*errdetails.BadRequest_FieldViolation) error {
	if len(wrong) == 0 {
		return nil
	}
	all := make([]string, len(wrong))
	for i, one := range wrong {
		all[i] = one.GetField() + ": " + one.GetDescription()
	}
	return withDetails(codes.InvalidArgument, what+": "+strings.Join(all, "; "), &errdetails.BadRequest{FieldViolations: wrong})
}

// withDetails returns a status error. Details that cannot be encoded are left out: the
// message says the same.
func withDetails(code codes.Code, message string, details ...protoadapt.MessageV1) error {
	plain := status.New(code, message)
	if s, err := plain.WithDetails(details...); err == nil {
		return s.Err()
	}
	return plain.Err()
}
