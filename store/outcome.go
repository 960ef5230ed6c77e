package store

import (
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"

	"github.com/meteproject/mete/quota"
)

// replayed reports whether a has seen op before, or op only asks.
func replayed(a quota.Account, op quota.Operation) bool {
	if op.Seq == 0 {
		return true
	}
	for _, h := range a.Holders {
		if h.ID == op.Holder {
			return h.Seq >= op.Seq
		}
	}
	return false
}

// changed reports whether b differs from a in more than the sequence of holder: a
// refusal that reports nothing is not written. The only thing that a late
// duplicate of it could still do is to grant a lease that its holder never
// lists, and so closes.
func changed(a, b quota.Account, holder string) bool {
	if a.Base != b.Base || len(a.Holders) > len(b.Holders) {
		return true
	}
	was := make(map[string]quota.Holder, len(a.Holders))
	for _, h := range a.Holders {
		was[h.ID] = h
	}
	for _, h := range b.Holders {
		old, known := was[h.ID]
		if h.Used != old.Used || !sameLeases(h.Leases, old.Leases) || !known && h.ID != holder {
			return true
		}
	}
	return false
}

func sameLeases(a, b []quota.Lease) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// definite reports whether an error says that a transaction was not applied. All
// else is not known: the connection broke, the leader changed, the time ran out.
func definite(err error) bool {
	if errors.Is(err, quota.ErrNotApplied) || errors.Is(err, quota.ErrStale) || errors.Is(err, quota.ErrGone) {
		return true
	}
	switch codeOf(err) { //nolint:exhaustive // the rest is unknown
	case codes.InvalidArgument, codes.PermissionDenied, codes.Unauthenticated,
		codes.FailedPrecondition, codes.ResourceExhausted:
		return true
	default:
		return false
	}
}

// divides reports whether a definite error may be about one operation of several in a
// request, so that the others go through without it.
func divides(err error) bool {
	switch codeOf(err) { //nolint:exhaustive // the rest is about the request as a whole
	case codes.InvalidArgument, codes.PermissionDenied, codes.FailedPrecondition:
		return true
	case codes.ResourceExhausted: // larger than what something on the way takes
		return !overloaded(err) && !noSpace(err)
	default:
		return false
	}
}

// overloaded reports whether etcd takes no requests at the moment, this one included.
func overloaded(err error) bool { return errors.Is(err, rpctypes.ErrTooManyRequests) }

// noSpace reports whether etcd takes no writes: its database is full. The write that filled
// it gets this answer, too, so that of a write it is not definite: [Accounts.recheck].
func noSpace(err error) bool { return errors.Is(err, rpctypes.ErrNoSpace) }

// asNotApplied makes a definite error of etcd one that callers branch on.
func asNotApplied(err error) error {
	if errors.Is(err, quota.ErrStale) || errors.Is(err, quota.ErrGone) || errors.Is(err, quota.ErrNotApplied) {
		return err
	}
	return fmt.Errorf("%w: %w", quota.ErrNotApplied, err)
}
