package plan_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/meteproject/mete/plan"
)

// A service may tell, in a header that it signs, that a user's call was counted
// already (C8, C9); such a class still spends what it says (C11), and a free one says
// why (C43).
func TestDecode_C1_C8_C9_C11_C43_SignedHeaders(t *testing.T) {
	t.Parallel()
	keys := [][]byte{bytes.Repeat([]byte{2}, 32), bytes.Repeat([]byte{3}, 32), bytes.Repeat([]byte{4}, 32)}
	written := make([]string, 0, len(keys))
	for _, k := range keys {
		written = append(written, "ed25519:"+base64.StdEncoding.EncodeToString(k))
	}
	a := decodeOne(t, fmt.Sprintf(`apiVersion: mete/v1
kind: App
metadata: {name: api}
spec:
  time_zone: UTC
  units: {ai_calls: {}, tokens: {}}
  identity:
    tenant: [{jwt_claim: org}]
    signed_headers:
      X-On-Behalf:
        callers:
          ask: {keys: [%q, %q], peer_spiffe_id: "spiffe://example.org/ns/*/sa/ask"}
          pipeline: {keys: [%q]}
      x-delegated: {callers: {ask: {keys: [%q]}}}
    classes:
      - {name: on_behalf, when: {signed_header: x-on-BEHALF}, meter: false, check: false, reason: the first call already paid, still_spends: [ai_calls, tokens]}
      - {name: delegated, when: {signed_header: x-delegated}, meter: false, check: false, reason: the first call already paid, still_spends: [tokens]}
      - {name: people}
`, written[0], written[1], written[2], written[0])).App
	want := []plan.SignedHeader{
		{Name: "x-on-behalf", Callers: []plan.SigningCaller{
			{Name: "ask", Keys: keys[:2], PeerSPIFFE: "spiffe://example.org/ns/*/sa/ask"}, {Name: "pipeline", Keys: keys[2:]},
		}},
		{Name: "x-delegated", Callers: []plan.SigningCaller{{Name: "ask", Keys: keys[:1]}}},
	}
	if got := fmt.Sprint(a.Identity.SignedHeaders); got != fmt.Sprint(want) {
		t.Errorf("got %s\nwant %v", got, want)
	}
	c := a.Identity.Classes
	if c[0].SignedHeader != "x-on-behalf" || !slices.Equal(c[0].StillSpends, []string{"ai_calls", "tokens"}) || c[0].Meter || c[0].Check {
		t.Errorf("got class %+v", c[0])
	}
	if c[1].SignedHeader != "x-delegated" || !slices.Equal(c[1].StillSpends, []string{"tokens"}) || c[1].Meter || c[2].StillSpends != nil {
		t.Errorf("got classes %+v", c[1:])
	}
}

// The example that documents were designed by, once somebody's key is known.
func TestDecode_C1_C2_TheConsoleOfTheStandards(t *testing.T) {
	t.Parallel()
	const key = "ed25519:11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="
	text, _, _ := strings.Cut(string(read(t, "standards", "medium.yaml")), "---\n")
	text = strings.Replace(text, "    classes:", "    signed_headers: {x-on-behalf: {callers: {gateway: {keys: [\""+key+"\"]}}}}\n    classes:", 1)
	a := decodeOne(t, text).App
	if c := a.Count; len(statuses(c.Statuses)) != 100 || !c.Statuses.Has(200) || c.Aborted || c.Replays {
		t.Errorf("got %+v", c)
	}
	if c := a.Identity.Classes[1]; c.SignedHeader != "x-on-behalf" {
		t.Errorf("got %+v", c)
	}
}

// Under a key of small order some signature holds for any text, so that a placeholder
// would let everybody in. Each such key is refused, whatever the sign of its x.
func TestDecode_C9_C10_KeysThatAnybodyCanSignUnder(t *testing.T) {
	t.Parallel()
	const form = "  identity: {tenant: [{jwt_claim: o}], signed_headers: {x-b: {callers: {a: {keys: [%q]}}}}, classes: [{name: c, when: {signed_header: x-b}}]}\n"
	ask := func(key []byte) string {
		text := "apiVersion: mete/v1\nkind: App\nmetadata: {name: api}\nspec:\n  time_zone: UTC\n" + fmt.Sprintf(form, "ed25519:"+base64.StdEncoding.EncodeToString(key))
		_, problems := plan.Decode("f", []byte(text))
		return lines(slices.DeleteFunc(problems, func(p plan.Problem) bool { return p.Warning }))
	}
	good := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)).Public().(ed25519.PublicKey)
	if got := ask(good); got != "" || forgeable(good) {
		t.Errorf("a good key: %s", got)
	}
	for _, digits := range []string{
		strings.Repeat("00", 32), "01" + strings.Repeat("00", 31),
		"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
		"c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
		"ec" + strings.Repeat("ff", 30) + "7f", "ed" + strings.Repeat("ff", 30) + "7f", "ee" + strings.Repeat("ff", 30) + "7f",
	} {
		key, err := hex.DecodeString(digits)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if got := ask(key); !strings.Contains(got, "keys[0]: is a key under which anybody can sign") {
				t.Errorf("%x is taken: %q", key, got)
			}
			if !forgeable(key) {
				t.Errorf("%x is a good key", key)
			}
			key[31] ^= 0x80
		}
	}
}

// forgeable reports whether a signature that nobody has made holds for one of a few texts:
// R is the neutral point and S is 0.
func forgeable(key ed25519.PublicKey) bool {
	signature := make([]byte, ed25519.SignatureSize)
	signature[0] = 1
	for i := range 1000 {
		if ed25519.Verify(key, fmt.Append(nil, i), signature) {
			return true
		}
	}
	return false
}

// No more signed headers are taken than are verified: the rest would never hold, and
// nobody would be told.
func TestDecode_C8_NoMoreSignedHeadersThanAreVerified(t *testing.T) {
	t.Parallel()
	ask := func(n int) string {
		const key = "ed25519:11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="
		text := "apiVersion: mete/v1\nkind: App\nmetadata: {name: api}\nspec:\n  time_zone: UTC\n  identity:\n    tenant: [{jwt_claim: o}]\n    signed_headers:\n"
		for i := range n {
			text += fmt.Sprintf("      x-b%d: {callers: {a: {keys: [%q]}}}\n", i, key)
		}
		_, problems := plan.Decode("f", []byte(text))
		return lines(slices.DeleteFunc(problems, func(p plan.Problem) bool { return p.Warning }))
	}
	if got := ask(plan.MaxSignedHeaders); got != "" {
		t.Errorf("%d headers: %s", plan.MaxSignedHeaders, got)
	}
	if got := ask(plan.MaxSignedHeaders + 1); !strings.Contains(got, "signed_headers: has 33 headers; 32 are the most that are verified") {
		t.Errorf("%d headers: %q", plan.MaxSignedHeaders+1, got)
	}
}
