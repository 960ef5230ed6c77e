package authz_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/plan"
)

// onBehalfNow is the moment of the decisions below.
var onBehalfNow = time.Unix(1_800_000_000, 0)

// A judge decides requests at onBehalfNow, with nothing behind it.
type judge struct {
	d                      *authz.Decider
	signer, next, pipeline service
	dec                    authz.Decision
}

func newJudge(tb testing.TB) *judge {
	tb.Helper()
	ask, next, pipeline := newService("ask"), newService("ask"), newService("pipeline")
	next.key = newService("another key").key
	j := &judge{
		d:      authz.New(authz.Config{Keeper: idleKeeper(), Now: func() time.Time { return onBehalfNow }}),
		signer: ask, next: next, pipeline: pipeline,
	}
	docs, problems := plan.Decode("test.yaml", []byte(onBehalfDocs(ask, next, pipeline)+planDoc("dev", "per_minute: {kind: rate, amount: 1, window: 1m}")))
	if plan.Refused(problems) {
		tb.Fatal(problems)
	}
	c := plan.NewCatalog()
	for i, doc := range docs {
		c.Put(doc, int64(i+1))
	}
	j.d.SetSnapshot(c.Snapshot())
	return j
}

// honours reports whether a token makes a request that is like any other free.
func (j *judge) honours(token string) bool {
	req := user(token)
	j.dec.Reset()
	j.d.Decide(context.Background(), onBehalfNow, &req, &j.dec)
	return j.dec.Class == "on_behalf"
}

func onBehalfClaims(more string) string {
	now := onBehalfNow.Unix()
	return fmt.Sprintf(`{"iss":"ask","sub":"u_1","tenant":"org:a","iat":%d,"exp":%d%s}`, now, now+120, more)
}

// FuzzOnBehalf holds that no token is honoured but the three that were signed so.
func FuzzOnBehalf(f *testing.F) {
	j := newJudge(f)
	good := map[string]bool{
		j.signer.sign(onBehalfHeader, onBehalfClaims("")):            true,
		j.signer.sign(onBehalfHeader, onBehalfClaims(`,"jti":"~~"`)): true,
		j.next.sign(onBehalfHeader, onBehalfClaims("")):              true,
	}
	for token := range good {
		if !j.honours(token) {
			f.Fatalf("%s is not honoured", token)
		}
		f.Add(token)
		parts := strings.Split(token, ".")
		f.Add(raw(`{"alg":"none","typ":"mete-on-behalf+jwt"}`) + "." + parts[1] + ".")
		f.Add(token + "=")
		f.Add(strings.ToUpper(token))
		f.Add(loosened(token))
		f.Add(token[1:])
		f.Add(token + "," + token)
	}
	f.Add(j.pipeline.sign(onBehalfHeader, onBehalfClaims("")))
	f.Add(j.signer.sign(`{"alg":"HS256","typ":"mete-on-behalf+jwt"}`, onBehalfClaims("")))
	f.Add(j.signer.sign(onBehalfHeader, onBehalfClaims(`,"crit":"exp"`)))
	f.Add("..")
	f.Fuzz(func(t *testing.T, token string) {
		if j.honours(token) != good[token] {
			t.Errorf("%q: honoured %v", token, !good[token])
		}
	})
}

// FuzzOnBehalfClaims holds that a token that is signed is honoured only if any reader of
// JSON reads the same from it, and nothing that is not checked here.
func FuzzOnBehalfClaims(f *testing.F) {
	j := newJudge(f)
	for _, more := range []string{"", `,"jti":"x"`, `,"sub":"u_1"`, `,"Sub":"u_2"`, `,"aud":"x"`, `,"jti":{}`, `,"nbf":0`, `,"exp":1e12`, `}{`, ` `, `,`} {
		f.Add(onBehalfHeader, onBehalfClaims(more))
		f.Add(strings.Replace(onBehalfHeader, "}", more+"}", 1), onBehalfClaims(""))
	}
	f.Fuzz(func(t *testing.T, header, claims string) {
		if !j.honours(j.signer.sign(header, claims)) {
			return
		}
		var h, c map[string]any
		if json.Unmarshal([]byte(header), &h) != nil || json.Unmarshal([]byte(claims), &c) != nil {
			t.Fatalf("%q %q: is not JSON and honoured", header, claims)
		}
		issued, _ := c["iat"].(float64)
		expires, _ := c["exp"].(float64)
		now := float64(onBehalfNow.Unix())
		_, kid := h["kid"]
		_, jti := c["jti"]
		if h["alg"] != "EdDSA" || h["typ"] != "mete-on-behalf+jwt" || kid != (len(h) == 3) || jti != (len(c) == 6) ||
			c["iss"] != "ask" || c["sub"] != "u_1" || c["tenant"] != "org:a" ||
			expires-issued > 120 || expires <= now || issued > now+5 {
			t.Errorf("%q %q: honoured", header, claims)
		}
	})
}

// Not one byte of a token can be another.
func TestOnBehalf_C9_EveryByteCounts(t *testing.T) {
	t.Parallel()
	j := newJudge(t)
	token := j.signer.sign(onBehalfHeader, onBehalfClaims(""))
	if !j.honours(token) {
		t.Fatal("not honoured")
	}
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_+/=. \n"
	for i := range token {
		for _, c := range alphabet {
			if c == rune(token[i]) || i < len(token)-2 && c%5 != 0 {
				continue // all of them at the end, where bits are left over
			}
			if other := token[:i] + string(c) + token[i+1:]; j.honours(other) {
				t.Errorf("byte %d as %q is honoured", i, c)
			}
		}
	}
}

// A verified token costs no memory and no second verification, of as many as are
// remembered.
func TestOnBehalf_C9_VerifiedOnce(t *testing.T) {
	j := newJudge(t)
	profile := user("")
	profile.Path = "/profile" // as free, without a token
	hop := user(j.signer.sign(onBehalfHeader, onBehalfClaims("")))
	allocations := func(req authz.Request) float64 {
		return testing.AllocsPerRun(100, func() {
			j.dec.Reset()
			j.d.Decide(context.Background(), onBehalfNow, &req, &j.dec)
			if j.dec.Outcome != authz.Exempt {
				t.Fatalf("%q", j.dec.Outcome.Word())
			}
		})
	}
	if with, without := allocations(hop), allocations(profile); with != without {
		t.Errorf("%v allocations with a token, %v without", with, without)
	}
}

func BenchmarkOnBehalf(b *testing.B) {
	j := newJudge(b)
	run := func(token string, want bool) func(*testing.B) {
		return func(b *testing.B) {
			b.Helper()
			b.ReportAllocs()
			for b.Loop() {
				if j.honours(token) != want {
					b.Fatal("wrong")
				}
			}
		}
	}
	good := j.signer.sign(onBehalfHeader, onBehalfClaims(""))
	b.Run("verified before", run(good, true))
	b.Run("forged", run(j.pipeline.sign(onBehalfHeader, onBehalfClaims("")), false))
	b.Run("none", run("", false))
}

func BenchmarkReplayKey(b *testing.B) {
	req := mutation("0b5c6a0e-3f6b-4c1e-9a51-1f9d6c1a7b11")
	var r authz.Replays
	b.ReportAllocs()
	for b.Loop() {
		key, _ := authz.ReplayKey("api", "org:a", &req)
		r.Has(key, onBehalfNow)
	}
}
