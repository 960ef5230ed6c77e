package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	logv3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const extAuthz = "envoy.filters.http.ext_authz"

// sealed asks for an admitted request and returns what Envoy keeps of the answer.
func (e *edge) sealed(t *testing.T) *structpb.Struct {
	t.Helper()
	var kept *structpb.Struct
	eventually(t, "an admitted request", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		resp, err := authv3.NewAuthorizationClient(e.conn).Check(ctx, &authv3.CheckRequest{
			Attributes: &authv3.AttributeContext{Request: &authv3.AttributeContext_Request{Http: &authv3.AttributeContext_HttpRequest{
				Method: "GET", Path: "/", Host: "api",
				HeaderMap: &corev3.HeaderMap{Headers: []*corev3.HeaderValue{{Key: "x-org", RawValue: []byte("org:acme")}}},
			}}},
		})
		kept = resp.GetDynamicMetadata()
		return err == nil && resp.GetStatus().GetCode() == 0 && kept.GetFields()["reservation"].GetStringValue() != ""
	})
	return kept
}

// logs sends an entry of the access log, as Envoy does at the end of a request.
func (e *edge) logs(t *testing.T, kept *structpb.Struct, status uint32) {
	t.Helper()
	ss, err := accesslogv3.NewAccessLogServiceClient(e.conn).StreamAccessLogs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	entry := &logv3.HTTPAccessLogEntry{
		CommonProperties: &logv3.AccessLogCommon{
			AccessLogType: logv3.AccessLogType_DownstreamEnd, UpstreamCluster: "api",
			Metadata: &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{extAuthz: kept}},
		},
		Response: &logv3.HTTPResponseProperties{ResponseCode: wrapperspb.UInt32(status)},
	}
	err = ss.Send(&accesslogv3.StreamAccessLogsMessage{LogEntries: &accesslogv3.StreamAccessLogsMessage_HttpLogs{
		HttpLogs: &accesslogv3.StreamAccessLogsMessage_HTTPAccessLogEntries{LogEntry: []*logv3.HTTPAccessLogEntry{entry}},
	}})
	if err == nil {
		_, err = ss.CloseAndRecv()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// says waits until metrics have a line.
func (e *edge) says(t *testing.T, line string) {
	t.Helper()
	eventually(t, line, func() bool {
		_, body := get(t, "http://"+e.a.Metrics+"/metrics")
		return strings.Contains(body, line+"\n")
	})
}

// C134: after a restart an entry that was settled before it changes nothing; one that was
// open settles once.
func TestRestart_C134_RepeatedEntriesAreFound(t *testing.T) {
	defer goleak.VerifyNone(t)
	dir := filepath.Join(t.TempDir(), "kept")
	r, e := startEdge(t, dir)
	putDocuments(t, e.etcd)
	failed, open := e.sealed(t), e.sealed(t)
	e.logs(t, failed, 500)
	e.says(t, `mete_settlements_total{result="free"} 1`)
	e.stop(t, r)

	for n := range 2 {
		r, e = startEdge(t, dir)
		e.logs(t, failed, 500)
		e.says(t, `mete_settlements_total{result="repeated"} 1`)
		e.logs(t, open, 500)
		e.says(t, fmt.Sprintf(`mete_settlements_total{result="free"} %d`, 1-n))
		e.says(t, fmt.Sprintf(`mete_settlements_total{result="repeated"} %d`, 1+n))
		e.stop(t, r)
	}
	r.dir = dir
	r.checkAccount(t, 0)
}
