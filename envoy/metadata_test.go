package envoy_test

import (
	"math"
	"strconv"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/envoy"
)

type looker interface {
	Lookup(namespace string, path []string) (string, bool)
}

// A finder is a looker into the metadata of a request.
type finder struct{ authz.Metadata }

func (f finder) Lookup(namespace string, path []string) (string, bool) {
	value, found := f.Find(namespace, path)
	return value, found == authz.Value
}

func compareMetadata(t *testing.T, m looker, want *corev3.Metadata) {
	t.Helper()
	if len(want.ProtoReflect().GetUnknown()) > 0 {
		return
	}
	for ns, st := range want.GetFilterMetadata() {
		for key, v := range st.GetFields() {
			if len(st.ProtoReflect().GetUnknown())+len(v.ProtoReflect().GetUnknown()) > 0 {
				continue
			}
			got, ok := m.Lookup(ns, []string{key})
			switch k := v.GetKind().(type) {
			case *structpb.Value_StringValue:
				if !ok || got != k.StringValue {
					t.Errorf("%s %s = %q, %v, want %q", ns, key, got, ok, k.StringValue)
				}
			case *structpb.Value_BoolValue:
				if !ok || got != strconv.FormatBool(k.BoolValue) {
					t.Errorf("%s %s = %q, %v, want %v", ns, key, got, ok, k.BoolValue)
				}
			case *structpb.Value_NumberValue:
				if f, err := strconv.ParseFloat(got, 64); ok && (err != nil || f != k.NumberValue || math.Abs(f) >= 1<<53) {
					t.Errorf("%s %s = %q, want %v", ns, key, got, k.NumberValue)
				}
			default:
				if ok {
					t.Errorf("%s %s = %q, want nothing", ns, key, got)
				}
			}
		}
	}
}

// What is there and no name is told from what is not there, and from null (issue 12, B3).
// C12: a claim is there, whatever its type.
func TestMetadata_C12_Find(t *testing.T) {
	t.Parallel()
	m := fullCheck(t)
	m.GetAttributes().MetadataContext = filterMetadata("jwt", map[string]any{
		"act": map[string]any{"sub": "staff"}, "list": []any{"a"}, "empty": map[string]any{}, "text": "", "null": nil, "half": 0.5, "no": false,
		"largest": float64(1<<53 - 1), "least": -float64(1<<53 - 1), "ambiguous": float64(1 << 53), "negative": -float64(1 << 53), "huge": 1e300, "42": 42.0, "a.b": "dotted",
	})
	var c envoy.CheckCall
	req, err := c.Read(mustMarshal(t, m))
	if err != nil {
		t.Fatal(err)
	}
	type found struct {
		value string
		is    authz.Found
	}
	for path, want := range map[string]found{
		"act": {"", authz.Other}, "act.sub": {"staff", authz.Value}, "act.iss": {"", authz.Nothing}, "list": {"", authz.Other}, "list.0": {"", authz.Other},
		"empty": {"", authz.Other}, "text": {"", authz.Value}, "null": {"", authz.Null}, "null.sub": {"", authz.Null}, "half": {"", authz.Other}, "no": {"false", authz.Value},
		"other": {"", authz.Nothing}, "text.sub": {"", authz.Other}, "largest": {"9007199254740991", authz.Value}, "least": {"-9007199254740991", authz.Value},
		"ambiguous": {"", authz.Other}, "negative": {"", authz.Other}, "huge": {"", authz.Other}, "42": {"42", authz.Value}, "a.b": {"", authz.Nothing},
	} {
		if value, is := req.Metadata.Find("jwt", strings.Split(path, ".")); value != want.value || is != want.is {
			t.Errorf("%s: %q, %v, want %v", path, value, is, want)
		}
	}
	if v, is := req.Metadata.Find("jwt", []string{"a.b"}); v != "dotted" || is != authz.Value {
		t.Errorf("a name with a dot: %q, %v", v, is)
	}
	if _, is := req.Metadata.Find("jwt", nil); is != authz.Other {
		t.Errorf("the namespace: %v", is)
	}
	for _, path := range [][]string{{"act"}, nil} {
		if _, is := req.Metadata.Find("other", path); is != authz.Nothing {
			t.Errorf("%v in a namespace that is not there: %v", path, is)
		}
	}
}

// Metadata that cannot be read is not metadata without a claim.
func TestMetadata_Malformed(t *testing.T) {
	t.Parallel()
	for _, part := range []string{"\x0a\x05\x0a\x03jwt\x12", "\x0a\x0a\x0a\x03jwt\x12\x03\x0a\xffx", "\x0a\x09\x0a\x03jwt\x12\x02\x0a\x05"} {
		if _, is := envoy.NewMetadata([]byte(part)).Find("jwt", []string{"org"}); is != authz.Other {
			t.Errorf("%q: %v", part, is)
		}
	}
}

// The address of the client is that of the socket; pipes have none (issue 12, B5).
func TestReadCheck_ClientAddress(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		address *corev3.Address
		want    string
	}{
		{&corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{Address: "203.0.113.7", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 41000}}}}, "203.0.113.7"},
		{&corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: "/run/x"}}}, ""},
		{nil, ""},
	} {
		var c envoy.CheckCall
		req, err := c.Read(mustMarshal(t, &authv3.CheckRequest{Attributes: &authv3.AttributeContext{Source: &authv3.AttributeContext_Peer{Address: tt.address, Principal: "p"}}}))
		if err != nil || req.Address != tt.want || req.Peer != "p" {
			t.Errorf("%v: address %q, peer %q, %v", tt.address, req.Address, req.Peer, err)
		}
		c.Release()
		if req.Address != "" {
			t.Errorf("%q outlived its call", req.Address)
		}
	}
}
