package peers_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/peers"
)

// What another replica has settled in the place of a killed process is not settled again by
// the one that forgives what that process has left, nor the other way round (issue 12, D4).
func TestClaim_A26_C134_NothingIsSettledTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		next, heir, third := w.start(1), w.start(2), w.start(3)
		all := []*replica{next, heir, third}
		know(all) // each settles what it hears
		taken, open := number{9, 1}, number{9, 2}
		if got := heir.hear(taken, 7); got != authz.SettledLess {
			t.Fatal(got.Word())
		}
		know(all, all...)
		claims := []peers.Claim{{Token: taken.token(), Units: []int64{reserved}}, {Token: open.token(), Units: []int64{reserved}}}
		if err := next.Claim(t.Context(), claims); err != nil || !claims[0].Settled || claims[1].Settled {
			t.Fatalf("%+v, %v", claims, err)
		}
		for _, a := range all[1:] {
			a.SetPeers(nil)
			if got := a.hear(open, 7); got != authz.SettledBefore {
				t.Errorf("process %d settles what was claimed: %q", a.process, got.Word())
			}
		}
		for _, s := range w.ledger.of(open) {
			if s.used != reserved {
				t.Errorf("a claim changes the account: %+v", s)
			}
		}
	})
}

// A replica that does not answer may have settled anything: nothing is claimed at the others.
func TestClaim_A26_AllHaveToAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		next, heir, away := w.start(1), w.start(2), w.start(3)
		all := []*replica{next, heir, away}
		know(all, all...)
		away.cut(w)
		open := number{9, 2}
		claims := []peers.Claim{{Token: open.token(), Units: []int64{reserved}}}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if err := next.Claim(ctx, claims); err == nil || !strings.Contains(err.Error(), "ask replica 0000000000000003 at replica-3 what it has settled") {
			t.Errorf("error %v", err)
		}
		w.ledger.mustNotBe(t, open)
	})
}
