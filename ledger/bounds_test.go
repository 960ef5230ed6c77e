package ledger_test

import (
	"context"
	"errors"
	"os"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteproject/mete/ledger"
)

// madeUp is use under an attribution that nobody else has.
func madeUp(tenant string, n int) ledger.Use {
	u := use(tenant, 1)
	u.Attribution = "made-up-" + strconv.Itoa(n)
	return u
}

// A caller who makes up attributions costs detail, not units, and not those of others.
func TestEvents_C59_C26_PastHalfOfTheGroupsDetailIsLeftOut(t *testing.T) {
	t.Parallel()
	e, path := open(t, ledger.Config{MaxGroups: 100})
	for n := range 1000 {
		u := madeUp("org:storm", n)
		e.Add(&u)
	}
	other := use("org:other", 5)
	e.Add(&other)
	s := e.Stats()
	if s.Groups != 50+2 || s.Merged != 950+5 || s.Dropped[ledger.Counted] != 0 || s.Pending != s.Groups {
		t.Errorf("%+v", s)
	}
	flush(t, e)
	units := make(map[string]int64)
	for _, v := range read(t, path) {
		units[v.Subject] += v.Data.Quantity
		d := v.Data
		if made := d.Attribution != ""; made == d.Merged || made != (d.Principal != "") || made != (d.Route != "") || d.Class != "people" {
			t.Errorf("%+v", v)
		}
	}
	if units["org:storm"] != 1000 || units["org:other"] != 5 {
		t.Errorf("units %v", units)
	}
}

func TestEvents_C26_C138_PastAllGroupsUnitsAreDroppedAndCounted(t *testing.T) {
	t.Parallel()
	down := true
	e, path := openFaulty(t, ledger.Config{MaxGroups: 100}, ledger.Faults{
		Write: func(f *os.File, b []byte) (int, error) {
			if down {
				return 0, errors.New("no space")
			}
			return f.Write(b)
		},
	})
	const tenants = 500
	for round := range 20 {
		for n := range tenants {
			u := use("org:"+strconv.Itoa(n), 2)
			e.Add(&u)
			u.Outcome = ledger.Refunded
			u.Units = 1
			e.Add(&u)
		}
		if s := e.Stats(); s.Groups > 100 || s.Pending > 2*100 {
			t.Fatalf("in round %d %+v", round, s)
		}
		if err := e.Flush(); err == nil {
			t.Fatal("written")
		}
	}
	down = false
	flush(t, e)
	s, got := e.Stats(), bill(read(t, path))
	if got["counted"]+s.Dropped[ledger.Counted] != 20*tenants*2 || got["refunded"]+s.Dropped[ledger.Refunded] != 20*tenants {
		t.Errorf("%v, %+v", got, s)
	}
	if s.Dropped[ledger.Counted] == 0 || s.Dropped[ledger.Refunded] == 0 || s.Pending != 0 || s.Err != nil || s.Failures != 20 {
		t.Errorf("%+v", s)
	}
}

// Groups that are not used any more leave, those in use stay.
func TestEvents_C22_IdleGroupsAreForgotten(t *testing.T) {
	t.Parallel()
	e, path := open(t, ledger.Config{})
	for n := range 1000 {
		u := madeUp("org:gone", n)
		e.Add(&u)
	}
	steady := use("org:steady", 1)
	for range 200 {
		e.Add(&steady)
		flush(t, e)
	}
	if s := e.Stats(); s.Groups != 1 {
		t.Errorf("%d groups", s.Groups)
	}
	if got := bill(read(t, path)); got["counted"] != 1200 {
		t.Errorf("%v", got)
	}
}

func TestEvents_C22_GroupsThatAreIdleForAMomentStay(t *testing.T) {
	t.Parallel()
	e, _ := open(t, ledger.Config{})
	u := use("org:steady", 1)
	e.Add(&u)
	for range 64 {
		flush(t, e)
	}
	if s := e.Stats(); s.Groups != 1 {
		t.Errorf("%d groups", s.Groups)
	}
	for range 64 {
		flush(t, e)
	}
	if s := e.Stats(); s.Groups != 0 {
		t.Errorf("%d groups", s.Groups)
	}
}

// Groups that share a hash leave one by one.
func TestEvents_C22_ForgettingOneGroupForgetsNoOther(t *testing.T) {
	t.Parallel()
	e, path := open(t, ledger.Config{MaxGroups: 20})
	windows := []string{"1", "2", "3", "4", "5", "6"}
	for range 2 {
		for _, used := range [][]string{windows, windows[1:], {"2", "4", "6", "5", "3"}} {
			for _, w := range used {
				u := use("a", 1)
				u.Window = w
				e.Add(&u)
			}
			if s := e.Stats(); s.Groups > 6 { // a known group has stayed known
				t.Errorf("%+v", s)
			}
			flush(t, e)
		}
		if s := e.Stats(); s.Groups != 5 {
			t.Errorf("%+v", s)
		}
	}
	if got := bill(read(t, path))["counted"]; got != 2*(6+5+5) {
		t.Errorf("%d units", got)
	}
}

// A flush of many events is many writes, so that little is made that waits for a disk.
func TestEvents_C138_EventsAreWrittenInChunks(t *testing.T) {
	t.Parallel()
	largest, fail := 0, false
	e, path := openFaulty(t, ledger.Config{}, ledger.Faults{Write: func(f *os.File, b []byte) (int, error) {
		largest = max(largest, len(b))
		if fail {
			return 0, errors.New("no space")
		}
		return f.Write(b)
	}})
	const events = 10_000
	add := func() {
		for n := range events {
			u := madeUp("a", n)
			e.Add(&u)
		}
	}
	add()
	flush(t, e)
	fail = true
	add()
	if err := e.Flush(); err == nil {
		t.Error("written")
	}
	if s := e.Stats(); largest > 256<<10 || s.Pending != events {
		t.Errorf("%d bytes in one write, %+v", largest, s)
	}
	fail = false
	flush(t, e)
	if got := read(t, path); len(got) != 2*events {
		t.Errorf("%d of %d events", len(got), 2*events)
	}
}

// Where there are many groups, idle ones make room at once, and those in use stay unless
// there is no room for others.
func TestEvents_C26_ManyGroupsMakeRoom(t *testing.T) {
	t.Parallel()
	e, _ := open(t, ledger.Config{MaxGroups: 100})
	for n := range 30 {
		u := madeUp("a", n)
		e.Add(&u)
	}
	flush(t, e)
	if s := e.Stats(); s.Groups != 30 {
		t.Errorf("%d groups in use are left", s.Groups)
	}
	u := madeUp("a", 0)
	e.Add(&u)
	flush(t, e)
	if s := e.Stats(); s.Groups != 1 {
		t.Errorf("%d groups are left of which one is in use", s.Groups)
	}
	for n := range 50 {
		u := madeUp("a", n)
		e.Add(&u)
	}
	flush(t, e)
	if s := e.Stats(); s.Groups != 0 {
		t.Errorf("%d groups are left, so that there is no room", s.Groups)
	}
}

// Full flushes early, but once between two ticks.
func TestEvents_C26_ManyGroupsAreFlushedEarly(t *testing.T) {
	t.Parallel()
	c := config(t, ledger.Config{MaxGroups: 100})
	synctest.Test(t, func(t *testing.T) {
		e, path := open(t, c)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- e.Run(ctx) }()
		synctest.Wait()
		n := 0
		storm := func() int {
			for range 40 {
				u := madeUp("a", n)
				e.Add(&u)
				n++
			}
			synctest.Wait()
			return len(read(t, path))
		}
		time.Sleep(100 * time.Millisecond)
		if got := storm(); got == 0 {
			t.Error("not flushed early")
		}
		before := len(read(t, path))
		if got := storm(); got != before {
			t.Error("flushed early twice before the tick")
		}
		time.Sleep(time.Second)
		if before = len(read(t, path)); storm() == before {
			t.Error("not flushed early after the tick")
		}
		stop()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if got := bill(read(t, path))["counted"]; got != int64(n) {
			t.Errorf("%d of %d units", got, n)
		}
	})
}
