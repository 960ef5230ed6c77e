package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/meteproject/mete/ledger"
)

// running runs Events in a bubble until stop is called.
func running(t *testing.T, e *ledger.Events) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	synctest.Wait()
	return func() error {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run ended with %v", err)
		}
		return e.Flush()
	}
}

func TestRun_C23_WritesEverySecondWhatHasChanged(t *testing.T) {
	t.Parallel()
	c := config(t, ledger.Config{})
	synctest.Test(t, func(t *testing.T) {
		e, path := open(t, c)
		stop := running(t, e)
		a, b := use("org:a", 1), use("org:b", 1)
		e.Add(&a)
		e.Add(&b)
		time.Sleep(999 * time.Millisecond)
		synctest.Wait()
		if got := read(t, path); len(got) != 0 {
			t.Errorf("%d events before their time", len(got))
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		e.Add(&b)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if got := read(t, path); len(got) != 3 || got[2].Subject != "org:b" {
			t.Errorf("%+v", got)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// SIGTERM with 700 units that are not written, and requests that end meanwhile.
func TestRun_C138_TheLastFlushWritesAll(t *testing.T) {
	t.Parallel()
	c := config(t, ledger.Config{})
	synctest.Test(t, func(t *testing.T) {
		synced := 0
		e, path := openFaulty(t, c, ledger.Faults{Sync: func(f *os.File) error { synced++; return f.Sync() }})
		if synced != 1 {
			t.Error("a machine that is lost may lose the name of the new file")
		}
		synced = 0
		stop := running(t, e)
		u := use("org:a", 700)
		e.Add(&u)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if got := bill(read(t, path))["counted"]; got != 700 || synced != 1 {
			t.Errorf("%d of 700 units are written, and synced %d times", got, synced)
		}
		u.Units = 20
		e.Add(&u)
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		if got := bill(read(t, path))["counted"]; got != 720 || synced != 2 {
			t.Errorf("%d of 720 units are written, and synced %d times", got, synced)
		}
		e.Add(&u)
		if s := e.Stats(); s.Dropped[ledger.Counted] != 20 || s.Events != 2 || s.Pending != 0 {
			t.Errorf("%+v", s)
		}
		if err := errors.Join(e.Close(), e.Reopen(), e.Flush()); err != nil {
			t.Error(err)
		}
	})
}

// What is added while it is closed has each unit written or counted as dropped.
func TestClose_C138_AddsThatRaceAreWrittenOrCounted(t *testing.T) {
	t.Parallel()
	for range 20 {
		e, path := open(t, ledger.Config{})
		var adders sync.WaitGroup
		for _, tenant := range []string{"a", "b", "c", "d"} {
			adders.Go(func() {
				u := use(tenant, 1)
				for range 2500 {
					e.Add(&u)
				}
			})
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		adders.Wait()
		s := e.Stats()
		if got := bill(read(t, path))["counted"]; got+s.Dropped[ledger.Counted] != 10_000 {
			t.Fatalf("%d are written, %d dropped", got, s.Dropped[ledger.Counted])
		}
	}
}

func TestClose_C138_SaysWhatIsLost(t *testing.T) {
	t.Parallel()
	e, _ := openFaulty(t, ledger.Config{}, ledger.Faults{
		Write: func(*os.File, []byte) (int, error) { return 0, errors.New("no space left") },
	})
	u := use("a", 1)
	e.Add(&u)
	if err := e.Flush(); err == nil {
		t.Error("no error")
	}
	u.Tenant = "b"
	e.Add(&u)
	err := e.Close()
	if err == nil || !strings.Contains(err.Error(), "2 usage events could not be written and are lost") ||
		!strings.Contains(err.Error(), "no space left") {
		t.Error(err)
	}
}

func TestRun_C138_SyncsOnceASecond(t *testing.T) {
	t.Parallel()
	c := config(t, ledger.Config{FlushEvery: 100 * time.Millisecond})
	synctest.Test(t, func(t *testing.T) {
		var synced []time.Time
		e, _ := openFaulty(t, c, ledger.Faults{Sync: func(f *os.File) error {
			synced = append(synced, time.Now())
			return f.Sync()
		}})
		synced = nil
		stop := running(t, e)
		u := use("a", 1)
		for range 50 {
			e.Add(&u)
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
		}
		time.Sleep(10 * time.Second) // nothing is written, so nothing is synced
		synctest.Wait()
		if len(synced) != 5 {
			t.Errorf("synced %d times in 5 s", len(synced))
		}
		for i := 1; i < len(synced); i++ {
			if d := synced[i].Sub(synced[i-1]); d < time.Second {
				t.Errorf("synced after %v", d)
			}
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// An outage is told once, and its end; what was to be written is kept.
func TestRun_C138_FailuresAreCountedAndTriedAgain(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	c := config(t, ledger.Config{Log: zerolog.New(&log)})
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		e, path := openFaulty(t, c, ledger.Faults{
			Write: func(f *os.File, b []byte) (int, error) {
				if down.Load() {
					return 0, syscall.ENOSPC
				}
				return f.Write(b)
			},
		})
		stop := running(t, e)
		down.Store(true)
		u := use("a", 1)
		for range 10 {
			e.Add(&u)
			time.Sleep(time.Second)
			synctest.Wait()
		}
		s := e.Stats()
		if s.Failures != 10 || !errors.Is(s.Err, syscall.ENOSPC) || s.Pending != 2 || s.Events != 0 {
			t.Errorf("%+v", s)
		}
		down.Store(false)
		time.Sleep(time.Second)
		synctest.Wait()
		if s := e.Stats(); s.Err != nil || s.Pending != 0 {
			t.Errorf("%+v", s)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		if got := bill(read(t, path))["counted"]; got != 10 {
			t.Errorf("%d of 10 units", got)
		}
		if got := strings.Count(log.String(), "\n"); got != 2 || !strings.Contains(log.String(), "no space left") {
			t.Errorf("log: %s", log.String())
		}
	})
}

func TestRun_C138_AFailedSyncIsCountedAndTriedAgain(t *testing.T) {
	t.Parallel()
	c := config(t, ledger.Config{})
	synctest.Test(t, func(t *testing.T) {
		failing, tries := false, 0
		e, path := openFaulty(t, c, ledger.Faults{Sync: func(f *os.File) error {
			tries++
			if failing {
				return errors.New("input/output error")
			}
			return f.Sync()
		}})
		stop := running(t, e)
		failing, tries = true, 0
		u := use("a", 1)
		e.Add(&u)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if s := e.Stats(); s.Failures != 3 || s.Err == nil || s.Pending != 0 || tries != 3 {
			t.Errorf("%d tries, %+v", tries, s)
		}
		failing = false
		if err := stop(); err != nil || e.Stats().Err != nil || len(read(t, path)) != 1 {
			t.Errorf("%v, %+v", err, e.Stats())
		}
	})
}

// C138: a stop on a full disk says how many events are lost, in the log and by its error.
func TestClose_C138_SaysHowManyAreLost(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	c := config(t, ledger.Config{Log: zerolog.New(&log)})
	synctest.Test(t, func(t *testing.T) {
		e, _ := openFaulty(t, c, ledger.Faults{Write: func(*os.File, []byte) (int, error) { return 0, syscall.ENOSPC }})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- e.Run(ctx) }()
		for i := range 534 {
			u := use(fmt.Sprint("org:", i), 1)
			e.Add(&u)
		}
		time.Sleep(2 * time.Second)
		stop()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run ended with %v, which is for Close to tell", err)
		}
		err := e.Close()
		if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "534 usage events could not be written and are lost") {
			t.Error(err)
		}
		if !strings.Contains(log.String(), `"events":534,"message":"usage events could not be written and are lost"`) {
			t.Errorf("log: %s", log.String())
		}
	})
}

// Values that differ only in bytes that are not UTF-8 stay two, and so does one that looks
// like the other's escape.
func TestEvents_C23_BytesThatAreNotUTF8(t *testing.T) {
	t.Parallel()
	e, path := open(t, config(t, ledger.Config{}))
	for _, value := range []string{"a\xff", "a\xfe", "a\xff%", "\xc3\x28é", "100%", "a%FF", "a%25FF", "%20%C3", "%%\x80", "%8\x80", "%c3%2F"} {
		u := use("org:a", 1)
		u.Attribution = value
		e.Add(&u)
	}
	flush(t, e)
	var got []string
	for _, event := range read(t, path) {
		got = append(got, event.Data.Attribution)
	}
	slices.Sort(got)
	if want := []string{"%%%80", "%20%25C3", "%8%80", "%C3(é", "%c3%2F", "100%", "a%2525FF", "a%25FF", "a%FE", "a%FF", "a%FF%"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
