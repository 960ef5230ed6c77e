package envoy_test

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rlsdesc "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/envoy"
	"github.com/meteproject/mete/plan"
)

func mustMarshal(tb testing.TB, m proto.Message) []byte {
	tb.Helper()
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// fullCheck is a CheckRequest with everything that mete reads.
func fullCheck(tb testing.TB) *authv3.CheckRequest {
	tb.Helper()
	claims, err := structpb.NewStruct(map[string]any{
		"payload": map[string]any{"org": "acme", "n": 42, "half": 1.5, "admin": true, "list": []any{"x"}, "none": nil},
	})
	if err != nil {
		tb.Fatal(err)
	}
	return &authv3.CheckRequest{Attributes: &authv3.AttributeContext{
		Source:      &authv3.AttributeContext_Peer{Principal: "spiffe://prod/ns/web", Service: "web"},
		Destination: &authv3.AttributeContext_Peer{Principal: "spiffe://prod/ns/not-this"},
		Request: &authv3.AttributeContext_Request{
			Time: timestamppb.New(noon.Add(123 * time.Nanosecond)),
			Http: &authv3.AttributeContext_HttpRequest{
				Id: "7", Method: "POST", Path: "/v1/things?q=1", Host: "api.example.com", Scheme: "https", Size: 12, Protocol: "HTTP/2",
				Headers: map[string]string{"x-api-key": "k_1", "content-type": "application/json", ":path": "/v1/things?q=1"},
			},
		},
		ContextExtensions: map[string]string{"mete-app": "shop", "Case": "Kept"},
		MetadataContext:   &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{"envoy.filters.http.jwt_authn": claims}},
	}}
}

func TestReadCheck(t *testing.T) {
	var c envoy.CheckCall
	req, err := c.Read(mustMarshal(t, fullCheck(t)))
	if err != nil {
		t.Fatal(err)
	}
	if req.Peer != "spiffe://prod/ns/web" || req.Method != http.MethodPost || req.Path != "/v1/things?q=1" || req.Host != "api.example.com" {
		t.Errorf("read %+v", req)
	}
	if want := noon.Add(123 * time.Nanosecond); !req.Start.Equal(want) {
		t.Errorf("start %v, want %v", req.Start, want)
	}
	if v, ok := req.Header("x-api-key"); !ok || v != "k_1" {
		t.Errorf("x-api-key = %q, %v", v, ok)
	}
	if v, ok := req.Extension("Case"); !ok || v != "Kept" {
		t.Errorf("extension = %q, %v", v, ok)
	}
	const ns = "envoy.filters.http.jwt_authn"
	for _, tt := range []struct {
		ns, path, want string
		ok             bool
	}{
		{ns, "payload.org", "acme", true},
		{ns, "payload.n", "42", true},
		{ns, "payload.admin", "true", true},
		{ns, "payload.half", "", false},
		{ns, "payload.list", "", false},
		{ns, "payload.none", "", false},
		{ns, "payload", "", false},
		{ns, "payload.org.deeper", "", false},
		{ns, "other", "", false},
		{"elsewhere", "payload.org", "", false},
	} {
		if v, ok := (finder{req.Metadata}).Lookup(tt.ns, strings.Split(tt.path, ".")); v != tt.want || ok != tt.ok {
			t.Errorf("Lookup(%s, %s) = %q, %v, want %q, %v", tt.ns, tt.path, v, ok, tt.want, tt.ok)
		}
	}
	if _, ok := (finder{req.Metadata}).Lookup(ns, nil); ok {
		t.Error("an empty path found something")
	}
	c.Release()
	if req.Host != "" || len(req.Headers) != 0 || len(req.Extensions) != 0 || !req.Start.IsZero() {
		t.Errorf("after release: %+v", req)
	}
	if _, ok := (finder{c.Metadata()}).Lookup(ns, []string{"payload", "org"}); ok {
		t.Error("metadata outlived its call")
	}
}

// Envoy with encode_raw_headers sends header_map alone, with duplicates.
func TestReadCheckRawHeaders(t *testing.T) {
	m := &authv3.CheckRequest{Attributes: &authv3.AttributeContext{Request: &authv3.AttributeContext_Request{
		Http: &authv3.AttributeContext_HttpRequest{HeaderMap: &corev3.HeaderMap{Headers: []*corev3.HeaderValue{
			{Key: "X-Tenant", RawValue: []byte("caf\xe9")},
			{Key: "x-tenant", Value: "second"},
			{Key: "X-Other-Name", RawValue: []byte("raw"), Value: "text"},
		}}},
	}}}
	var c envoy.CheckCall
	req, err := c.Read(mustMarshal(t, m))
	if err != nil {
		t.Fatal(err)
	}
	want := []authz.Field{{Name: "x-tenant", Value: "caf\xe9"}, {Name: "x-tenant", Value: "second"}, {Name: "x-other-name", Value: "raw"}}
	if !slices.Equal(req.Headers, want) {
		t.Errorf("headers %q, want %q", req.Headers, want)
	}
}

// A header byte that is not UTF-8 must not void the check.
func TestReadCheckNotUTF8(t *testing.T) {
	b := bytes.Replace(mustMarshal(t, fullCheck(t)), []byte("k_1"), []byte("k\xff1"), 1)
	if err := proto.Unmarshal(b, &authv3.CheckRequest{}); err == nil {
		t.Fatal("the generated types read it too: this tests nothing")
	}
	var c envoy.CheckCall
	req, err := c.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	if v, _ := req.Header("x-api-key"); v != "k\xff1" {
		t.Errorf("x-api-key = %q", v)
	}
}

func TestReadCheckMissingParts(t *testing.T) {
	for _, m := range []*authv3.CheckRequest{
		{},
		{Attributes: &authv3.AttributeContext{}},
		{Attributes: &authv3.AttributeContext{Request: &authv3.AttributeContext_Request{}, Source: &authv3.AttributeContext_Peer{}}},
		{Attributes: &authv3.AttributeContext{Request: &authv3.AttributeContext_Request{Http: &authv3.AttributeContext_HttpRequest{}}}},
	} {
		var c envoy.CheckCall
		req, err := c.Read(mustMarshal(t, m))
		if err != nil {
			t.Errorf("%v: %v", m, err)
		}
		if _, ok := (finder{req.Metadata}).Lookup("a", []string{"b"}); ok {
			t.Errorf("%v: found metadata", m)
		}
		c.Release()
	}
}

func field(num protowire.Number, content ...byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), content)
}

func TestReadCheckWrong(t *testing.T) {
	varint := func(num protowire.Number) []byte {
		return protowire.AppendVarint(protowire.AppendTag(nil, num, protowire.VarintType), 5)
	}
	http := func(content []byte) []byte { return field(1, field(4, field(2, content...)...)...) }
	for name, tt := range map[string]struct {
		in   []byte
		want string
	}{
		"attributes":  {varint(1), "CheckRequest.attributes: wrong wire type"},
		"source":      {field(1, varint(1)...), "attributes.source: wrong wire type"},
		"principal":   {field(1, field(1, varint(4)...)...), "attributes.source.principal: wrong wire type"},
		"path":        {http(varint(4)), "attributes.request.http.path: wrong wire type"},
		"header":      {http(field(3, varint(2)...)), "attributes.request.http.headers.value: wrong wire type"},
		"seconds":     {field(1, field(4, field(1, field(1, 'x')...)...)...), "attributes.request.time.seconds: wrong wire type"},
		"cut off":     {[]byte{0x0a, 0x05, 1}, "CheckRequest: the message is cut off"},
		"one short":   {[]byte{0x0a, 0x02, 1}, "CheckRequest: the message is cut off"},
		"group":       {[]byte{0x0b, 0x08, 0x01}, "CheckRequest: the message is cut off"},
		"bad tag":     {[]byte{0x07}, "CheckRequest: the message is cut off"},
		"wire type 6": {[]byte{0x0e}, "CheckRequest: the message is cut off"},
	} {
		t.Run(name, func(t *testing.T) {
			var c envoy.CheckCall
			if _, err := c.Read(tt.in); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestReadUnknownFieldsAreSkipped(t *testing.T) {
	b := mustMarshal(t, fullCheck(t))
	b = protowire.AppendVarint(protowire.AppendTag(b, 99, protowire.VarintType), 1)
	b = protowire.AppendFixed32(protowire.AppendTag(b, 98, protowire.Fixed32Type), 1)
	b = append(b, field(97, 1, 2, 3)...)
	b = protowire.AppendTag(protowire.AppendTag(b, 96, protowire.StartGroupType), 96, protowire.EndGroupType)
	var c envoy.CheckCall
	if req, err := c.Read(b); err != nil || req.Method != http.MethodPost {
		t.Errorf("method %q, %v", req.Method, err)
	}
}

func limitRequest(domain string, hits uint32, ds ...*rlsdesc.RateLimitDescriptor) *ratelimitv3.RateLimitRequest {
	return &ratelimitv3.RateLimitRequest{Domain: domain, HitsAddend: hits, Descriptors: ds}
}

// descriptor takes keys and values in turn.
func descriptor(pairs ...string) *rlsdesc.RateLimitDescriptor {
	d := &rlsdesc.RateLimitDescriptor{}
	for i := 0; i < len(pairs); i += 2 {
		d.Entries = append(d.Entries, &rlsdesc.RateLimitDescriptor_Entry{Key: pairs[i], Value: pairs[i+1]})
	}
	return d
}

func withHits(d *rlsdesc.RateLimitDescriptor, n uint64) *rlsdesc.RateLimitDescriptor {
	d.HitsAddend = wrapperspb.UInt64(n)
	return d
}

func TestReadRateLimit(t *testing.T) {
	in := limitRequest("edge", 3,
		descriptor("tenant", "org:a", "route", "upload", "tenant", "org:second"),
		withHits(descriptor("tenant", "org:b", "method", "GET", "path", "/x"), 0),
		withHits(descriptor("tenant", "org:c", "other", "z"), 7),
		descriptor(),
		withHits(descriptor("tenant", "org:d"), 18446744073709551615))
	domain, hits, items, err := envoy.ReadRateLimit(mustMarshal(t, in))
	if err != nil || domain != "edge" || hits != 3 {
		t.Fatalf("domain %q, hits %d, %v", domain, hits, err)
	}
	want := []envoy.Descriptor{
		{NamesTenant: true, Tenant: "org:a", Route: "upload", Entries: `"tenant"="org:a" "route"="upload" "tenant"="org:second" `},
		{NamesTenant: true, Tenant: "org:b", Method: "GET", Path: "/x", Own: true, Entries: `"tenant"="org:b" "method"="GET" "path"="/x" `},
		{NamesTenant: true, Tenant: "org:c", Hits: 7, Own: true, Entries: `"tenant"="org:c" "other"="z" `},
		{},
		{NamesTenant: true, Tenant: "org:d", Hits: plan.MaxAmount, Own: true, Entries: `"tenant"="org:d" `},
	}
	if !slices.Equal(items, want) {
		t.Errorf("items %+v\nwant  %+v", items, want)
	}
	if _, hits, _, _ := envoy.ReadRateLimit(mustMarshal(t, limitRequest("edge", 0, descriptor()))); hits != 1 {
		t.Errorf("absent hits_addend counts %d, want 1 (C046)", hits)
	}
}

func TestReadRateLimitWrong(t *testing.T) {
	many := make([]*rlsdesc.RateLimitDescriptor, envoy.MaxDescriptors+1)
	for i := range many {
		many[i] = descriptor("k", "v")
	}
	var entries []string
	for i := range envoy.MaxEntries + 1 {
		entries = append(entries, "k"+strconv.Itoa(i), "v")
	}
	for want, in := range map[string]*ratelimitv3.RateLimitRequest{
		"domain: must not be empty":      limitRequest("", 0, descriptor("tenant", "a")),
		"descriptors: must not be empty": limitRequest("edge", 0),
	} {
		if _, _, _, err := envoy.ReadRateLimit(mustMarshal(t, in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	// Just within the bounds everything is read (C027).
	in := limitRequest("edge", 0, many[:envoy.MaxDescriptors]...)
	in.Descriptors[0] = descriptor(append(entries[:2*(envoy.MaxEntries-1):2*(envoy.MaxEntries-1)], "tenant", strings.Repeat("x", envoy.MaxText))...)
	_, _, items, err := envoy.ReadRateLimit(mustMarshal(t, in))
	if err != nil || len(items) != envoy.MaxDescriptors || len(items[0].Tenant) != envoy.MaxText {
		t.Errorf("%d items, %v", len(items), err)
	}
}

// FuzzDecodeCheck: whatever the generated types can read means the same to us,
// and nothing makes us fail otherwise than with an error.
func FuzzDecodeCheck(f *testing.F) {
	f.Add(mustMarshal(f, fullCheck(f)))
	f.Add([]byte{})
	f.Add([]byte{0x0a, 0x00})
	f.Add(field(1, field(4, field(2, field(13, field(1, field(3, 'v')...)...)...)...)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		var c envoy.CheckCall
		req, ours := c.Read(b)
		if ours == nil {
			_, _ = (finder{req.Metadata}).Lookup("envoy.filters.http.jwt_authn", []string{"payload", "org"})
		}
		c.Release()

		// From here on in the form that the generated types write: it has no
		// repeated map keys and no repeated single fields.
		var m authv3.CheckRequest
		if proto.Unmarshal(b, &m) != nil {
			return
		}
		if at := m.GetAttributes(); at.GetRequest().GetTime() != nil && !at.GetRequest().GetTime().IsValid() {
			return
		}
		if unknownInTheWay(&m) {
			return
		}
		req, err := c.Read(mustMarshal(t, &m))
		h := m.GetAttributes().GetRequest().GetHttp()
		if len(h.GetHeaders())+len(h.GetHeaderMap().GetHeaders()) > envoy.MaxFields || len(m.GetAttributes().GetContextExtensions()) > envoy.MaxFields {
			return
		}
		if err != nil {
			t.Fatalf("%v\n%v", err, &m)
		}
		compareCheck(t, req, m.GetAttributes())
	})
}

// unknownInTheWay reports whether a message holds fields that the generated types
// keep as unknown: ours may refuse one, if it has a known number and a wrong type.
func unknownInTheWay(m *authv3.CheckRequest) bool {
	at := m.GetAttributes()
	for _, p := range []proto.Message{m, at, at.GetSource(), at.GetRequest(), at.GetRequest().GetTime(), at.GetRequest().GetHttp(), at.GetRequest().GetHttp().GetHeaderMap()} {
		if len(p.ProtoReflect().GetUnknown()) > 0 {
			return true
		}
	}
	for _, h := range at.GetRequest().GetHttp().GetHeaderMap().GetHeaders() {
		if len(h.ProtoReflect().GetUnknown()) > 0 {
			return true
		}
	}
	return false
}

func compareCheck(t *testing.T, req *authz.Request, at *authv3.AttributeContext) {
	t.Helper()
	h := at.GetRequest().GetHttp()
	got := fmt.Sprintf("%q %q %q %q", req.Method, req.Path, req.Host, req.Peer)
	want := fmt.Sprintf("%q %q %q %q", h.GetMethod(), h.GetPath(), h.GetHost(), at.GetSource().GetPrincipal())
	if got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if ts := at.GetRequest().GetTime(); ts.GetSeconds() != 0 || ts.GetNanos() != 0 {
		if !req.Start.Equal(ts.AsTime()) {
			t.Errorf("start %v, want %v", req.Start, ts.AsTime())
		}
	} else if !req.Start.IsZero() {
		t.Errorf("start %v, want none", req.Start)
	}
	var headers []authz.Field
	for k, v := range h.GetHeaders() {
		headers = append(headers, authz.Field{Name: lower(k), Value: v})
	}
	for _, v := range h.GetHeaderMap().GetHeaders() {
		value := v.GetValue()
		if len(v.GetRawValue()) > 0 {
			value = string(v.GetRawValue())
		}
		headers = append(headers, authz.Field{Name: lower(v.GetKey()), Value: value})
	}
	if !sameFields(req.Headers, headers) {
		t.Errorf("headers %q, want %q", req.Headers, headers)
	}
	if len(req.Extensions) != len(at.GetContextExtensions()) {
		t.Errorf("extensions %q, want %q", req.Extensions, at.GetContextExtensions())
	}
	for k, v := range at.GetContextExtensions() {
		if got, ok := req.Extension(k); !ok || got != v {
			t.Errorf("extension %q = %q, want %q", k, got, v)
		}
	}
	compareMetadata(t, finder{req.Metadata}, at.GetMetadataContext())
}

func lower(s string) string {
	b := []byte(s)
	for i, ch := range b {
		if ch >= 'A' && ch <= 'Z' {
			b[i] = ch + 'a' - 'A'
		}
	}
	return string(b)
}

func sameFields(a, b []authz.Field) bool {
	count := func(fs []authz.Field) map[authz.Field]int {
		m := map[authz.Field]int{}
		for _, f := range fs {
			m[f]++
		}
		return m
	}
	return maps.Equal(count(a), count(b))
}

// FuzzDecodeRateLimit: the same for rate limit requests.
func FuzzDecodeRateLimit(f *testing.F) {
	f.Add(mustMarshal(f, limitRequest("edge", 3, withHits(descriptor("tenant", "org:a", "route", "r"), 7), descriptor("tenant", "b"))))
	f.Add(mustMarshal(f, limitRequest("edge", 0, descriptor())))
	f.Add(mustMarshal(f, limitRequest("edge", 0, overriding(descriptor("a", "1", "class", "people", "units", "tokens=5"), 7, 3, 2), refunding(descriptor("reservation", "R")))))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _, _, _ = envoy.ReadRateLimit(b)
		var m ratelimitv3.RateLimitRequest
		if proto.Unmarshal(b, &m) != nil {
			return
		}
		if len(m.ProtoReflect().GetUnknown()) > 0 {
			return
		}
		domain, hits, items, err := envoy.ReadRateLimit(mustMarshal(t, &m))
		if err != nil {
			if refusable(&m) {
				return // see TestReadRateLimitWrong
			}
			t.Fatalf("%v\n%v", err, &m)
		}
		if domain != m.GetDomain() || hits != max(1, int64(m.GetHitsAddend())) || len(items) != len(m.GetDescriptors()) {
			t.Fatalf("domain %q, hits %d, %d items of %v", domain, hits, len(items), &m)
		}
		for i, d := range m.GetDescriptors() {
			want := describedByStock(d)
			if items[i] != want {
				t.Errorf("item %d is %+v, want %+v", i, items[i], want)
			}
		}
	})
}

// refusable reports whether a message that the generated types can read may be refused: it
// is without what every one must have, above the bounds, or has fields of another type.
func refusable(m *ratelimitv3.RateLimitRequest) bool {
	if m.GetDomain() == "" || len(m.GetDomain()) > envoy.MaxText || len(m.GetDescriptors()) == 0 || len(m.GetDescriptors()) > envoy.MaxDescriptors {
		return true
	}
	for _, d := range m.GetDescriptors() {
		parts := []proto.Message{d, d.GetLimit(), d.GetLimit().GetUnitMultiplier(), d.GetHitsAddend()}
		for _, e := range d.GetEntries() {
			parts = append(parts, e)
			if len(e.GetKey()) > envoy.MaxText || len(e.GetValue()) > envoy.MaxText {
				return true
			}
		}
		if len(d.GetEntries()) > envoy.MaxEntries || slices.ContainsFunc(parts, func(p proto.Message) bool { return len(p.ProtoReflect().GetUnknown()) > 0 }) {
			return true
		}
	}
	return false
}

// describedByStock is a descriptor as the generated types have read it.
func describedByStock(d *rlsdesc.RateLimitDescriptor) envoy.Descriptor {
	want := envoy.Descriptor{
		Own: d.GetHitsAddend() != nil, GiveBack: d.GetIsNegativeHits(), Hits: int64(min(d.GetHitsAddend().GetValue(), plan.MaxAmount)),
		Override: d.GetLimit() != nil, Amount: d.GetLimit().GetRequestsPerUnit(), OverrideUnit: int32(d.GetLimit().GetUnit()),
		Multiplier: d.GetLimit().GetUnitMultiplier().GetValue(),
	}
	for _, e := range d.GetEntries() {
		want.Entries += fmt.Sprintf("%q=%q ", e.GetKey(), e.GetValue())
		want.Settles = want.Settles || e.GetKey() == "reservation"
		want.NamesTenant = want.NamesTenant || e.GetKey() == "tenant"
		at := map[string]*string{
			"tenant": &want.Tenant, "route": &want.Route, "method": &want.Method, "path": &want.Path, "class": &want.Class, "units": &want.Units,
			"reservation": &want.Reservation, "unit": &want.Unit, "content_type": &want.ContentType, "accept": &want.Accept,
		}[e.GetKey()]
		if at != nil && *at == "" {
			*at = e.GetValue()
		}
	}
	return want
}
