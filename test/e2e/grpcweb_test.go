package e2e_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/meteproject/mete/test/rig"
)

// withGRPCWeb puts the parts of grpc-web.yaml where they say; without the second filter if
// lua is false.
func withGRPCWeb(t *testing.T, lua bool) func(config string) string {
	t.Helper()
	filters, protocol, ok := strings.Cut(uncommented(readExample("grpc-web.yaml")), "\n---\n")
	if !lua {
		filters, _, ok = strings.Cut(filters, "\n- name: envoy.filters.http.lua\n")
	}
	const before, old = "                http_filters:\n", "          use_downstream_protocol_config: {http2_protocol_options: {}}\n"
	return func(config string) string {
		if !ok || strings.Count(config, before) != 1 || strings.Count(config, old) != 1 {
			t.Error("the examples have another form")
		}
		return strings.NewReplacer(before, before+inside(18, filters)+"\n", old, inside(10, protocol)+"\n", "buffer_flush_interval: 1s", "buffer_flush_interval: 0.1s").Replace(config)
	}
}

// A webReply is what a gRPC-Web caller gets of a call: its messages and trailers are in
// the body.
type webReply struct {
	status   int
	header   http.Header
	messages int
	trailers string // as they are in the last frame
}

// callWeb calls a method the way a browser does.
func (a *app) callWeb(t *testing.T, kind string, headers ...string) *webReply {
	t.Helper()
	message := "\x00\x00\x00\x00\x00"
	if kind == "application/grpc-web-text" {
		message = base64.StdEncoding.EncodeToString([]byte(message))
	}
	resp := a.post(t, message, append(headers, "Content-Type: "+kind, "Accept: "+kind, "X-Grpc-Web: 1")...)
	body := io.Reader(resp.Body)
	if kind == "application/grpc-web-text" {
		body = base64.NewDecoder(base64.StdEncoding, body)
	}
	r := &webReply{status: resp.StatusCode, header: resp.Header}
	if err := r.read(body); err != nil {
		t.Fatal(err)
	}
	return r
}

// post calls a method with headers, "Name: value". The body of the answer is closed when the
// test ends.
func (a *app) post(t *testing.T, message string, headers ...string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+a.ingress.Listener("ingress")+grpc_health_v1.Health_Check_FullMethodName, strings.NewReader(message))
	if err != nil {
		t.Fatal(err)
	}
	req.Host = a.host
	for _, line := range append(headers, "X-Api-Key: "+a.key) {
		name, value, _ := strings.Cut(line, ": ")
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// read reads the frames of a body: of messages, and of trailers, which is the last one.
func (r *webReply) read(body io.Reader) error {
	for {
		var head [5]byte
		if _, err := io.ReadFull(body, head[:]); err == io.EOF {
			return nil
		} else if err != nil {
			return fmt.Errorf("reading a frame: %w", err)
		}
		frame := make([]byte, binary.BigEndian.Uint32(head[1:]))
		if _, err := io.ReadFull(body, frame); err != nil {
			return fmt.Errorf("reading a frame of %d bytes: %w", len(frame), err)
		}
		if head[0]&0x80 == 0 {
			r.messages++
		} else {
			r.trailers = string(bytes.ToLower(frame))
		}
	}
}

// webApp is an app that counts what gRPC calls say they used in a trailer, and reserves
// 100 of it.
func webApp(t *testing.T, w *world) *app {
	t.Helper()
	a := newApp(t, w, "credits: {kind: quota, amount: 1000, unit: credits, reset: {calendar: year}, lease: {report_every: 1s}}",
		"units: {credits: {title: credits}}", `count: {grpc_status: {metadata: "grpc-trailers:grpc-status"}}`)
	a.put(t, map[string]string{"routes/" + a.name: document("Routes", a.name, `  app: `+a.name+`
  rules:
    - name: call
      match: {path_prefix: /grpc.health.v1.Health/}
      units: {credits: {reserve: 100, use: [{response_trailer: x-usage-units}, {metadata: "grpc-trailers:x-usage-units"}]}}`)})
	a.awaitRoutes(t)
	return a
}

// gRPC-Web: a call that failed is free, and numbers in trailers count, though Envoy's log
// has no trailers (issue 12, D2; A8).
func TestGRPCWeb_A8_P65_StatusAndNumberInMetadata(t *testing.T) {
	t.Parallel()
	a := webApp(t, newWorld(t, nil, withGRPCWeb(t, true)))
	var used int64
	for _, tt := range []struct {
		kind, act, use   string
		messages         int
		trailers, status string // grpc-status in the trailers or in the headers
		want             int64
	}{
		{"application/grpc-web+proto", rig.ActCallOK, "7", 1, "0", "", 7},
		{"application/grpc-web", rig.ActCallFails, "7", 0, "5", "", 0},
		{"application/grpc-web+proto", rig.ActCallRefused, "", 0, "", "5", 0},
		{"application/grpc-web-text", rig.ActCallOK, "9", 1, "0", "", 9},
		{"application/grpc-web-text", rig.ActCallFails, "", 0, "5", "", 0},
		{"application/grpc-web+proto", rig.ActCallStream, "250", 3, "0", "", 250},
		{"application/grpc-web+proto", rig.ActCallOK, "", 1, "0", "", 100},
		{"application/grpc-web+proto", rig.ActCallOK, "nonsense", 1, "0", "", 100},
		{"application/grpc-web+proto", rig.ActCallOK, "500", 1, "0", "", 500},
	} {
		r := a.callWeb(t, tt.kind, rig.TestID+": "+fmt.Sprint(a.name, used, tt.act, tt.use), rig.TestAct+": "+tt.act, rig.TestUse+": "+tt.use)
		if r.status != http.StatusOK || r.messages != tt.messages || tt.trailers != "" && !strings.Contains(r.trailers, "grpc-status:"+tt.trailers+"\r\n") || r.header.Get("Grpc-Status") != tt.status {
			t.Fatalf("%s, %s: got %+v", tt.kind, tt.act, r)
		}
		used += tt.want
		eventually(t, fmt.Sprintf("%s of %s brings use to %d", tt.act, tt.use, used), func() bool { return a.account(t).Used() == used && a.metric(t, "mete_reservations_unsettled") == 0 })
	}
	// Of 1,000 there are 34 left: fewer than a call reserves.
	if r := a.callWeb(t, "application/grpc-web+proto"); r.status != http.StatusOK || r.header.Get("Grpc-Status") != "8" || r.header.Get("Retry-After") == "" ||
		!strings.HasPrefix(r.header.Get("Content-Type"), "application/grpc-web") || !strings.Contains(r.header.Get("Grpc-Message"), "has 34 of 1,000 credits left") || r.header.Get("Grpc-Status-Details-Bin") == "" {
		t.Errorf("refused with %+v", r)
	}
}

// The filter for Connect's protocol does the same to trailers, and to a status in the headers
// of a stream; the same filter behind it helps (issue 12, D2).
func TestConnect_A8_P65_StatusAndNumberInMetadata(t *testing.T) {
	t.Parallel()
	a := webApp(t, newWorld(t, nil, func(config string) string {
		return strings.NewReplacer("envoy.filters.http.grpc_web", "envoy.filters.http.connect_grpc_bridge",
			"envoy.extensions.filters.http.grpc_web.v3.GrpcWeb", "envoy.extensions.filters.http.connect_grpc_bridge.v3.FilterConfig").Replace(withGRPCWeb(t, true)(config))
	}))
	const unary, stream = "application/proto", "application/connect+proto"
	var used int64
	for i, tt := range []struct {
		kind, act, use string
		status         int
		want           int64
	}{
		{unary, rig.ActCallOK, "7", http.StatusOK, 7},
		{unary, rig.ActCallFails, "7", http.StatusNotFound, 0},
		{unary, rig.ActCallRefused, "", http.StatusNotFound, 0},
		{stream, rig.ActCallStream, "9", http.StatusOK, 9},
		{stream, rig.ActCallFails, "7", http.StatusOK, 0},
		{stream, rig.ActCallRefused, "", http.StatusOK, 0},
		{stream, rig.ActCallOK, "", http.StatusOK, 100},
	} {
		message := "\x00\x00\x00\x00\x00"
		if tt.kind == unary {
			message = ""
		}
		resp := a.post(t, message, rig.TestID+": "+fmt.Sprint(a.name, i), rig.TestAct+": "+tt.act, rig.TestUse+": "+tt.use, "Content-Type: "+tt.kind, "Connect-Protocol-Version: 1")
		_, _ = io.Copy(io.Discard, resp.Body)
		if resp.StatusCode != tt.status {
			t.Fatalf("%s, %s: got %d %v", tt.kind, tt.act, resp.StatusCode, resp.Header)
		}
		used += tt.want
		eventually(t, fmt.Sprintf("%s of %s, %s, brings use to %d", tt.act, tt.use, tt.kind, used), func() bool { return a.account(t).Used() == used && a.metric(t, "mete_reservations_unsettled") == 0 })
	}
}

// What docs/what-a-request-costs.md says of the filter alone: nobody can know better than
// the HTTP status, which is 200.
func TestGRPCWeb_A8_FilterAlone(t *testing.T) {
	t.Parallel()
	a := webApp(t, newWorld(t, nil, withGRPCWeb(t, false)))
	for i, act := range []string{rig.ActCallFails, rig.ActCallRefused, rig.ActCallOK} {
		a.callWeb(t, "application/grpc-web+proto", rig.TestID+": "+fmt.Sprint(a.name, i), rig.TestAct+": "+act, rig.TestUse+": 7")
	}
	eventually(t, "all but the call that was refused at once cost what they reserve", func() bool {
		return a.metric(t, "mete_reservations_unsettled") == 0 && a.account(t).Used() == 200
	})
}
