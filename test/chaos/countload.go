package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// A descriptor is what a request for a domain asks for, and the tally that it goes to: the
// name of the counter, or the tenant.
type descriptor struct {
	name    string
	entries []string // keys and values
	hits    int64
}

// counterOf returns the descriptor of a counter.
func counterOf(hits int64, entries ...string) descriptor {
	var pairs []string
	for i := 0; i < len(entries); i += 2 {
		pairs = append(pairs, entries[i]+"="+entries[i+1])
	}
	return descriptor{domainName + "?" + strings.Join(pairs, "&"), entries, hits}
}

// tenantDescriptor returns the descriptor for which the app decides.
func tenantDescriptor(hits int64, tenant string) descriptor {
	return descriptor{tenant, []string{"tenant", tenant}, hits}
}

func (d descriptor) tenant() bool { return d.entries[0] == "tenant" }

// count sends one request of all descriptors and counts what became of each: all or nothing.
// An error tells of an answer that is not as it should be.
func (t *truth) count(ctx context.Context, within time.Duration, f *face, asks []descriptor) (answer, error) {
	a, err := f.count(ctx, within, asks, false)
	for _, d := range asks {
		t.of(d.name).add(a, d.hits)
	}
	if a != unsent {
		t.calls.Add(1)
	}
	return a, err
}

// giveBack sends a refund and counts what became of it.
func (t *truth) giveBack(ctx context.Context, within time.Duration, f *face, d descriptor) (answer, error) {
	a, err := f.count(ctx, within, []descriptor{d}, true)
	switch one := t.of(d.name); a {
	case allowed:
		one.returned.Add(d.hits)
	case unanswered:
		one.unreturned.Add(d.hits)
	case refused:
		err = fmt.Errorf("the refund of %d to %s is refused", d.hits, d.name)
	case unsent, unavailable:
	}
	return a, err
}

// count sends a request of descriptors and returns what became of it. A face that is nil is
// that of a replica that does not run.
func (f *face) count(ctx context.Context, within time.Duration, asks []descriptor, back bool) (answer, error) {
	if f == nil {
		return unsent, nil
	}
	req := &rlsv3.RateLimitRequest{Domain: domainName}
	for _, d := range asks {
		one := &ratelimitv3.RateLimitDescriptor{HitsAddend: wrapperspb.UInt64(uint64(d.hits)), IsNegativeHits: back} //nolint:gosec // some
		for i := 0; i < len(d.entries); i += 2 {
			one.Entries = append(one.Entries, &ratelimitv3.RateLimitDescriptor_Entry{Key: d.entries[i], Value: d.entries[i+1]})
		}
		req.Descriptors = append(req.Descriptors, one)
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	var way trip
	r, err := f.limits.ShouldRateLimit(context.WithValue(ctx, tripMark{}, &way), req)
	switch {
	case err != nil && !way.out.Load():
		return unsent, nil
	case err != nil && way.back.Load() && status.Code(err) == codes.Unavailable:
		return unavailable, nil // by the replica: it has taken nothing
	case err != nil:
		return unanswered, nil
	}
	return checked(r, asks)
}

// checked reads an answer. It must tell of every descriptor, each has a limit, and it refuses
// if one of them does.
func checked(r *rlsv3.RateLimitResponse, asks []descriptor) (answer, error) {
	a, over := allowed, 0
	if r.GetOverallCode() == rlsv3.RateLimitResponse_OVER_LIMIT {
		a = refused
	}
	if got := len(r.GetStatuses()); got != len(asks) {
		return a, fmt.Errorf("%d statuses for %d descriptors: %v", got, len(asks), r)
	}
	for i, s := range r.GetStatuses() {
		if s.GetCode() == rlsv3.RateLimitResponse_OVER_LIMIT {
			over++
		}
		if s.GetCurrentLimit() == nil {
			return a, fmt.Errorf("%s has no limit: %v", asks[i].name, r)
		}
	}
	if (over > 0) != (a == refused) {
		return a, fmt.Errorf("%d of %d descriptors are over the limit: %v", over, len(asks), r)
	}
	return a, nil
}
