package plan_test

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/meteproject/mete/plan"
)

func TestIsTenant(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"org:acme": true, "globex": true, "auth0|5f7c": true, "spiffe://partners.example/acme": true, "a b": true, "Müller": true, "ip:2001:db8::/64": true, "名": true,
		strings.Repeat("x", 256): true, strings.Repeat("é", 128): true,
		"": false, " a": false, "a ": false, "\u00a0a": false, "a\u2003": false, "a,b": false, "é,b": false, "a\tb": false, "a\x00": false, "a\x7f": false, "é\u0085": false, "\xff": false,
		"org:\xffé": false, strings.Repeat("x", 257): false, strings.Repeat("é", 129): false,
	} {
		if plan.IsTenant(name) != want {
			t.Errorf("%.20q: got %v", name, !want)
		}
	}
}

// The two ways to read a name, for ASCII and for all of Unicode, agree.
func TestIsTenant_AsOneModel(t *testing.T) {
	t.Parallel()
	model := regexp.MustCompile(`^[^\x00-\x1f\x7f-\x{9f},\s\p{Z}]([^\x00-\x1f\x7f-\x{9f},]*[^\x00-\x1f\x7f-\x{9f},\s\p{Z}])?$`)
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.OneOf(rapid.StringMatching(`[a-z ,:\x00-\x20é\x{a0}]{0,5}`), rapid.String()).Draw(t, "name")
		if got, want := plan.IsTenant(s), len(s) <= 256 && utf8.ValidString(s) && model.MatchString(s); got != want {
			t.Fatalf("%q: got %v, want %v", s, got, want)
		}
	})
}

// source returns the first source of an App's tenant.
func source(t interface{ Fatal(...any) }, text string) *plan.Source {
	docs, problems := plan.Decode("", []byte(doc("App", "api", "{time_zone: UTC, identity: {tenant: ["+text+"]}}")))
	if len(docs) != 1 {
		t.Fatal(problems)
	}
	return &docs[0].App.Identity.Tenant[0]
}

func TestPeerPattern_AsARegexp(t *testing.T) {
	t.Parallel()
	patterns := map[string]string{
		"spiffe://a/{x}":           `^spiffe://a/([^/]+)$`,
		"spiffe://a/ns/{x}/sa/{y}": `^spiffe://a/ns/([^/]+)/sa/([^/]+)$`,
		"spiffe://{x}/b":           `^spiffe://([^/]+)/b$`,
		"spiffe://a/p-{x}-q/{y}-q": `^spiffe://a/p-([^/]+)-q/([^/]+)-q$`,
		"{x}":                      `^([^/]+)$`,
		"{x}//{y}":                 `^([^/]+)//([^/]+)$`,
	}
	for pattern, model := range patterns {
		s := source(t, "{peer_spiffe_id: '"+pattern+"', as: '{x}'}")
		re := regexp.MustCompile(model)
		rapid.Check(t, func(t *rapid.T) {
			id := rapid.OneOf(rapid.StringMatching(`(spiffe://)?[a]/(ns/|p-)?[ab/q-]{0,4}(/sa/|-q/)?[ab/q-]{0,4}`), rapid.StringMatching(`[a/]{0,5}`), rapid.StringMatching(`spiffe://[ab]{0,2}(/[ab]{0,2})?`)).Draw(t, "id")
			var groups plan.Groups
			want := re.FindStringSubmatch(id)
			if got := s.Peer.Match(id, &groups); got != (want != nil) {
				t.Fatalf("%s of %s: got %v", pattern, id, got)
			}
			if want != nil && !strings.HasPrefix(strings.Join(groups[:], "|"), strings.Join(want[1:], "|")) {
				t.Fatalf("%s of %s: groups %q, want %q", pattern, id, groups, want[1:])
			}
		})
	}
}

func TestShape_OfAValueAndItsGroups(t *testing.T) {
	t.Parallel()
	for as, want := range map[string]string{
		"{}": "spiffe://a/eu/acme", "p:{y}": "p:acme", "{y}.{x}@{y}": "acme.eu@acme", "{x}": "eu",
	} {
		s := source(t, "{peer_spiffe_id: 'spiffe://a/{x}/{y}', as: '"+as+"'}")
		var groups plan.Groups
		const id = "spiffe://a/eu/acme"
		if !s.Peer.Match(id, &groups) {
			t.Fatal("no match")
		}
		if got := string(s.As.Append(nil, id, &groups)); got != want {
			t.Errorf("%s: got %s, want %s", as, got, want)
		}
	}
}

// A tenant of the old spelling needs no level, and a wider one needs 5, wherever it is written.
func TestNeeds_WiderTenants(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		doc("Tenant", "org:acme", "{parent: 'org:b'}"):                                          "",
		doc("Tenant", "globex", "{}"):                                                           "metadata.name",
		doc("Tenant", "org:"+strings.Repeat("x", 121), "{}"):                                    "metadata.name",
		doc("Tenant", "org:acme", "{parent: globex}"):                                           "spec.parent",
		doc("Credential", strings.Repeat("0a", 32), "{tenant: globex}"):                         "spec.tenant",
		doc("Credential", strings.Repeat("0a", 32), "{tenant: 'org:acme'}"):                     "",
		doc("Plan", "free", "{limits: {a: {kind: rate, amount: 1, window: 1s}}}"):               "",
		doc("App", "api", "{time_zone: UTC, identity: {tenant: [{jwt_claim: a, as: 'o:{}'}]}}"): "spec.identity.tenant[0].as",
		doc("App", "api", "{time_zone: UTC, identity: {tenant: [{client_address: {}}]}}"):       "spec.identity.tenant[0].client_address",
		doc("App", "api", "{time_zone: UTC, identity: {tenant: [{peer_spiffe_id: 'a/*'}]}}"):    "",
	} {
		docs, problems := plan.Decode("", []byte(text))
		if len(docs) != 1 {
			t.Fatal(problems)
		}
		if level, path := docs[0].Needs(); path != want || (level == 5) != (want != "") {
			t.Errorf("got %d for %q, want %q:\n%s", level, path, want, text)
		}
	}
}
