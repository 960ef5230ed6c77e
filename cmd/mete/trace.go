package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/quota"
)

// flushFor is how long spans are waited for at a stop.
const flushFor = 3 * time.Second

// A tracer makes spans of refusals and of lease requests. What is allowed leaves
// no span: it is most of all requests, and the fast ones (P28).
type tracer struct {
	tracer trace.Tracer
	on     bool
	stop   func(context.Context) error
}

// newTracer returns a tracer that the standard OTEL_ variables set up, one that
// does nothing if they name no collector. It starts the exporter, which close
// flushes and ends.
func newTracer(ctx context.Context, env environment) (tracer, error) {
	if !tracingOn(env) {
		return tracer{tracer: noop.NewTracerProvider().Tracer("mete")}, nil
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		if p, _ := env.Lookup(name); p != "" && p != "grpc" {
			return tracer{}, fmt.Errorf("%s=%s: spans are sent by grpc alone (usually port 4317)", name, p)
		}
	}
	exporter, err := otlptracegrpc.New(ctx)
	if err != nil {
		return tracer{}, fmt.Errorf("set up tracing: %w", err)
	}
	res, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", "mete"), attribute.String("service.version", build().Version)),
		resource.WithTelemetrySDK(), resource.WithFromEnv()) // the environment has the last word
	if err != nil {
		return tracer{}, fmt.Errorf("set up tracing: %w", err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(res))
	return tracer{tracer: provider.Tracer("mete"), on: true, stop: provider.Shutdown}, nil
}

func tracingOn(env environment) bool {
	set := func(name string) string { v, _ := env.Lookup(name); return v }
	switch {
	case set("OTEL_SDK_DISABLED") == "true", set("OTEL_TRACES_EXPORTER") == "none":
		return false
	case set("OTEL_TRACES_EXPORTER") == "otlp":
		return true
	}
	return set("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != "" || set("OTEL_EXPORTER_OTLP_ENDPOINT") != ""
}

// close sends what is left. A collector that is away costs no more than flushFor.
func (t tracer) close(ctx context.Context) error {
	if t.stop == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, flushFor)
	defer cancel()
	if err := t.stop(ctx); err != nil {
		return fmt.Errorf("flush spans: %w", err)
	}
	return nil
}

// refused makes a span of a refusal, below the span that the request belongs to.
func (t tracer) refused(ctx context.Context, req *authz.Request, dec *authz.Decision) {
	ctx = propagation.TraceContext{}.Extract(ctx, headerCarrier{req})
	_, span := t.tracer.Start(ctx, "mete.refuse", trace.WithTimestamp(begun(dec.ID)), trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(
			attribute.String("mete.outcome", dec.Outcome.Word()),
			attribute.String("mete.decision", dec.ID.String()),
			attribute.String("mete.tenant", dec.Tenant),
			attribute.String("mete.route", dec.Route)))
	if dec.App != nil {
		span.SetAttributes(attribute.String("mete.app", dec.App.Name))
	}
	if w := dec.Worst; w >= 0 && w < len(dec.Limits) {
		span.SetAttributes(attribute.String("mete.limit", dec.Limits[w].Limit.Name), attribute.String("mete.node", dec.Limits[w].Tenant))
	}
	span.End()
}

// begun returns when a decision began, which its id tells to the millisecond.
func begun(id authz.ID) time.Time {
	var ms int64
	for _, b := range id[:6] {
		ms = ms<<8 | int64(b)
	}
	return time.UnixMilli(ms)
}

// headerCarrier reads the headers of a checked request.
type headerCarrier struct{ req *authz.Request }

// Get implements [propagation.TextMapCarrier].
func (c headerCarrier) Get(name string) string {
	v, _ := c.req.Header(name)
	return v
}

// Set implements [propagation.TextMapCarrier]; nothing is ever injected.
func (headerCarrier) Set(string, string) {}

// Keys implements [propagation.TextMapCarrier].
func (headerCarrier) Keys() []string { return nil }

// tracedStore makes a span of every operation.
type tracedStore struct {
	quota.Store
	tracer tracer
}

// traced wraps s, if there is anything to trace for.
func (t tracer) traced(s quota.Store) quota.Store {
	if !t.on {
		return s
	}
	return tracedStore{s, t}
}

// tracedTenant is what spans say of whose account it is. Of a counter of rate limit
// descriptors that is the domain alone: the rest of the name is what Envoy read from the
// request, an API key say.
func tracedTenant(k quota.Key) (name string, counter bool) {
	if _, counter = plan.ParseAccount(k.Limit); !counter {
		return k.Tenant, false
	}
	domain, _, _ := strings.Cut(k.Tenant, "?")
	return domain, true
}

// Apply implements [quota.Store].
func (s tracedStore) Apply(ctx context.Context, op quota.Operation) (quota.Result, error) {
	tenant, counter := tracedTenant(op.Key)
	ctx, span := s.tracer.tracer.Start(ctx, "mete.lease", trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		attribute.String("mete.tenant", tenant),
		attribute.String("mete.limit", op.Key.Limit),
		attribute.String("mete.window", op.Key.Window),
		attribute.Int64("mete.want", op.Want)))
	defer span.End()
	res, err := s.Store.Apply(ctx, op)
	if err != nil {
		if !counter { // its text has the key of the account
			span.RecordError(err)
		}
		span.SetStatus(codes.Error, "operation failed")
		return res, err
	}
	span.SetAttributes(attribute.Int64("mete.granted", res.Granted), attribute.Int64("mete.left", res.Left))
	return res, nil
}
