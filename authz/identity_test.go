package authz_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/plan"
)

// claims is verified metadata as a test writes it: "namespace:a.b" to a value.
type claims map[string]string

// Values that begin with "!" are what they say there is.
func (c claims) Find(namespace string, path []string) (string, authz.Found) {
	switch v, ok := c[namespace+":"+strings.Join(path, ".")]; {
	case !ok:
		return "", authz.Nothing
	case v == "!null":
		return "", authz.Null
	case v == "!other":
		return "", authz.Other
	default:
		return v, authz.Value
	}
}

func identityApp(sources, more string) string {
	return `
apiVersion: mete/v1
kind: App
metadata: {name: api}
spec:
  time_zone: UTC
  identity:
    tenant: ` + sources + "\n" + indent(indent(more)) + planDoc("free", monthly("1000", "")) + tenantDoc("org:a", "{plan: free}")
}

func with(name, value string) authz.Request {
	return authz.Request{Method: "GET", Path: "/", Headers: []authz.Field{{Name: name, Value: value}}}
}

func TestIdentity_APIKey_C035(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, identityApp("[{api_key: authorization}, {api_key: x-api-key}, {request_header: x-owner}]", "")+
			credentialDoc("mk_good", `{tenant: "org:a", principal: u_1}`)+
			credentialDoc("mk_off", `{tenant: "org:a", disabled: true}`)+
			credentialDoc("mk_old", `{tenant: "org:a", expires: "2000-01-01T12:00:00Z"}`))
		dec := k.must(with("x-api-key", "mk_good"), authz.Allowed)
		if dec.Tenant != "org:a" || dec.Principal != "u_1" {
			t.Errorf("tenant %q, principal %q", dec.Tenant, dec.Principal)
		}
		k.must(with("authorization", "Bearer mk_good"), authz.Allowed)
		k.must(with("x-api-key", "mk_old"), authz.Allowed) // synctest begins at 2000-01-01
		time.Sleep(13 * time.Hour)
		for _, bad := range []string{"mk_bad", "mk_off", "mk_old", "mk_good ", strings.Repeat("k", 5000)} {
			dec := k.must(with("x-api-key", bad), authz.Unauthenticated)
			if strings.Contains(dec.Why, bad) {
				t.Error("the answer repeats the key")
			}
			if len(dec.Limits) != 0 {
				t.Error("a refusal before the caller is verified tells of limits")
			}
		}
		// A bad key is not helped by a header that the app trusts.
		mixed := with("x-api-key", "mk_bad")
		mixed.Headers = append(mixed.Headers, authz.Field{Name: "x-owner", Value: "org:a"})
		k.must(mixed, authz.Unauthenticated)
		// Another scheme is no API key, so the next source is asked.
		basic := with("authorization", "Basic Zm9v")
		basic.Headers = append(basic.Headers, authz.Field{Name: "x-owner", Value: "org:a"})
		k.must(basic, authz.Allowed)
		k.remove(plan.KindCredential, credentialName(t, "mk_good"))
		k.must(with("x-api-key", "mk_good"), authz.Unauthenticated)
	})
}

func credentialName(t *testing.T, key string) string {
	t.Helper()
	docs, _ := plan.Decode("", []byte(credentialDoc(key, `{tenant: "org:a"}`)))
	return docs[0].Name
}

func TestIdentity_OtherSources(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for name, test := range map[string]struct {
			source string
			req    authz.Request
			want   authz.Outcome
		}{
			"trusted header":    {`[{request_header: X-Owner}]`, with("x-owner", "org:a"), authz.Allowed},
			"untrusted header":  {`[{request_header: x-other}]`, with("x-owner", "org:a"), authz.Unauthenticated},
			"empty header C028": {`[{request_header: x-owner}]`, with("x-owner", ""), authz.Unauthenticated},
			"jwt claim": {`[{jwt_claim: org.id}]`, authz.Request{
				Metadata: claims{"envoy.filters.http.jwt_authn:payload.org.id": "org:a"},
			}, authz.Allowed},
			"jwt claim at the top": {`[{jwt_claim: org_id}]`, authz.Request{
				Metadata: claims{"envoy.filters.http.jwt_authn:org_id": "org:a"},
			}, authz.Allowed},
			"claim without metadata": {`[{jwt_claim: org_id}]`, authz.Request{}, authz.Unauthenticated},
			"metadata": {`[{metadata: "my.filter:caller.org"}]`, authz.Request{
				Metadata: claims{"my.filter:caller.org": "org:a"},
			}, authz.Allowed},
			"peer":       {`[{peer_spiffe_id: "org:*"}]`, authz.Request{Peer: "org:a"}, authz.Allowed},
			"other peer": {`[{peer_spiffe_id: "spiffe://x/*"}]`, authz.Request{Peer: "org:a"}, authz.Unauthenticated},
			"context extension": {`[{context_extension: owner}]`, authz.Request{
				Extensions: []authz.Field{{Name: "owner", Value: "org:a"}},
			}, authz.Allowed},
			"unknown tenant": {`[{request_header: x-owner}]`, with("x-owner", "org:b"), authz.TenantUnknown},
		} {
			k := newDesk(t, identityApp(test.source, ""))
			if dec := k.ask(test.req); dec.Outcome != test.want {
				t.Errorf("%s: %q (%s), want %q", name, dec.Outcome.Word(), dec.Why, test.want.Word())
			}
		}
	})
}

func TestIdentity_R14_C028_AnonymousAsTheAppSays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, identityApp("[{request_header: x-owner}]", "without_tenant: allow"))
		for range 3 {
			dec := k.must(authz.Request{Path: "/"}, authz.Exempt)
			if dec.Tenant != "" || len(dec.Limits) != 0 {
				t.Fatalf("an anonymous caller is counted: %q %s", dec.Tenant, show(dec))
			}
		}
		k.must(with("x-owner", "org:unknown"), authz.Exempt) // R13
		if n := k.d.Stats().Tenants; n > 1 {
			t.Errorf("%d tenants kept", n)
		}
	})
}

func TestIdentity_C022_NameSpacesDoNotOverlap(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		one := "per_hour: {kind: rate, amount: 1, window: 1h}"
		k := newDesk(t, app("")+planDoc("free", one)+tenantDoc("org:x", "{plan: free}")+tenantDoc("project:x", "{plan: free}")+tenantDoc("ip:203.0.113.7", "{plan: free}"))
		for _, tenant := range []string{"org:x", "project:x", "ip:203.0.113.7"} {
			k.must(from(tenant), authz.Allowed)
			k.must(from(tenant), authz.RateLimited)
		}
	})
}

func TestIdentity_Classes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, `
apiVersion: mete/v1
kind: App
metadata: {name: api}
spec:
  time_zone: UTC
  identity:
    tenant: [{api_key: x-api-key}]
    classes:
      - {name: service, when: {peer_spiffe_id: "spiffe://example.org/*"}, meter: false, check: false, reason: service to service is free}
      - {name: automation, when: {credential_prefix: [sa_]}}
      - {name: people}
`+planDoc("dev", `people: {kind: quota, amount: 2, classes: [people], reset: {calendar: day}}
automation: {kind: quota, amount: 1, classes: [automation], reset: {calendar: day}}`)+tenantDoc("org:a", "{plan: dev}")+
			credentialDoc("sa_1", `{tenant: "org:a"}`)+credentialDoc("mk_1", `{tenant: "org:a"}`))
		k.must(with("x-api-key", "sa_1"), authz.Allowed)
		k.must(with("x-api-key", "sa_1"), authz.QuotaExceeded)
		k.must(with("x-api-key", "mk_1"), authz.Allowed)
		k.must(with("x-api-key", "mk_1"), authz.Allowed)
		k.must(with("x-api-key", "mk_1"), authz.QuotaExceeded)
		service := with("x-api-key", "mk_1")
		service.Peer = "spiffe://example.org/ns/x/sa/y"
		if dec := k.must(service, authz.Exempt); dec.Class != "service" {
			t.Errorf("class %q", dec.Class)
		}
	})
}

// An app that was never valid is no answer, whether it is named or no other is there; a
// host that no app is for is one (issue 12, C1).
func TestDecide_C117_AnUnknownHostIsAnswered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		at := func(host, name string) authz.Request {
			return authz.Request{Host: host, Path: "/", Extensions: []authz.Field{{Name: "mete-app", Value: name}}}
		}
		hosts := func(name, envoy string) string {
			return strings.Replace(app(envoy), "name: api", "name: "+name, 1)
		}
		k := newDesk(t, hosts("api", ""))
		k.must(at("nobody.example", ""), authz.Unauthenticated)
		k.put(hosts("two", "envoy: {hosts: [two.example.com]}"))
		k.must(at("nobody.example", ""), authz.Unauthenticated) // by api, as before
		k.put(hosts("three", "envoy: {domain: three}"))
		k.must(at("nobody.example", ""), authz.NoApp)
		k.must(at("two.example.com:443", ""), authz.Unauthenticated)
		k.must(at("nobody.example", "three"), authz.Unauthenticated)
		k.must(at("two.example.com", "four"), authz.NoApp)
		k.put(hosts("star", "envoy: {hosts: ['*']}"))
		if dec := k.must(at("nobody.example", ""), authz.Unauthenticated); dec.App == nil || dec.App.Name != "star" {
			t.Errorf("app %+v", dec.App)
		}
		for _, name := range []string{"api", "two", "three", "star"} {
			k.remove(plan.KindApp, name)
		}
		k.must(at("nobody.example", ""), authz.NoApp)
		k.catalog.PutBroken(plan.KindApp, "bad", 99, "app bad has never been valid", nil)
		k.publish()
		k.must(at("nobody.example", ""), authz.NotReady)
		k.must(at("nobody.example", "bad"), authz.NotReady)
		k.put(hosts("two", "envoy: {hosts: [two.example.com]}"))
		k.must(at("nobody.example", ""), authz.NoApp)
		k.must(at("two.example.com", "bad"), authz.NotReady)
	})
}

func TestDecide_C117_NothingIsDecidedWithoutDocuments(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, app(""))
		other := from("org:a")
		other.App = "other"
		k.must(other, authz.NoApp)
		var zero authz.Decision
		if zero.Outcome.Admits() {
			t.Error("the zero Decision admits")
		}
	})
}

// Two lines of one header are one list in either form of Envoy's headers, and a list
// is nobody's key.
func TestIdentity_TwoLinesOfOneHeader(t *testing.T) {
	t.Parallel()
	k := newDesk(t, identityApp("[{api_key: x-api-key}, {request_header: x-tenant}]", "")+
		credentialDoc("good", "{tenant: \"org:a\"}")+tenantDoc("org:a", "{}"))
	two := func(name, one, other string) authz.Request {
		return authz.Request{Headers: []authz.Field{{Name: name, Value: one}, {Name: "accept", Value: "*/*"}, {Name: name, Value: other}}}
	}
	k.must(two("x-api-key", "good", "bad"), authz.Unauthenticated)
	k.must(two("x-api-key", "bad", "good"), authz.Unauthenticated)
	k.must(two("x-api-key", "", "good"), authz.Unauthenticated)
	k.must(two("x-api-key", "good", "good"), authz.Allowed)
	k.must(two("x-tenant", "org:a", "org:b"), authz.Unauthenticated)
	k.must(two("x-tenant", "org:a", "org:a"), authz.Allowed)
}

// A principal is sent on and logged, so that it is bounded. A shorter one would be
// somebody else.
func TestIdentity_AHugePrincipalIsRefused(t *testing.T) {
	t.Parallel()
	k := newDesk(t, strings.Replace(app(""), "[{request_header: x-tenant}]", "[{request_header: x-tenant}], principal: [{request_header: x-user}]", 1)+tenantDoc("org:a", "{}"))
	req := from("org:a")
	req.Headers = append(req.Headers, authz.Field{Name: "x-user", Value: strings.Repeat("u", 2048)})
	if dec := k.must(req, authz.Allowed); len(dec.Principal) != 2048 {
		t.Errorf("principal of %d bytes", len(dec.Principal))
	}
	req.Headers[1].Value += "u"
	k.must(req, authz.Unauthenticated)
}
