package authz_test

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/store/storetest"
)

// A shelf is where pages of numbers outlive their process.
type shelf struct {
	full  bool
	pages []*authz.Page
}

func (s *shelf) room(name authz.PageName) *authz.Page {
	if s.full {
		return nil
	}
	const words = authz.PageNumbers / 64
	p := &authz.Page{PageName: name, Taken: new(atomic.Int64), Left: new(atomic.Int64), Settled: make([]uint64, words), Reported: make([]uint64, words)}
	p.Free = func() { s.pages = slices.DeleteFunc(s.pages, func(o *authz.Page) bool { return o == p }) }
	s.pages = append(s.pages, p)
	return p
}

// process is the next process that starts with what s has.
func (s *shelf) process(t *testing.T, m *storetest.Memory, holder string, number uint64, docs string) *desk {
	t.Helper()
	return newDeskWith(t, m, holder, docs, authz.Config{Process: number, Room: s.room, Before: slices.Clone(s.pages)}).seals()
}

func shelfDocs() string {
	return app("units: {tokens: {title: tokens}}") +
		planDoc("free", monthly("1000", "")+"\ntokens: {kind: quota, amount: 10000, unit: tokens, reset: {calendar: month}}") +
		tenantDoc("org:a", "{plan: free}") + routesDoc(settleDocs)
}

// An entry of a request that an earlier process has settled changes nothing when it comes
// again, also at the one after the next; one that was open settles once.
func TestSettle_C134_RepeatsAreFoundAfterARestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, m := &shelf{}, &storetest.Memory{}
		k := s.process(t, m, "r1", 1, shelfDocs())
		settled := k.token(k.must(at("/chat"), authz.Allowed))
		k.must(at("/chat"), authz.Allowed)
		open := k.token(k.must(at("/chat"), authz.Allowed))
		if got := k.end(settled, tells(200, "x-usage", "7")); got != authz.SettledLess {
			t.Fatalf("settled %q", got.Word())
		}
		want := k.used("tokens")
		for process := range uint64(3) {
			k = s.process(t, m, "r"+string(rune('2'+process)), 2+process, shelfDocs())
			if got := k.end(settled, answered(500)); got != authz.SettledBefore {
				t.Errorf("again after %d restarts: %q", process+1, got.Word())
			}
			if got := k.end(open, tells(200, "x-usage", "30")); process == 0 && got != authz.SettledLess || process > 0 && got != authz.SettledBefore {
				t.Errorf("what was open, after %d restarts: %q", process+1, got.Word())
			}
		}
		if got := k.used("tokens"); got != want-70 {
			t.Errorf("%d used, want %d: what was open has used 30 of 100, once", got, want-70)
		}
	})
}

// What the app has reported, or was given in addition, stays when its process is gone:
// the log's entry is about what was reserved at first.
func TestReport_Q13_StaysAfterARestart(t *testing.T) {
	t.Parallel()
	for name, tell := range map[string]func(*desk, authz.ID) error{
		"reported": func(k *desk, id authz.ID) error {
			_, err := k.d.Report(context.Background(), time.Now(), id, map[string]int64{"tokens": 7})
			return err
		},
		"extended": func(k *desk, id authz.ID) error {
			_, err := k.d.Extend(context.Background(), time.Now(), id, map[string]int64{"tokens": 50})
			return err
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, m := &shelf{}, &storetest.Memory{}
			k := s.process(t, m, "r1", 1, shelfDocs())
			dec := k.must(at("/job"), authz.Allowed)
			token := k.token(dec)
			if err := tell(k, dec.ID); err != nil {
				t.Fatal(err)
			}
			want := k.used("tokens")
			k = s.process(t, m, "r2", 2, shelfDocs())
			if got := k.end(token, answered(500)); got != authz.SettledBefore {
				t.Errorf("%s: %q", name, got.Word())
			}
			if got := k.used("tokens"); got != want || got <= 0 {
				t.Errorf("%s: %d used, want %d as before", name, got, want)
			}
		})
	}
}

// What a replica settles in the place of another one outlives it, too.
func TestSettle_C134_AnHeirRemembersAfterARestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, m := &shelf{}, &storetest.Memory{}
		gone := newDeskWith(t, m, "r9", shelfDocs(), authz.Config{Process: 9}).seals()
		token := gone.token(gone.must(at("/chat"), authz.Allowed))
		for process := range uint64(2) {
			k := s.process(t, m, "r"+string(rune('1'+process)), 1+process, shelfDocs())
			if got := k.end(token, answered(500)); process == 0 && got != authz.SettledFree || process > 0 && got != authz.SettledBefore {
				t.Errorf("process %d: %q", process+1, got.Word())
			}
		}
	})
}

// Pages that are given up, or whose process is forgotten, leave the shelf; where there was
// no room at first, what is settled is remembered once there is.
func TestNumbers_C134_Room(t *testing.T) {
	t.Parallel()
	s := &shelf{full: true}
	d := &numbersDesk{t: t, now: time.Now()}
	d.n.SetRoom(7, s.room)
	d.take(10)
	d.settle(3, 0)
	s.full = false
	d.settle(4, 0)
	if len(s.pages) != 1 || s.pages[0].Taken.Load() != 10 || s.pages[0].Settled[0] != 1<<3|1<<4 {
		t.Fatalf("remembered %+v", s.pages)
	}
	d.take(authz.PageNumbers)
	if got := s.pages[0].Taken.Load() + s.pages[1].Taken.Load(); len(s.pages) != 2 || got != authz.PageNumbers+10 {
		t.Errorf("%d pages, %d taken", len(s.pages), got)
	}
	d.now = d.now.Add(25 * time.Hour)
	d.take(authz.PageNumbers)
	if len(s.pages) != 2 || s.pages[0].Index != 1 {
		t.Errorf("remembered %+v, want the first page gone", s.pages)
	}
}

// Numbers that are taken at once around a page's end count as taken of their own pages, so
// that what a killed process has left unsettled is counted exactly.
func TestNumbers_A26_TakenAtOnce(t *testing.T) {
	t.Parallel()
	s, d := &shelf{}, &numbersDesk{t: t, now: time.Now()}
	d.n.SetRoom(7, func(name authz.PageName) *authz.Page {
		for range 200 { // as a disk that takes its time
			runtime.Gosched()
		}
		return s.room(name)
	})
	const takers, each = 8, authz.PageNumbers / 2
	var all sync.WaitGroup
	for range takers {
		all.Go(func() { d.take(each) })
	}
	all.Wait()
	slices.SortFunc(s.pages, func(a, b *authz.Page) int { return cmp.Compare(a.Index, b.Index) })
	left := int64(takers * each)
	for i, p := range s.pages {
		want := min(left, authz.PageNumbers)
		if i == 0 {
			want = authz.PageNumbers - 1
		}
		if got := p.Taken.Load(); p.Index != uint64(i) || got != want {
			t.Errorf("page %d: %d numbers are taken, want %d", p.Index, got, want)
		}
		left -= want
	}
	if left != 0 {
		t.Errorf("%d numbers are of no page", left)
	}
}

// However many processes are gone, those of the newest pages are remembered.
func TestNumbers_C134_ManyProcessesBefore(t *testing.T) {
	t.Parallel()
	s := &shelf{}
	now := time.Now()
	for i := range 300 {
		p := s.room(authz.PageName{Process: uint64(i + 1), Began: now.Add(time.Duration(i) * time.Minute), Own: true})
		p.Settled[0], p.Settled[1] = 2, 0
		p.Taken.Store(3)
	}
	d := authz.New(authz.Config{Keeper: idleKeeper(), Now: time.Now, Process: 1000, Room: s.room, Before: slices.Clone(s.pages)})
	if len(s.pages) != 256 {
		t.Errorf("%d pages are remembered, want 256", len(s.pages))
	}
	for number, want := range map[uint64]authz.Settled{1: authz.SettledBefore, 2: 0} {
		if got := d.SettleNumber(300, number, now); got != want {
			t.Errorf("number %d of the last one: %q", number, got.Word())
		}
	}
}

// docs/usage-events.md, after a crash: where the event of a charge is lost and the next
// process settles the request, the events say less than nothing, and the account is right.
func TestSettle_C134_EventsAndAccountsPartAfterAKill(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, m := &shelf{}, &storetest.Memory{}
		k := s.process(t, m, "r1", 1, shelfDocs())
		token := k.token(k.must(at("/chat"), authz.Allowed)) // and the event of it is not written
		k.used("tokens")                                     // what the journal does after a kill
		k = s.process(t, m, "r2", 2, shelfDocs())
		events := map[string]int64{}
		k.onUse = func(u *authz.Use) { events[u.Limit] += u.Units }
		if got := k.end(token, answered(500)); got != authz.SettledFree {
			t.Fatalf("settled %q", got.Word())
		}
		if used := k.used("tokens"); events["tokens"] != -100 || events["monthly"] != -1 || used != 0 {
			t.Errorf("events %v, account %d", events, used)
		}
	})
}
