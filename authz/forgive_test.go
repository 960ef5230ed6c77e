package authz_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/store/storetest"
)

// keeping is the next process that starts with what s has, and notes what it keeps.
func (s *shelf) keeping(t *testing.T, m *storetest.Memory, holder string, number uint64, kept *[]string) *desk {
	t.Helper()
	return newDeskWith(t, m, holder, shelfDocs(), authz.Config{
		Process: number, Room: s.room, Before: s.pages[:len(s.pages):len(s.pages)],
		Keep: func(token []byte) { *kept = append(*kept, string(token)) },
	}).seals()
}

// What a killed process has left is known, and can be forgiven once: the account is then
// that of what was settled, and the events say so (issue 12, D4).
func TestForgive_A26_OfAKilledProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, m := &shelf{}, &storetest.Memory{}
		var kept, none []string
		k := s.keeping(t, m, "r1", 1, &kept)
		for range 4 {
			k.token(k.must(at("/chat"), authz.Allowed))
		}
		if len(kept) != 4 {
			t.Fatalf("%d tokens are kept, want 4", len(kept))
		}
		k.end(kept[0], tells(200, "x-usage", "7"))
		k.used("tokens")
		k = s.keeping(t, m, "r2", 2, &none)
		refunded := map[string]int64{}
		k.onUse = func(u *authz.Use) { refunded[u.Limit] -= u.Units }
		var r authz.Reservation
		for i, token := range kept {
			open, ok := k.d.OpenLeft(token, &r)
			if !ok || open != (i > 0) {
				t.Errorf("token %d: open %v, known %v", i, open, ok)
			}
		}
		before := k.d.Outstanding()
		for i, want := range []authz.Settled{authz.SettledBefore, authz.SettledFree, authz.SettledFree} {
			k.d.OpenLeft(kept[i], &r)
			if got := k.d.Forgive(time.Now(), &r); got != want {
				t.Errorf("token %d: %q, want %q", i, got.Word(), want.Word())
			}
			if got := k.d.Forgive(time.Now(), &r); got != authz.SettledBefore {
				t.Errorf("token %d again: %q", i, got.Word())
			}
		}
		if got := before - k.d.Outstanding(); got != 2 {
			t.Errorf("%d less are outstanding, want 2", got)
		}
		if got := k.end(kept[1], tells(200, "x-usage", "9")); got != authz.SettledBefore {
			t.Errorf("the log of one that was forgiven: %q", got.Word())
		}
		if refunded["tokens"] != 200 || refunded["monthly"] != 2 {
			t.Errorf("events %v", refunded)
		}
	})
}

// Of its own reservations, and of processes of which nothing is known, nothing is told.
func TestForgive_A26_NothingIsToldOfOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, m := &shelf{}, &storetest.Memory{}
		var kept []string
		k := s.keeping(t, m, "r1", 1, &kept)
		k.token(k.must(at("/chat"), authz.Allowed))
		other := newDeskWith(t, m, "r9", shelfDocs(), authz.Config{Process: 9}).seals()
		var r authz.Reservation
		for name, of := range map[string]*desk{"its own": k, "another's": other} {
			if _, ok := of.d.OpenLeft(kept[0], &r); ok {
				t.Errorf("%s is known", name)
			}
		}
		if _, ok := k.d.OpenLeft(kept[0]+"x", &r); ok {
			t.Error("forged")
		}
	})
}
