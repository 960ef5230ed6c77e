package authz_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/plan"
)

// tokenOf returns a token of a tenant whose name has everything that needs care.
func tokenOf(t *testing.T) (k *desk, token string) {
	t.Helper()
	k = newDesk(t, app("defaults: {plan: free}\nunits: {tokens: {title: tokens}}")+
		planDoc("free", monthly("1000", "")+"\ntokens: {kind: quota, amount: 10000, unit: tokens, reset: {calendar: month}}")+
		routesDoc(settleDocs)).seals()
	req := at("/chat")
	req.Headers[0].Value = "org:!%|; \"é~"
	return k, k.token(k.must(req, authz.Allowed))
}

func TestToken_C134_SaysWhatWasCharged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k, token := tokenOf(t)
		for _, c := range []byte(token) {
			if c <= ' ' || c >= 0x7f {
				t.Fatalf("the token has byte %#x: %q", c, token)
			}
		}
		var r authz.Reservation
		if bad := k.d.Open(token, &r); bad != 0 {
			t.Fatalf("opened as %q", bad.Word())
		}
		if len(r.Charges) != 2 || r.App != "api" || plan.RouteName(r.Route) != "chat" || r.Number != 1 || !k.d.Here(&r) {
			t.Fatalf("the token says %+v", r)
		}
		for _, c := range r.Charges {
			if c.Node != "org:!%|; \"é~" || c.Limit == "tokens" && (c.Units != 100 || c.Unit != "tokens") || c.Limit == "monthly" && (c.Units != 1 || c.Unit != "requests") {
				t.Errorf("charge %+v", c)
			}
		}
	})
}

// An altered token settles nothing: each bit counts.
func TestToken_C134_AlteredIsForged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k, token := tokenOf(t)
		var r authz.Reservation
		for i := range len(token) {
			for bit := range 8 {
				b := []byte(token)
				b[i] ^= 1 << bit
				if bad := k.d.Open(string(b), &r); bad != authz.SettledForged {
					t.Fatalf("byte %d, bit %d: %q", i, bit, bad.Word())
				}
			}
			if bad := k.d.Open(token[:i], &r); bad != authz.SettledForged && bad != authz.SettledMalformed {
				t.Fatalf("the first %d bytes: %q", i, bad.Word())
			}
		}
		if bad := k.d.Open(token+"org:b!monthly!requests!w!1!0!", &r); bad != authz.SettledForged {
			t.Errorf("with another charge: %q", bad.Word())
		}
		other := newDesk(t, app(""))
		if bad := other.d.Open(token, &r); bad != authz.SettledForged {
			t.Errorf("without keys: %q", bad.Word())
		}
		other.d.SetSeals(authz.SealKey{ID: testSeal.ID, Key: [16]byte{9}}, nil)
		if bad := other.d.Open(token, &r); bad != authz.SettledForged {
			t.Errorf("with another key of that id: %q", bad.Word())
		}
		next := authz.SealKey{ID: 8, Key: [16]byte{9}}
		other.d.SetSeals(next, []authz.SealKey{testSeal, next})
		if bad := other.d.Open(token, &r); bad != 0 {
			t.Errorf("after a rotation: %q", bad.Word())
		}
	})
}

// No text can be read without the key.
func FuzzOpen(f *testing.F) {
	f.Add("00000007!AAAAAAAAAAAAAAAAAAAAAA!x")
	f.Add(strings.Repeat("!", 200))
	d := authz.New(authz.Config{Now: time.Now, Keeper: idleKeeper()})
	d.SetSeals(testSeal, nil)
	f.Fuzz(func(t *testing.T, token string) {
		var r authz.Reservation
		if bad := d.Open(token, &r); bad != authz.SettledForged && bad != authz.SettledMalformed {
			t.Fatalf("%q is believed", token)
		}
	})
}

// The text of an id is the id, in either case of letters; nothing else is.
func TestID_P64_RoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var id authz.ID
		copy(id[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
		for _, text := range []string{id.String(), strings.ToLower(id.String())} {
			if got, err := authz.ParseID(text); err != nil || got != id {
				t.Fatalf("%s is read as %s, %v", text, got, err)
			}
		}
	})
	for _, text := range []string{"", "01ARZ3NDEKTSV4RRFFQ69G5FA", "01ARZ3NDEKTSV4RRFFQ69G5FAVX", "81ARZ3NDEKTSV4RRFFQ69G5FAV", "01ARZ3NDEKTSV4RRFFQ69G5FAU", "01ARZ3NDEKTSV4RRFFQ69G5FA\xff"} {
		if id, err := authz.ParseID(text); err == nil {
			t.Errorf("%q is read as %s", text, id)
		}
	}
}

// A token that would be too long to be read is not made: what was reserved is what is
// used, and can still be given back.
func TestSeal_C134_NoTokenThatNobodyReads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limits := ""
		for i := range 100 {
			limits += fmt.Sprintf("q%d: {kind: quota, amount: 10, reset: {calendar: month}}\n", i)
		}
		k := newDesk(t, app("defaults: {plan: free}")+planDoc("free", limits)).seals()
		req := at("/")
		req.Headers[0].Value = "o:" + strings.Repeat("é", 125)
		dec := k.must(req, authz.Allowed)
		if token := k.d.Seal(nil, time.Now(), dec, nil); len(token) > 0 {
			t.Errorf("a token of %d bytes", len(token))
		}
		if s := k.d.Stats(); s.Unsealed != 1 || s.Unsettled != 0 {
			t.Errorf("%d are unsealed and %d unsettled, want 1 and 0", s.Unsealed, s.Unsettled)
		}
		k.d.GiveBack(time.Now(), dec)
		time.Sleep(3 * time.Minute)
		for _, key := range k.memory.Accounts() {
			if used := k.memory.Account(key).Used(); used != 0 {
				t.Fatalf("%s: %d are used", key.Limit, used)
			}
		}
	})
}
