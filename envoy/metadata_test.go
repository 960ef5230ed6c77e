package envoy_test

import (
	"strconv"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/meteproject/mete/envoy"
)

type looker interface {
	Lookup(namespace string, path []string) (string, bool)
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
				if f, err := strconv.ParseFloat(got, 64); ok && (err != nil || f != k.NumberValue) {
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

// C12: a claim is there, whatever its type; null is nothing.
func TestMetadata_C12_Has(t *testing.T) {
	t.Parallel()
	m := fullCheck(t)
	m.GetAttributes().MetadataContext = filterMetadata("jwt", map[string]any{
		"act": map[string]any{"sub": "staff"}, "list": []any{"a"}, "empty": map[string]any{}, "text": "", "null": nil, "half": 0.5, "no": false,
	})
	var c envoy.CheckCall
	req, err := c.Read(mustMarshal(t, m))
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{
		"act": true, "act.sub": true, "act.iss": false, "list": true, "empty": true, "text": true, "null": false, "half": true, "no": true, "other": false, "text.sub": false,
	} {
		if got := req.Metadata.Has("jwt", strings.Split(path, ".")); got != want {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
	if req.Metadata.Has("other", []string{"act"}) || req.Metadata.Has("jwt", nil) {
		t.Error("a namespace that is not there, or no path, has something")
	}
}
