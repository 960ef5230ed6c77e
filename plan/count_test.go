package plan_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/meteproject/mete/plan"
)

// app decodes an app with fields of its own beside identity.
func app(tb testing.TB, fields string) *plan.App {
	tb.Helper()
	return decodeOne(tb, "apiVersion: mete/v1\nkind: App\nmetadata: {name: api}\nspec:\n  time_zone: UTC\n  identity: {tenant: [{jwt_claim: org}]}\n"+fields).App
}

// statuses lists a set in runs, such as "101 200-299".
func statuses(s plan.StatusSet) (all []int) {
	for status := range 1000 {
		if s.Has(status) {
			all = append(all, status)
		}
	}
	return all
}

// except returns the statuses from first to last without one.
func except(first, last, without int) (all []int) {
	for status := first; status <= last; status++ {
		if status != without {
			all = append(all, status)
		}
	}
	return all
}

// An app that says nothing of count charges what was answered: 4xx, 5xx, 304 and what
// the caller left are free.
func TestCount_A6_A8_A9_C2_ThePresets(t *testing.T) {
	t.Parallel()
	answered := slices.Concat([]int{101}, except(200, 399, 304))
	completed := except(200, 299, 0)
	for fields, want := range map[string]struct {
		statuses   []int
		unfinished bool
	}{
		"":                             {answered, true},
		"  count: {preset: answered}":  {answered, true},
		"  count: {replays: false}":    {answered, true},
		"  count: {preset: completed}": {completed, false},
	} {
		c := app(t, fields).Count
		if got := statuses(c.Statuses); !slices.Equal(got, want.statuses) {
			t.Errorf("%q: %v cost", fields, got)
		}
		if c.GRPCStatuses != 1 || c.Aborted || c.Unfinished != want.unfinished || c.Replays || c.ReplayHeader != "idempotency-replayed" {
			t.Errorf("%q: got %+v", fields, c)
		}
	}
	if plan.DefaultCount() != app(t, "").Count {
		t.Error("another default")
	}
}

// What is written goes before the preset, field by field.
func TestCount_A8_A9_A12_C2_C14_WhatIsWritten(t *testing.T) {
	t.Parallel()
	for written, want := range map[string][]int{
		"[2xx]":                except(200, 299, 0),
		"[3xx]":                except(300, 399, 304), // C14: not modified is free
		"[3xx, 304]":           except(300, 399, 0),
		`["304", 3xx]`:         except(300, 399, 0),
		"[304]":                {304},
		"[1xx]":                except(100, 199, 0),
		"[5xx]":                except(500, 599, 0),
		`[200, "201", 404]`:    {200, 201, 404},
		"[100, 599]":           {100, 599},
		"[4xx, 429, 400, 200]": slices.Concat([]int{200}, except(400, 499, 0)),
	} {
		for _, preset := range []string{"", "preset: completed, "} {
			c := app(t, "  count: {"+preset+"statuses: "+written+"}").Count
			if got := statuses(c.Statuses); !slices.Equal(got, want) {
				t.Errorf("%s: %v cost, want %v", written, got, want)
			}
			if c.Unfinished != (preset == "") || c.GRPCStatuses != 1 {
				t.Errorf("%s: what is not written is not the preset's: %+v", written, c)
			}
		}
	}
	c := app(t, "  count: {preset: completed, aborted: true, unfinished: true, replays: true, replay_header: X-Replayed}").Count
	if !c.Aborted || !c.Unfinished || !c.Replays || c.ReplayHeader != "x-replayed" || len(statuses(c.Statuses)) != 100 {
		t.Errorf("got %+v", c)
	}
	if c := app(t, "  count: {unfinished: false}").Count; c.Unfinished {
		t.Errorf("got %+v", c)
	}
}

// gRPC statuses are written by name or number; one bit each.
func TestCount_A8_A9_GRPCStatuses(t *testing.T) {
	t.Parallel()
	names := strings.Fields("OK CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS PERMISSION_DENIED RESOURCE_EXHAUSTED " +
		"FAILED_PRECONDITION ABORTED OUT_OF_RANGE UNIMPLEMENTED INTERNAL UNAVAILABLE DATA_LOSS UNAUTHENTICATED")
	for number, name := range names {
		if c := app(t, "  count: {grpc_statuses: ["+name+"]}").Count; c.GRPCStatuses != 1<<number || !c.HasGRPC(number) || c.HasGRPC(number+1) {
			t.Errorf("%s: got %b", name, c.GRPCStatuses)
		}
	}
	if c := app(t, "  count: {grpc_statuses: [0, 16, NOT_FOUND]}").Count; c.GRPCStatuses != 1|1<<16|1<<5 {
		t.Errorf("got %b", c.GRPCStatuses)
	}
}

// The gRPC status may be in Envoy's metadata (issue 12, D2); that needs level 5.
func TestCount_A8_GRPCStatusInMetadata(t *testing.T) {
	t.Parallel()
	c := app(t, "  count: {preset: completed, grpc_status: {metadata: \"io.example.grpc:trailers.status\"}}").Count
	if s := c.GRPCStatus; s == nil || s.Kind != plan.SourceMetadata || s.Name != "io.example.grpc" || !slices.Equal(s.Path, []string{"trailers", "status"}) || c.Unfinished {
		t.Errorf("got %+v of %+v", s, c)
	}
	const text = "apiVersion: mete/v1\nkind: App\nmetadata: {name: api}\nspec:\n  time_zone: UTC\n  identity: {tenant: [{jwt_claim: org}]}\n" +
		"  count: {grpc_status: {metadata: \"a:b\"}}\n"
	if level, path := decodeOne(t, text).Needs(); level != 5 || path != "spec.count.grpc_status" {
		t.Errorf("needs level %d for %q", level, path)
	}
	v, ok := plan.Plain([]byte(text))
	if err := compiled(t).Validate(v); !ok || err != nil {
		t.Errorf("the schema: %v", err)
	}
}

// An app may name the header that use is attributed to (C59).
func TestDecode_C59_Attribution(t *testing.T) {
	t.Parallel()
	if a := app(t, "  attribution: {request_header: X-Pipeline-Id}"); a.Attribution != "x-pipeline-id" {
		t.Errorf("got %q", a.Attribution)
	}
	if a := app(t, ""); a.Attribution != "" {
		t.Errorf("got %q", a.Attribution)
	}
}
