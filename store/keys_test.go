package store_test

import (
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store"
)

func TestDocumentKeys(t *testing.T) {
	for _, c := range []struct {
		key  string
		kind plan.Kind
		name string
		ok   bool
	}{
		{"/mete/v1/plans/pro", plan.KindPlan, "pro", true},
		{"/mete/v1/plans/pro-2024", plan.KindPlan, "pro-2024", true},
		{"/mete/v1/tenants/org:acme", plan.KindTenant, "org:acme", true},
		{"/mete/v1/tenants/user:a@b.example", plan.KindTenant, "user:a@b.example", true},
		{"/mete/v1/tenants/a%2Fb", plan.KindTenant, "a/b", true},
		{"/mete/v1/tenants/a%2fb", "", "", false}, // not the one way to write it
		{"/mete/v1/tenants/a%41", "", "", false},
		{"/mete/v1/plans/pro/notes", "", "", false},
		{"/mete/v1/plans/", "", "", false},
		{"/mete/v1/plan/pro", "", "", false},
		{"/mete/v1/effective/plans/pro", "", "", false},
		{"/mete/v1/epoch", "", "", false},
		{"/mete/v2/plans/pro", "", "", false},
	} {
		kind, name, ok := store.ParseDocumentKey(c.key)
		if kind != c.kind || name != c.name || ok != c.ok {
			t.Errorf("%s: got %q %q %t, want %q %q %t", c.key, kind, name, ok, c.kind, c.name, c.ok)
		}
		if got := store.DocumentKey(c.kind, c.name); c.ok && got != c.key {
			t.Errorf("%s %s: got %s, want %s", c.kind, c.name, got, c.key)
		}
	}
}

func TestAccountKeyIsReadable(t *testing.T) {
	got := store.AccountKey(quota.Key{Root: "org:acme", Tenant: "user:jo", Limit: "monthly", Window: "2026-11"})
	if !regexp.MustCompile(`^/mete/v1/state/accounts/[0-9a-f]{2}/user:jo/monthly/2026-11$`).MatchString(got) {
		t.Error(got)
	}
}

// Accounts that exist are found by these keys, so that they are the same for ever.
func TestKeysOfTenantsAreForEver(t *testing.T) {
	t.Parallel()
	for tenant, want := range map[string]string{
		"org:acme":            "25/org:acme",
		"org:a.b_C-9":         "44/org:a.b_C-9",
		"globex":              "5b/globex",
		"auth0|5f7c":          "66/auth0|5f7c",
		"spiffe://p/acme 50%": "dc/spiffe:%2F%2Fp%2Facme%2050%25",
		"Müller":              "a7/Müller",
		"ip:2001:db8::/64":    "36/ip:2001:db8::%2F64",
	} {
		if got := store.AccountKey(quota.Key{Root: tenant, Tenant: tenant, Limit: "monthly", Window: "2026-11"}); got != "/mete/v1/state/accounts/"+want+"/monthly/2026-11" {
			t.Errorf("%s: got %s", tenant, got)
		}
		_, escaped, _ := strings.Cut(want, "/")
		key := store.DocumentKey(plan.KindTenant, tenant)
		if kind, name, ok := store.ParseDocumentKey(key); key != "/mete/v1/tenants/"+escaped || kind != plan.KindTenant || name != tenant || !ok {
			t.Errorf("%s: its document is at %s, which is that of %q", tenant, key, name)
		}
	}
}

// Any bytes: tenants that nobody declared are named by callers.
func anyString(t *rapid.T, label string) string {
	return string(rapid.SliceOfN(rapid.SampledFrom([]byte("ab/%:. 2F\x00\xff\xc3\xbc")), 0, 6).Draw(t, label))
}

func TestAccountKeysAreOneToOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := quota.Key{Tenant: anyString(t, "tenant"), Limit: anyString(t, "limit"), Window: anyString(t, "window")}
		got, ok := store.ParseAccountKey(store.AccountKey(k))
		if !ok || got != k {
			t.Fatalf("%q became %q, %t by way of %q", k, got, ok, store.AccountKey(k))
		}
	})
}

func FuzzParseAccountKey(f *testing.F) {
	f.Add("/mete/v1/state/accounts/a1/user:jo/monthly/2026-11")
	f.Add("/mete/v1/state/accounts/a1/%/%2/%2F")
	f.Fuzz(func(t *testing.T, key string) {
		k, ok := store.ParseAccountKey(key)
		if !ok {
			return
		}
		again, ok := store.ParseAccountKey(store.AccountKey(k))
		if !ok || again != k {
			t.Errorf("%q: %q became %q", key, k, again)
		}
	})
}

func TestSupportedVersions(t *testing.T) {
	for version, want := range map[string]bool{
		"3.4.42": false, "3.5.32": false, "3.5.33": true, "3.6.13": false, "3.6.14": true,
		"3.7.0": false, "3.7.1": true, "3.7.3": true, "3.8.0-rc.1": true, "4.0.0": true, "": false,
	} {
		if got := store.Supported(version); got != want {
			t.Errorf("%q: %t, want %t", version, got, want)
		}
	}
}
