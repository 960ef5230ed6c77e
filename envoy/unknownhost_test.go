package envoy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"github.com/rs/zerolog"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/envoy"
)

// A request that no app is for is answered, whatever failure_mode_allow says, and its
// host is logged once a minute (issue 12, C1).
func TestUnknownHost_C117_IsAnAnswer(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ setting, status, grpc int }{{0, 404, 12}, {403, 403, 7}, {421, 421, 2}, {503, 503, 14}} {
		d := &script{answer: func(_ context.Context, _ *authz.Request, d *authz.Decision) {
			d.Outcome, d.Worst, d.Why = authz.NoApp, -1, "no app has this name, domain or host"
		}}
		now := noon
		var log bytes.Buffer
		s, conn := start(t, envoy.Options{
			Decider: d, UnknownHostStatus: tt.setting, Log: zerolog.New(&log),
			Now: func() time.Time { return now },
		})
		client := authv3.NewAuthorizationClient(conn)
		ask := func(contentType string) *authv3.DeniedHttpResponse {
			r, err := client.Check(t.Context(), &authv3.CheckRequest{Attributes: &authv3.AttributeContext{Request: &authv3.AttributeContext_Request{
				Http: &authv3.AttributeContext_HttpRequest{
					Host: "nobody.example\n" + strings.Repeat("x", 1000), Headers: map[string]string{"content-type": contentType},
				},
			}}})
			if err != nil || r.GetDeniedResponse() == nil || r.GetStatus().GetCode() == 0 {
				t.Fatalf("%d: %v, %v", tt.setting, r, err)
			}
			return r.GetDeniedResponse()
		}
		no := ask("text/plain")
		var body struct {
			Title, Error, Code, Detail string
			Status                     int
		}
		if err := json.Unmarshal([]byte(no.GetBody()), &body); err != nil {
			t.Fatal(err)
		}
		if int(no.GetStatus().GetCode()) != tt.status || body.Status != tt.status || body.Error != "app_unknown" || body.Code != "APP_UNKNOWN" || body.Title == "Forbidden" && tt.status != 403 {
			t.Errorf("%d: status %v, body %+v", tt.setting, no.GetStatus(), body)
		}
		if got := headerOf(t, ask("application/grpc").GetHeaders(), "grpc-status"); got != strconv.Itoa(tt.grpc) {
			t.Errorf("%d: grpc-status %s, want %d", tt.setting, got, tt.grpc)
		}
		now = now.Add(time.Minute - 1)
		ask("text/plain")
		if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), `"host":"nobody.example\nx`) || len(log.String()) > 900 {
			t.Errorf("%d lines within a minute: %s", n, log.String())
		}
		log.Reset()
		now = now.Add(1)
		ask("text/plain")
		if !strings.Contains(log.String(), `"requests":3`) {
			t.Errorf("a minute later: %s", log.String())
		}
		if n := s.Stats().Checks[authz.NoApp]; n != 4 {
			t.Errorf("%d counted", n)
		}
	}
}

func TestIsRefusal(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]bool{404: true, 403: true, 421: true, 503: true, 400: true, 511: true, 200: false, 302: false, 499: false, 599: false, 0: false, -404: false, 1 << 40: false} {
		if envoy.IsRefusal(status) != want {
			t.Errorf("%d", status)
		}
	}
}
