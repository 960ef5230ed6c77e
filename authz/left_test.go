package authz_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/store/storetest"
)

// mustMiss checks what is told of reservations.
func (k *desk) mustMiss(killed, unsettled, missing int64) {
	k.t.Helper()
	s := k.d.Stats()
	if got := k.d.Killed(); got != killed || s.Unsettled != unsettled || s.Missing != missing {
		k.t.Errorf("%d of killed processes, %d unsettled, %d missing; want %d, %d, %d", got, s.Unsettled, s.Missing, killed, unsettled, missing)
	}
}

// What a killed process has left unsettled is told by the next, counted as missing once,
// and not again by the one after that (issue 12, D4). Its log may come all the same.
func TestMissing_A26_OfAKilledProcessOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, m := &shelf{}, &storetest.Memory{}
		k := s.process(t, m, "r1", 1, shelfDocs())
		var tokens []string
		for range 5 {
			tokens = append(tokens, k.token(k.must(at("/chat"), authz.Allowed)))
		}
		k.end(tokens[0], answered(500))
		k.mustMiss(0, 4, 0)

		k = s.process(t, m, "r2", 2, shelfDocs())
		k.mustMiss(4, 4, 0)
		k.end(tokens[1], answered(500))
		k.token(k.must(at("/chat"), authz.Allowed)) // its own
		k.mustMiss(3, 4, 0)
		if got := k.d.Miss(false); got != 3 {
			t.Errorf("%d are missed, want 3", got)
		}
		k.mustMiss(0, 1, 3)
		if got := k.end(tokens[2], answered(500)); got != authz.SettledFree || k.d.Miss(false) != 0 {
			t.Errorf("late: %q", got.Word())
		}
		k.mustMiss(0, 1, 3)

		k = s.process(t, m, "r3", 3, shelfDocs())
		k.mustMiss(1, 1, 0) // that of the second
		k.d.Miss(true)
		k.mustMiss(0, 0, 1)
	})
}

// What a process that ends in order leaves is no loss: its requests run on, and their log
// goes to the next. It is missing once nobody can settle it any more.
func TestMissing_A26_NotOfAProcessThatEndsInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, m := &shelf{}, &storetest.Memory{}
		k := s.process(t, m, "r1", 1, shelfDocs())
		token := k.token(k.must(at("/chat"), authz.Allowed))
		k.token(k.must(at("/chat"), authz.Allowed))
		k.d.End()
		k = s.process(t, m, "r2", 2, shelfDocs())
		k.d.Miss(false)
		k.mustMiss(0, 2, 0)
		k.end(token, answered(500))
		k.mustMiss(0, 1, 0)
		k.d.Miss(true)
		k.mustMiss(0, 0, 1)
	})
}

// Processes that are forgotten, because there were too many, take their counts with them
// into the sum.
func TestMissing_A26_OfProcessesThatAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, m := &shelf{}, &storetest.Memory{}
		k := s.process(t, m, "r1", 1, shelfDocs())
		k.token(k.must(at("/chat"), authz.Allowed))
		k.token(k.must(at("/chat"), authz.Allowed))
		k = s.process(t, m, "r2", 2, shelfDocs())
		for process := range uint64(300) {
			k.d.SettleNumber(1000+process, 1, time.Now())
		}
		k.mustMiss(0, 0, 2)
	})
}
