package e2e_test

import (
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/meteproject/mete/test/rig"
)

// A gRPC caller is refused in gRPC's own words (Q27).
func TestGRPC_Q27(t *testing.T) {
	t.Parallel()
	a := newApp(t, shared(t), "monthly: {kind: quota, amount: 2, reset: {calendar: month}}")
	conn, err := grpc.NewClient(a.ingress.Listener("ingress"), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority(a.host))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	client := grpc_health_v1.NewHealthClient(conn)
	id := "grpc-" + a.name
	ctx := metadata.AppendToOutgoingContext(t.Context(), "x-api-key", a.key, rig.TestID, id)

	for range 2 {
		var header metadata.MD
		if _, err := client.Check(ctx, &grpc_health_v1.HealthCheckRequest{}, grpc.Header(&header)); err != nil {
			t.Fatal(err)
		}
		if len(header.Get("ratelimit")) != 1 {
			t.Errorf("ratelimit = %q on an admitted call, want one", header.Get("ratelimit"))
		}
	}

	var trailer metadata.MD
	_, err = client.Check(ctx, &grpc_health_v1.HealthCheckRequest{}, grpc.Trailer(&trailer))
	got := status.Convert(err)
	if got.Code() != codes.ResourceExhausted || got.Message() == "" {
		t.Fatalf("got %v, want RESOURCE_EXHAUSTED with a message", err)
	}
	checkDetails(t, a, got)
	if len(trailer.Get("retry-after")) != 1 || len(trailer.Get("grpc-retry-pushback-ms")) != 1 || trailer.Get("grpc-retry-pushback-ms")[0] != "-1" {
		t.Errorf("trailer = %v, want retry-after, and a pushback of -1: waiting for the month's end is no retry", trailer)
	}
	if n := len(a.upstream.Seen(id)); n != 2 {
		t.Errorf("the API saw %d calls, want 2", n)
	}

	bad := metadata.AppendToOutgoingContext(t.Context(), "x-api-key", "mk_wrong")
	if _, err := client.Check(bad, &grpc_health_v1.HealthCheckRequest{}); status.Code(err) != codes.Unauthenticated {
		t.Errorf("a bad key: got %v, want UNAUTHENTICATED", err)
	}
}

func checkDetails(t *testing.T, a *app, got *status.Status) {
	t.Helper()
	var info *errdetails.ErrorInfo
	var failure *errdetails.QuotaFailure
	var retry *errdetails.RetryInfo
	for _, detail := range got.Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			info = detail
		case *errdetails.QuotaFailure:
			failure = detail
		case *errdetails.RetryInfo:
			retry = detail
		}
	}
	if info == nil || failure == nil || retry == nil {
		t.Fatalf("details = %v, want ErrorInfo, QuotaFailure and RetryInfo", got.Details())
	}
	if info.GetReason() != "QUOTA_EXCEEDED" || info.GetMetadata()["policy"] != "monthly" || info.GetMetadata()["scope"] != a.tenant {
		t.Errorf("ErrorInfo = %v, want QUOTA_EXCEEDED by monthly of %s", info, a.tenant)
	}
	if v := failure.GetViolations(); len(v) != 1 || v[0].GetSubject() != a.tenant || v[0].GetQuotaId() != "monthly" || v[0].GetQuotaValue() != 2 {
		t.Errorf("QuotaFailure = %v, want monthly of %s, 2", failure, a.tenant)
	}
	if retry.GetRetryDelay().AsDuration() <= 0 {
		t.Errorf("RetryInfo = %v, want a delay", retry)
	}
}
