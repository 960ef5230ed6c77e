package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store"
)

// spans is a collector that keeps what it gets.
type spans struct {
	collectorpb.UnimplementedTraceServiceServer
	mu   sync.Mutex
	got  map[string]*tracepb.Span // by name
	text string                   // of all
}

func (s *spans) Export(_ context.Context, req *collectorpb.ExportTraceServiceRequest) (*collectorpb.ExportTraceServiceResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, resource := range req.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				s.text += span.String()
				s.got[span.GetName()] = span
			}
		}
	}
	return &collectorpb.ExportTraceServiceResponse{}, nil
}

// failing is a store that is away.
type failing struct{}

func (failing) Apply(context.Context, quota.Operation) (quota.Result, error) {
	return quota.Result{}, errors.New("away")
}

// leaking is a store that is away and says for whom.
type leaking struct{}

func (leaking) Apply(_ context.Context, op quota.Operation) (quota.Result, error) {
	return quota.Result{}, fmt.Errorf("read %s: %w", store.AccountKey(op.Key), errors.New("away"))
}

// collect makes spans by do and returns all that a collector got.
func collect(t *testing.T, do func(tracer)) *spans {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv, kept := grpc.NewServer(), &spans{got: map[string]*tracepb.Span{}}
	collectorpb.RegisterTraceServiceServer(srv, kept)
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()

	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+l.Addr().String()) // the exporter reads it itself
	tr, err := newTracer(t.Context(), env(map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://" + l.Addr().String()}))
	if err != nil || !tr.on {
		t.Fatalf("on %v, %v", tr.on, err)
	}
	do(tr)
	if err := tr.close(t.Context()); err != nil {
		t.Fatal(err)
	}
	srv.GracefulStop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	return kept
}

func TestTracing_P28(t *testing.T) {
	defer goleak.VerifyNone(t)
	req := &authz.Request{Headers: []authz.Field{{Name: "traceparent", Value: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}}}
	dec := &authz.Decision{ID: authz.NewID(time.Now()), Outcome: authz.QuotaExceeded, Tenant: "org:acme", App: &plan.App{Name: "web"}, Worst: -1}
	kept := collect(t, func(tr tracer) {
		tr.refused(t.Context(), req, dec)
		if _, err := tr.traced(failing{}).Apply(t.Context(), quota.Operation{Key: quota.Key{Limit: "monthly"}, Want: 10}); err == nil {
			t.Error("the store's error is lost")
		}
	})
	refuse, lease := kept.got["mete.refuse"], kept.got["mete.lease"]
	if refuse == nil || lease == nil {
		t.Fatalf("got %v", kept.got)
	}
	if got := refuse.GetParentSpanId(); hex.EncodeToString(got) != "b7ad6b7169203331" {
		t.Errorf("parent %x", got)
	}
	attributes := map[string]string{}
	for _, a := range refuse.GetAttributes() {
		attributes[a.GetKey()] = a.GetValue().GetStringValue()
	}
	if attributes["mete.outcome"] != "quota_exceeded" || attributes["mete.app"] != "web" || attributes["mete.tenant"] != "org:acme" || attributes["mete.decision"] != dec.ID.String() {
		t.Errorf("attributes %v", attributes)
	}
	if refuse.GetStartTimeUnixNano() > refuse.GetEndTimeUnixNano() {
		t.Error("the span ends before it begins")
	}
	if lease.GetStatus().GetCode() != tracepb.Status_STATUS_CODE_ERROR {
		t.Errorf("status of a failed operation: %v", lease.GetStatus())
	}
}

// A counter of descriptors is called by what Envoy read from the request, an API key say,
// which no span tells.
func TestTracing_P28_C145_NoValuesOfDescriptors(t *testing.T) {
	kept := collect(t, func(tr tracer) {
		for _, limit := range []string{"ratelimit:per_hour", "ratelimit:per_hour=5"} {
			counter := quota.Key{Root: "edge?api_key=mk_secret", Tenant: "edge?api_key=mk_secret", Limit: limit}
			if _, err := tr.traced(leaking{}).Apply(t.Context(), quota.Operation{Key: counter}); err == nil {
				t.Error("the store's error is lost")
			}
		}
	})
	if strings.Contains(kept.text, "secret") || strings.Count(kept.text, `"edge"`) != 2 {
		t.Errorf("told %s", kept.text)
	}
}

// TestTracing_P28_Off: nothing is wrapped and nothing runs unless asked for (P28).
func TestTracing_P28_Off(t *testing.T) {
	for _, vars := range []map[string]string{
		nil,
		{"OTEL_SERVICE_NAME": "mete"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317", "OTEL_SDK_DISABLED": "true"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317", "OTEL_TRACES_EXPORTER": "none"},
	} {
		tr, err := newTracer(t.Context(), env(vars))
		if err != nil || tr.on {
			t.Errorf("%v: on %v, %v", vars, tr.on, err)
		}
		if _, plain := tr.traced(failing{}).(failing); !plain {
			t.Errorf("%v: the store is wrapped", vars)
		}
		if err := tr.close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	_, err := newTracer(t.Context(), env(map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
	}))
	if err == nil {
		t.Error("a protocol that is not spoken is taken")
	}
}
