package quota_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/meteproject/mete/quota"
)

// A spender is a replica that spends what it was granted and nothing else.
type spender struct {
	id       string
	seq      uint64
	used     int64
	reported int64
	lots     []quota.Lease
}

// spenders are honest replicas under one ceiling, who may crash.
type spenders struct {
	account quota.Account
	ceiling int64
	fleet   []*spender
	dead    []string

	spent     int64
	forgotten int64 // spent, and not reported before a crash (A45)
}

func newSpenders(t *rapid.T) *spenders {
	f := &spenders{ceiling: rapid.Int64Range(1, 2000).Draw(t, "ceiling")}
	for i := range rapid.IntRange(1, 6).Draw(t, "replicas") {
		f.fleet = append(f.fleet, &spender{id: fmt.Sprint("replica-", i)})
	}
	return f
}

func (f *spenders) any(t *rapid.T) *spender { return rapid.SampledFrom(f.fleet).Draw(t, "replica") }

func (f *spenders) spend(t *rapid.T) {
	s := f.any(t)
	for i := range s.lots {
		n := rapid.Int64Range(0, s.lots[i].Units).Draw(t, "units")
		s.lots[i].Units -= n
		s.used += n
		f.spent += n
	}
}

func (f *spenders) refund(t *rapid.T) {
	s := f.any(t)
	if s.used == 0 || len(s.lots) == 0 {
		t.Skip("nothing to refund")
	}
	n := rapid.Int64Range(0, s.used).Draw(t, "units")
	s.used -= n
	f.spent -= n
	s.lots[0].Units += n
}

// renew reports what s has used, and asks for more; all replies but the last get lost.
func (f *spenders) renew(t *rapid.T, s *spender, want, least int64) {
	s.seq++
	// An empty lease is closed: what is refunded later must not go into it.
	s.lots = slices.DeleteFunc(s.lots, func(l quota.Lease) bool { return l.Units == 0 })
	op := quota.Operation{
		Holder: s.id, Seq: s.seq, Used: s.used, Hold: slices.Clone(s.lots), Want: want, Min: least,
		Ceiling: f.ceiling, Replicas: len(f.fleet), Gone: f.dead,
	}
	var r quota.Result
	for range rapid.IntRange(1, 3).Draw(t, "tries") {
		f.account, r = quota.Apply(f.account, op)
	}
	s.reported = s.used
	if r.Granted > 0 {
		s.lots = append(s.lots, quota.Lease{ID: s.seq, Units: r.Granted})
	}
	if r.Left+r.Used+r.Leased != f.ceiling || r.Left < 0 {
		t.Fatalf("result: got %+v, want it to sum up to %d", r, f.ceiling)
	}
}

func (f *spenders) settle(t *rapid.T, s *spender) {
	s.lots = nil
	f.renew(t, s, 0, 0)
}

func (f *spenders) crash(t *rapid.T) {
	s := f.any(t)
	f.forgotten += s.used - s.reported
	f.dead = append(f.dead, s.id)
	*s = spender{id: s.id + "'"}
}

// spendAll lets one replica alone have all the rest, bit by bit.
func (f *spenders) spendAll(t *rapid.T) {
	for _, s := range f.fleet {
		f.settle(t, s)
	}
	s := f.fleet[0]
	for {
		f.renew(t, s, f.ceiling, 1)
		rest := units(s.lots)
		if rest == 0 {
			return
		}
		s.used += rest
		f.spent += rest
		s.lots = nil
	}
}

// TestNothingIsSpentTwice lets honest replicas spend, crash and start again under
// one ceiling: what is spent, but for what crashes made forgotten, never goes
// beyond it, and all of it can be spent.
func TestNothingIsSpentTwice(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := newSpenders(t)
		t.Repeat(map[string]func(*rapid.T){
			"spend":  f.spend,
			"refund": f.refund,
			"crash":  f.crash,
			"settle": func(t *rapid.T) { f.settle(t, f.any(t)) },
			"renew": func(t *rapid.T) {
				least := rapid.Int64Range(1, 10).Draw(t, "least")
				f.renew(t, f.any(t), least+rapid.Int64Range(0, 200).Draw(t, "more"), least)
			},
			"": func(t *rapid.T) {
				if f.spent-f.forgotten > f.ceiling {
					t.Fatalf("spent: got %d of which %d forgotten, want at most %d", f.spent, f.forgotten, f.ceiling)
				}
			},
		})
		f.spendAll(t)
		if f.spent-f.forgotten != f.ceiling {
			t.Fatalf("spent to the end: got %d of which %d forgotten, want %d", f.spent, f.forgotten, f.ceiling)
		}
	})
}
