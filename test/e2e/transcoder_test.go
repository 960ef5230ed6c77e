package e2e_test

import (
	"encoding/base64"
	"fmt"
	"io"
	"strings"
	"testing"

	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/meteproject/mete/test/rig"
)

// The filters that make gRPC of JSON, and of HTTP/1.1, leave trailers to Envoy's log: nothing
// has to be said for them (issue 12, D2).
func TestTranscoder_A8_P65_TrailersStay(t *testing.T) {
	t.Parallel()
	set, err := proto.Marshal(&descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{protodesc.ToFileDescriptorProto(grpc_health_v1.File_grpc_health_v1_health_proto)}})
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct{ filter, kind, body string }{
		"json": {`
                      "@type": type.googleapis.com/envoy.extensions.filters.http.grpc_json_transcoder.v3.GrpcJsonTranscoder
                      services: [grpc.health.v1.Health]
                      auto_mapping: true
                      proto_descriptor_bin: ` + base64.StdEncoding.EncodeToString(set), "application/json", "{}"},
		"http1_bridge": {`
                      "@type": type.googleapis.com/envoy.extensions.filters.http.grpc_http1_bridge.v3.Config`, "application/grpc", "\x00\x00\x00\x00\x00"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			filter := map[string]string{"json": "grpc_json_transcoder", "http1_bridge": "grpc_http1_bridge"}[name]
			a := webApp(t, newWorld(t, nil, func(config string) string {
				return strings.NewReplacer("envoy.filters.http.grpc_web", "envoy.filters.http."+filter,
					"\n                      \"@type\": type.googleapis.com/envoy.extensions.filters.http.grpc_web.v3.GrpcWeb", tt.filter).Replace(withGRPCWeb(t, false)(config))
			}))
			a.put(t, map[string]string{"routes/" + a.name: document("Routes", a.name, "  app: "+a.name+"\n  rules: [{name: call, match: {path_prefix: /}, units: {credits: {reserve: 100, use: [{response_trailer: x-usage-units}]}}}]")})
			a.awaitRoutes(t)
			var used int64
			for i, call := range []struct {
				act, use string
				want     int64
			}{{rig.ActCallOK, "7", 7}, {rig.ActCallFails, "7", 0}, {rig.ActCallRefused, "7", 0}, {rig.ActCallOK, "500", 500}} {
				resp := a.post(t, tt.body, rig.TestID+": "+fmt.Sprint(a.name, i), rig.TestAct+": "+call.act, rig.TestUse+": "+call.use, "Content-Type: "+tt.kind)
				_, _ = io.Copy(io.Discard, resp.Body)
				if (resp.Header.Get("Grpc-Status") == "0") != (call.act == rig.ActCallOK) {
					t.Errorf("%s: got %d %v", call.act, resp.StatusCode, resp.Header)
				}
				used += call.want
			}
			eventually(t, fmt.Sprintf("%d are used", used), func() bool { return a.account(t).Used() == used && a.metric(t, "mete_reservations_unsettled") == 0 })
		})
	}
}
