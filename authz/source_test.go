package authz_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/plan"
)

// claimed is a request with a claim org, if that is not "-", and a header x-owner.
func claimed(org, owner string) authz.Request {
	req := with("x-owner", owner)
	if owner == "-" {
		req.Headers = nil
	}
	if org != "-" {
		req.Metadata = claims{"envoy.filters.http.jwt_authn:payload.org": org, "envoy.filters.http.jwt_authn:": "!other"}
	}
	return req
}

// A claim that is there and no name is helped by nothing (issue 12, B3).
func TestIdentity_AMalformedClaimIsHelpedByNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const header, key, addr = "[{jwt_claim: org}, {request_header: x-owner}]", "[{jwt_claim: org}, {api_key: x-owner}]", "[{jwt_claim: org}, {client_address: {}}]"
		for _, tt := range []struct {
			sources, org, owner string
			want                authz.Outcome
		}{
			{header, "-", "org:a", authz.Allowed},
			{header, "org:a", "org:b", authz.Allowed},
			{header, "!other", "org:a", authz.Unauthenticated},
			{header, "!other", "-", authz.Unauthenticated},
			{header, "!null", "org:a", authz.Unauthenticated},
			{header, "!null", "-", authz.Unauthenticated},
			{header, "", "org:a", authz.Unauthenticated},
			{"[{jwt_claim: org}]", "!null", "org:a", authz.Exempt},
			{"[{jwt_claim: org}]", "!other", "org:a", authz.Unauthenticated},
			{key, "!null", "mk_1", authz.Allowed},
			{key, "!null", "-", authz.Exempt},
			{key, "", "mk_1", authz.Allowed},
			{key, "!other", "mk_1", authz.Unauthenticated},
			{addr, "!null", "-", authz.Allowed},
			{addr, "!other", "-", authz.Unauthenticated},
			{"[{metadata: 'envoy.filters.http.jwt_authn:payload.org'}, {request_header: x-owner}]", "!other", "org:a", authz.Unauthenticated},
			{"[{metadata: 'envoy.filters.http.jwt_authn:payload.org'}, {request_header: x-owner}]", "!null", "org:a", authz.Unauthenticated},
			{"[{jwt_claim: org}, {api_key: x-key}, {request_header: x-owner}]", "!null", "org:a", authz.Unauthenticated},
		} {
			k := newDesk(t, identityApp(tt.sources, "without_tenant: allow")+credentialDoc("mk_1", `{tenant: "org:a"}`)+tenantDoc("ip:203.0.113.7", "{plan: free}"))
			req := claimed(tt.org, tt.owner)
			req.Address = "203.0.113.7"
			if dec := k.ask(req); dec.Outcome != tt.want {
				t.Errorf("%s: claim %q, header %q: %s (%s), want %s", tt.sources, tt.org, tt.owner, dec.Outcome.Word(), dec.Why, tt.want.Word())
			}
		}
	})
}

// The principal is sent on as verified, so the same holds for it.
func TestIdentity_AMalformedPrincipalIsHelpedByNothing(t *testing.T) {
	t.Parallel()
	k := newDesk(t, identityApp("[{context_extension: owner}]", `principal: [{jwt_claim: org}, {request_header: x-owner}]`))
	for org, want := range map[string]authz.Outcome{"-": authz.Allowed, "u1": authz.Allowed, "!other": authz.Unauthenticated, "!null": authz.Unauthenticated, "": authz.Unauthenticated} {
		req := claimed(org, "victim")
		req.Extensions = []authz.Field{{Name: "owner", Value: "org:a"}}
		if dec := k.ask(req); dec.Outcome != want || want == authz.Allowed && dec.Principal != map[string]string{"-": "victim"}[org]+strings.TrimPrefix(org, "-") {
			t.Errorf("claim %q: %s, principal %q (%s)", org, dec.Outcome.Word(), dec.Principal, dec.Why)
		}
	}
}

// A claim's name may have dots of its own, as those of Auth0 do.
func TestIdentity_AClaimWithDotsInItsName(t *testing.T) {
	t.Parallel()
	k := newDesk(t, identityApp("[{jwt_claim: 'https://example.com/org'}]", ""))
	req := authz.Request{Metadata: claims{"envoy.filters.http.jwt_authn:payload.https://example.com/org": "org:a"}}
	k.must(req, authz.Allowed)
}

// What is not a name, or a list of them, is no new customer on the default plan (issue 12, B4).
func TestIdentity_AListIsNobody(t *testing.T) {
	t.Parallel()
	k := newDesk(t, strings.Replace(
		identityApp("[{request_header: x-owner}]", ""), "spec:\n", "spec:\n  defaults: {plan: free}\n", 1))
	k.must(with("x-owner", "org:new"), authz.Allowed)
	for _, value := range []string{"org:a,z", "org:a, org:b", ",", " org:a", "org:a ", "org:\x00a", "org:a\n", "\xff", "org:\u0085", "\u00a0org:a", strings.Repeat("x", 257)} {
		if dec := k.must(with("x-owner", value), authz.Unauthenticated); dec.Tenant != "" {
			t.Errorf("%q: tenant %q", value, dec.Tenant)
		}
	}
	two := with("x-owner", "org:a")
	two.Headers = append(two.Headers, authz.Field{Name: "x-owner", Value: "z"})
	k.must(two, authz.Unauthenticated)
	said := authz.Request{App: "api", Tenant: "org:a,z"} // by the rate limit service
	k.must(said, authz.Unauthenticated)
	if n := k.d.Stats().Tenants; n != 1 {
		t.Errorf("%d tenants are kept", n)
	}
}

// Names are as the callers' identity provider has them, or shaped (issue 12, B5).
func TestIdentity_NamesAsTheyAre(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ source, value, want string }{
		{"{jwt_claim: org}", "globex", "globex"},
		{"{jwt_claim: org}", "auth0|5f7c8ec7c33c6c004bbafe82", "auth0|5f7c8ec7c33c6c004bbafe82"},
		{"{jwt_claim: org}", "7d444840-9dc0-11d1-b245-5ffdce74fad2", "7d444840-9dc0-11d1-b245-5ffdce74fad2"},
		{"{jwt_claim: org}", "Müller & Söhne", "Müller & Söhne"},
		{"{jwt_claim: org, as: 'org:{}'}", "globex", "org:globex"},
		{"{jwt_claim: org, as: '{}@eu'}", "globex", "globex@eu"},
		{"{jwt_claim: org, as: '{}'}", "org:globex", "org:globex"},
		{"{jwt_claim: org, as: 'org:{}'}", strings.Repeat("g", 252), "org:" + strings.Repeat("g", 252)},
		{"{jwt_claim: org, as: 'org:{}'}", strings.Repeat("g", 253), ""},
		{"{jwt_claim: org, as: 'org:{}'}", " globex", ""},
		{"{jwt_claim: org, as: 'org:{}'}", "a,b", ""},
	} {
		k := newDesk(t, strings.Replace(identityApp("["+tt.source+"]", ""), "spec:\n", "spec:\n  defaults: {plan: free}\n", 1))
		dec := k.ask(claimed(tt.value, "-"))
		if dec.Tenant != tt.want || dec.Outcome.Admits() != (tt.want != "") {
			t.Errorf("%s of %.40q: tenant %.40q, %s (%s)", tt.source, tt.value, dec.Tenant, dec.Outcome.Word(), dec.Why)
		}
		if tt.want == "" {
			continue
		}
		k.put(tenantDoc(strings.ReplaceAll(tt.want, `"`, `\"`), "{plan: none}") + planDoc("none", "shut: {kind: quota, amount: 0, reset: {calendar: month}}"))
		k.must(claimed(tt.value, "-"), authz.QuotaExceeded) // its own document holds
	}
}

func TestIdentity_PeersByTheirPattern(t *testing.T) {
	t.Parallel()
	k := newDesk(t, identityApp(`[{peer_spiffe_id: "spiffe://partners.example/{name}", as: "partner:{name}"}, {request_header: x-owner}]`, "")+
		tenantDoc("partner:acme", "{plan: free}"))
	for peer, want := range map[string]string{
		"spiffe://partners.example/acme": "partner:acme", "spiffe://partners.example/acme/x": "org:a", "spiffe://partners.example/": "org:a", "spiffe://evil.example/acme": "org:a", "": "org:a",
	} {
		req := with("x-owner", "org:a")
		req.Peer = peer
		if dec := k.must(req, authz.Allowed); dec.Tenant != want {
			t.Errorf("%q: tenant %q, want %q", peer, dec.Tenant, want)
		}
	}
}

func TestIdentity_ClientAddress(t *testing.T) {
	t.Parallel()
	k := newDesk(t,
		strings.Replace(identityApp("[{api_key: x-api-key}, {client_address: {v4: 24, v6: 64}}]", "principal: [{client_address: {v6: 128}}]"), "spec:\n", "spec:\n  defaults: {plan: free}\n", 1))
	for address, want := range map[string][2]string{
		"203.0.113.7":          {"ip:203.0.113.0/24", "ip:203.0.113.7"},
		"::ffff:203.0.113.9":   {"ip:203.0.113.0/24", "ip:203.0.113.9"},
		"2001:db8:0:1:2:3:4:5": {"ip:2001:db8:0:1::/64", "ip:2001:db8:0:1:2:3:4:5"},
		"fe80::1%eth0":         {"ip:fe80::/64", "ip:fe80::1"},
	} {
		if dec := k.must(authz.Request{Address: address}, authz.Allowed); [2]string{dec.Tenant, dec.Principal} != want {
			t.Errorf("%s: tenant %q, principal %q, want %q", address, dec.Tenant, dec.Principal, want)
		}
	}
	for _, address := range []string{"", "/run/envoy.sock", "203.0.113", "203.0.113.7:80"} {
		k.must(authz.Request{Address: address}, authz.Unauthenticated)
	}
	bad := with("x-api-key", "mk_bad")
	bad.Address = "203.0.113.7"
	k.must(bad, authz.Unauthenticated)
}

// Names that are put together cost no memory.
func TestIdentity_ShapesAllocateNothing(t *testing.T) {
	for name, source := range map[string]string{
		"claim": "{jwt_claim: org.id, as: 'x:{}'}", "peer": "{peer_spiffe_id: 'spiffe://p/{name}', as: 'x:{name}'}", "address": "{client_address: {v6: 64}}",
	} {
		k := newDesk(t, strings.Replace(identityApp("["+source+"]", ""), "spec:\n", "spec:\n  defaults: {plan: fast}\n", 1)+planDoc("fast", "per_second: {kind: rate, amount: 1000000000, window: 1s}"))
		req := &authz.Request{Metadata: orgClaim{}, Peer: "spiffe://p/acme", Address: "2001:db8::1"}
		dec := new(authz.Decision)
		dec.Reset()
		if n := testing.AllocsPerRun(100, func() {
			dec.Reset()
			k.d.Decide(context.Background(), time.Now(), req, dec)
		}); n != 0 || dec.Outcome != authz.Allowed {
			t.Errorf("%s: %v allocations for %s of %q", name, n, dec.Outcome.Word(), dec.Tenant)
		}
	}
}

// A key does not outlive its tenant under the default plan (issue 12, B5); one whose
// tenant was never valid is decided by on_unavailable.
func TestIdentity_AKeyOfADeletedTenant(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, strings.Replace(identityApp("[{api_key: x-api-key}]", ""), "spec:\n", "spec:\n  defaults: {plan: free, on_unavailable: deny}\n", 1)+credentialDoc("mk_1", `{tenant: "org:a"}`))
		k.must(with("x-api-key", "mk_1"), authz.Allowed)
		k.remove(plan.KindTenant, "org:a")
		if dec := k.must(with("x-api-key", "mk_1"), authz.Unauthenticated); dec.Why != "the API key in x-api-key belongs to a tenant that is not there any more" {
			t.Errorf("why: %s", dec.Why)
		}
		k.put(tenantDoc("org:a", "{}"))
		k.must(with("x-api-key", "mk_1"), authz.Allowed)
		k.remove(plan.KindTenant, "org:a")
		k.catalog.PutBroken(plan.KindTenant, "org:a", 99, "tenant org:a has never been valid", nil)
		k.publish()
		k.must(with("x-api-key", "mk_1"), authz.Unavailable)
	})
}

// A 401 says what was looked for and where, and repeats nothing that was sent (issue 12, B7).
func TestIdentity_A401SaysWhatWasLookedFor(t *testing.T) {
	t.Parallel()
	k := newDesk(t, identityApp("[{api_key: authorization}, {api_key: x-api-key}, {jwt_claim: org}, {metadata: 'my.filter:caller.org'}, {request_header: x-owner}, {peer_spiffe_id: 'spiffe://a/*'}, {context_extension: owner}, {client_address: {}}]", "")+
		credentialDoc("mk_off", `{tenant: "org:a", disabled: true}`))
	const first = "the request carries no identity: no API key in authorization, no API key in x-api-key, no claim org in the metadata of envoy.filters.http.jwt_authn"
	const rest = ", no header x-owner, no client certificate of spiffe://a/*, no context extension owner, no client address"
	for name, tt := range map[string]struct {
		req  authz.Request
		want string
	}{
		"nothing":            {authz.Request{}, first + ", of which Envoy has sent nothing, no value caller.org in the metadata of my.filter, of which Envoy has sent nothing" + rest},
		"a JWT without org":  {authz.Request{Metadata: claims{"envoy.filters.http.jwt_authn:": "!other"}}, first + ", no value caller.org in the metadata of my.filter, of which Envoy has sent nothing" + rest},
		"an unknown key":     {with("x-api-key", "secret"), "the API key in x-api-key is not known"},
		"a disabled key":     {with("authorization", "bearer mk_off"), "the API key in authorization is disabled"},
		"a list of names":    {with("x-owner", "secret,secret"), "the header x-owner holds no name, or several"},
		"a malformed claim":  {claimed("!other", "-"), "the claim org in the metadata of envoy.filters.http.jwt_authn is not a name"},
		"a null claim":       {claimed("!null", "secret"), "the claim org in the metadata of envoy.filters.http.jwt_authn says that there is none, and a request header must not say otherwise"},
		"two lines of a key": {authz.Request{Headers: []authz.Field{{Name: "x-api-key", Value: "secret"}, {Name: "x-api-key", Value: "secret2"}}}, "the API key in x-api-key comes in several lines"},
	} {
		if dec := k.must(tt.req, authz.Unauthenticated); dec.Why != tt.want || strings.Contains(dec.Why, "secret") {
			t.Errorf("%s: got\n%s, want\n%s", name, dec.Why, tt.want)
		}
	}
}
