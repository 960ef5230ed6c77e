package admin_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/meteproject/mete/admin"
	metev1 "github.com/meteproject/mete/api/mete/v1"
	"github.com/meteproject/mete/api/mete/v1/metev1connect"
	"github.com/meteproject/mete/authz"
)

const decision = "01ARZ3NDEKTSV4RRFFQ69G5FAV"

// desk is a Quota that answers with err, or with what it was asked.
type desk struct{ err error }

func (d desk) Report(_ context.Context, _ time.Time, id authz.ID, units map[string]int64) (map[string]int64, error) {
	if d.err != nil {
		return nil, d.err
	}
	if id.String() != decision {
		panic("another decision: " + id.String())
	}
	return maps.Clone(units), nil
}

func (d desk) Extend(ctx context.Context, now time.Time, id authz.ID, units map[string]int64) (map[string]int64, error) {
	units, err := d.Report(ctx, now, id, units)
	for unit := range units {
		units[unit] += 10
	}
	return units, err
}

func service(err error) *admin.Service {
	return admin.NewService(admin.Config{Quota: desk{err}, Now: time.Now})
}

// overHTTP serves s as the admin listener does.
func overHTTP(t *testing.T, s *admin.Service) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(admin.Handler(s))
	srv := httptest.NewUnstartedServer(mux)
	srv.EnableHTTP2 = true
	srv.StartTLS()
	t.Cleanup(srv.Close)
	return srv
}

// overGRPC serves s as the gRPC listener does.
func overGRPC(t *testing.T, s *admin.Service) metev1.QuotaServiceClient {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer()
	admin.Register(srv, s)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(l)
	}()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(); srv.Stop(); <-done })
	return metev1.NewQuotaServiceClient(conn)
}

// post does what curl does.
func post(t *testing.T, srv *httptest.Server, method, body string, headers ...string) (code int, answer map[string]any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+"/mete.v1.QuotaService/"+method, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := srv.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		t.Fatalf("%d %q: %v", resp.StatusCode, text, err)
	}
	return resp.StatusCode, answer
}

func TestSettle_A37_P64_JSON(t *testing.T) {
	t.Parallel()
	srv := overHTTP(t, service(nil))
	for _, one := range []struct{ method, body, contentType, want string }{
		{"Settle", `{"decision": "` + decision + `", "units": {"tokens": 25, "bytes": "999999999999999"}}`, "application/json", `{"units":{"bytes":"999999999999999","tokens":"25"}}`},
		{"Settle", `{"decision": "` + strings.ToLower(decision) + `", "units": {"tokens": 0}}`, "application/json; charset=utf-8", `{"units":{"tokens":"0"}}`},
		{"Extend", `{"decision": "` + decision + `", "units": {"tokens": 25}}`, "application/json", `{"units":{"tokens":"35"}}`},
	} {
		code, answer := post(t, srv, one.method, one.body, "Content-Type", one.contentType)
		if got, _ := json.Marshal(answer); code != http.StatusOK || string(got) != one.want {
			t.Errorf("%s %s: %d %s, want %s", one.method, one.body, code, got, one.want)
		}
	}
}

func TestSettle_P64_EveryProtocol(t *testing.T) {
	t.Parallel()
	srv := overHTTP(t, service(nil))
	listener := overGRPC(t, service(nil))
	request := &metev1.SettleRequest{Decision: decision, Units: map[string]int64{"tokens": 25}}
	calls := map[string]func(context.Context, *metev1.SettleRequest) (*metev1.SettleResponse, error){
		"gRPC listener": func(ctx context.Context, req *metev1.SettleRequest) (*metev1.SettleResponse, error) {
			return listener.Settle(ctx, req)
		},
	}
	for name, options := range map[string][]connect.ClientOption{
		"connect": nil, "connect JSON": {connect.WithProtoJSON()}, "gRPC": {connect.WithGRPC()}, "gRPC-Web": {connect.WithGRPCWeb()},
		"gzip": {connect.WithSendGzip()},
	} {
		calls[name] = metev1connect.NewQuotaServiceClient(srv.Client(), srv.URL, options...).Settle
	}
	for name, call := range calls {
		if got, err := call(t.Context(), request); err != nil || got.GetUnits()["tokens"] != 25 {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func TestSettle_P64_SaysWhatIsWrongWithARequest(t *testing.T) {
	t.Parallel()
	srv := overHTTP(t, service(nil))
	for name, one := range map[string]struct{ body, want string }{
		"no units":      {`{"decision": "` + decision + `"}`, `settle: units: is empty`},
		"empty units":   {`{"decision": "` + decision + `", "units": {}}`, `settle: units: is empty`},
		"no id":         {`{"units": {"tokens": 1}}`, `settle: decision: is empty: send the id that the request had in its header x-quota-decision`},
		"nothing":       {`{}`, `settle: decision: is empty: send the id that the request had in its header x-quota-decision; units: is empty`},
		"short id":      {`{"decision": "01ARZ", "units": {"tokens": 1}}`, `settle: decision: "01ARZ": no id of a decision: want the 26 characters`},
		"bad id":        {`{"decision": "81ARZ3NDEKTSV4RRFFQ69G5FAV", "units": {"tokens": 1}}`, `settle: decision: "81ARZ3NDEKTSV4RRFFQ69G5FAV": no id`},
		"negative":      {`{"decision": "` + decision + `", "units": {"a": 1, "tokens": -5}}`, `settle: units["tokens"]: -5 is not from 0 to 999999999999999`},
		"large":         {`{"decision": "` + decision + `", "units": {"tokens": 1000000000000000}}`, `units["tokens"]: 1000000000000000 is not from 0 to 999999999999999`},
		"2^63":          {`{"decision": "` + decision + `", "units": {"tokens": 9223372036854775808}}`, `invalid value for int64`},
		"2^63 as text":  {`{"decision": "` + decision + `", "units": {"tokens": "9223372036854775808"}}`, `invalid value for int64`},
		"fraction":      {`{"decision": "` + decision + `", "units": {"tokens": 1.5}}`, `invalid value for int64`},
		"unnamed unit":  {`{"decision": "` + decision + `", "units": {"": 1}}`, `settle: units[""]: has no name`},
		"unknown field": {`{"decision": "` + decision + `", "unit": {"tokens": 1}}`, `unknown field "unit"`},
		"twice":         {`{"decision": "` + decision + `", "units": {"tokens": 1, "tokens": 2}}`, `duplicate`},
		"no JSON":       {`decision=1`, `syntax error`},
		"no body":       {``, `the body is empty`},
		"two bodies":    {`{}{}`, `unexpected token`},
	} {
		code, answer := post(t, srv, "Settle", one.body)
		message, _ := answer["message"].(string)
		if code != http.StatusBadRequest || answer["code"] != "invalid_argument" || !strings.Contains(message, one.want) {
			t.Errorf("%s: %d %v, want %q", name, code, answer, one.want)
		}
	}
}

func TestSettle_P64_NamesTheFieldThatIsWrong(t *testing.T) {
	t.Parallel()
	_, err := overGRPC(t, service(nil)).Extend(t.Context(), &metev1.ExtendRequest{Units: map[string]int64{"tokens": -1 << 63}})
	var fields []string
	for _, detail := range status.Convert(err).Details() {
		if bad, ok := detail.(*errdetails.BadRequest); ok {
			for _, one := range bad.GetFieldViolations() {
				fields = append(fields, one.GetField())
			}
		}
	}
	if got := strings.Join(fields, " "); status.Code(err) != codes.InvalidArgument || got != `decision units["tokens"]` {
		t.Errorf("%v names %s", err, got)
	}
}

func TestSettle_P64_BoundsWhatItReads(t *testing.T) {
	t.Parallel()
	srv := overHTTP(t, service(nil))
	long := `{"decision": "` + decision + `", "units": {"` + strings.Repeat("x", 64<<10) + `": 1}}`
	if code, answer := post(t, srv, "Settle", long); code != http.StatusTooManyRequests || answer["code"] != "resource_exhausted" {
		t.Errorf("64 KiB and more: %d %v", code, answer)
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := io.WriteString(z, strings.Repeat(" ", 8<<20)+long); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if code, answer := post(t, srv, "Settle", packed.String(), "Content-Encoding", "gzip"); code != http.StatusTooManyRequests || answer["code"] != "resource_exhausted" {
		t.Errorf("8 MiB, packed: %d %v", code, answer)
	}
	_, err := overGRPC(t, service(nil)).Settle(t.Context(), &metev1.SettleRequest{
		Decision: decision, Units: map[string]int64{strings.Repeat("x", 64<<10): 1},
	})
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("gRPC: %v", err)
	}
}

func TestSettle_P64_ErrorsHaveCodes(t *testing.T) {
	t.Parallel()
	for name, one := range map[string]struct {
		err    error
		code   codes.Code
		http   int
		word   string
		text   string
		detail string
	}{
		"unknown":            {authz.ErrUnknownDecision, codes.NotFound, 404, "not_found", "decision " + decision + ": no open reservation", ""},
		"other":              {fmt.Errorf("%w: 7 tokens", authz.ErrReported), codes.FailedPrecondition, 400, "failed_precondition", "reported before: 7 tokens: what was told first holds", ""},
		"units":              {fmt.Errorf("%w: the route takes no reports of \"x\"", authz.ErrUnits), codes.InvalidArgument, 400, "invalid_argument", "units: units cannot be counted: the route takes no reports of", "google.rpc.BadRequest"},
		"exhausted":          {&authz.RefusedError{Limit: "daily", Node: "acme", RetryAfter: time.Minute}, codes.ResourceExhausted, 429, "resource_exhausted", "limit daily of acme has not as much left", "google.rpc.QuotaFailure google.rpc.RetryInfo"},
		"exhausted for good": {&authz.RefusedError{Limit: "daily", Node: "acme"}, codes.ResourceExhausted, 429, "resource_exhausted", "limit daily of acme", "google.rpc.QuotaFailure"},
		"bare":               {authz.ErrExhausted, codes.ResourceExhausted, 429, "resource_exhausted", "nothing left", ""},
		"away":               {authz.ErrUnavailable, codes.Unavailable, 503, "unavailable", "quotas cannot be reached", ""},
		"a peer's":           {status.Error(codes.NotFound, "as the peer says"), codes.NotFound, 404, "not_found", "as the peer says", ""},
		"out of time":        {fmt.Errorf("wait: %w", context.DeadlineExceeded), codes.DeadlineExceeded, 504, "deadline_exceeded", "deadline exceeded", ""},
		"cancelled":          {context.Canceled, codes.Canceled, 499, "canceled", "canceled", ""},
		"anything":           {errors.New("secret"), codes.Internal, 500, "internal", "internal error", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := overGRPC(t, service(one.err)).Settle(t.Context(), &metev1.SettleRequest{Decision: decision, Units: map[string]int64{"tokens": 1}})
			s := status.Convert(err)
			var details []string
			for _, detail := range s.Proto().GetDetails() {
				details = append(details, strings.TrimPrefix(detail.GetTypeUrl(), "type.googleapis.com/"))
			}
			if s.Code() != one.code || !strings.Contains(s.Message(), one.text) || strings.Join(details, " ") != one.detail {
				t.Errorf("gRPC: %v %v", err, details)
			}
			code, answer := post(t, overHTTP(t, service(one.err)), "Extend", `{"decision": "`+decision+`", "units": {"tokens": 1}}`)
			details = nil
			all, _ := answer["details"].([]any)
			for _, detail := range all {
				one, _ := detail.(map[string]any)
				details = append(details, fmt.Sprint(one["type"]))
			}
			message, _ := answer["message"].(string)
			if code != one.http || answer["code"] != one.word || !strings.Contains(message, one.text) || strings.Join(details, " ") != one.detail {
				t.Errorf("JSON: %d %v", code, answer)
			}
			if strings.Contains(message+s.Message(), "secret") {
				t.Error("an unexpected error is shown")
			}
		})
	}
}

func TestSettle_P64_APanicIsAnError(t *testing.T) {
	t.Parallel()
	other := "01BX5ZZKBKACTAV9WEVGEMMVRZ"
	if _, err := overGRPC(t, service(nil)).Settle(t.Context(), &metev1.SettleRequest{Decision: other, Units: map[string]int64{"tokens": 1}}); status.Code(err) != codes.Internal {
		t.Errorf("gRPC: %v", err)
	}
	if code, answer := post(t, overHTTP(t, service(nil)), "Settle", `{"decision": "`+other+`", "units": {"tokens": 1}}`); code != http.StatusInternalServerError {
		t.Errorf("JSON: %d %v", code, answer)
	}
}

func TestHandler_P64_AnswersNothingToGET(t *testing.T) {
	t.Parallel()
	srv := overHTTP(t, service(nil))
	resp, err := srv.Client().Get(srv.URL + "/mete.v1.QuotaService/Settle?message={}&encoding=json")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("%s", resp.Status)
	}
}
