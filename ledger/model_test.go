package ledger_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/meteproject/mete/ledger"
)

// A disk tears writes and fails as told.
type disk struct{ write, truncate, sync int } // how many of the next calls fail

func fails(n *int) bool {
	if *n == 0 {
		return false
	}
	*n--
	return true
}

func (d *disk) faults(t *rapid.T) ledger.Faults {
	return ledger.Faults{
		Write: func(f *os.File, b []byte) (int, error) {
			if !fails(&d.write) {
				return f.Write(b)
			}
			n, _ := f.Write(b[:rapid.IntRange(0, len(b)).Draw(t, "torn at")])
			return n, errors.New("torn")
		},
		Truncate: func(f *os.File, n int64) error {
			if fails(&d.truncate) {
				return errors.New("not truncated")
			}
			return f.Truncate(n)
		},
		Sync: func(*os.File) error {
			if fails(&d.sync) {
				return errors.New("not synced")
			}
			return nil
		},
	}
}

// Whatever the disk does, and over rotations and restarts: each unit that was added is
// in one line, or counted as dropped, and no id is there twice.
func TestModel_Q49_C138_EveryUnitIsInOneLine(t *testing.T) {
	t.Parallel()
	dir, runs := t.TempDir(), 0
	rapid.Check(t, func(t *rapid.T) {
		runs++
		m := &model{dir: filepath.Join(dir, strconv.Itoa(runs)), added: make(map[string]int64)}
		if err := os.Mkdir(m.dir, 0o700); err != nil {
			t.Fatal(err)
		}
		m.start(t)
		t.Repeat(map[string]func(*rapid.T){
			"add":     m.add,
			"storm":   m.storm,
			"fail":    m.fail,
			"flush":   func(*rapid.T) { _ = m.events.Flush() },
			"rotate":  m.rotate,
			"restart": func(t *rapid.T) { m.stop(t); m.start(t) },
			"":        m.bounded,
		})
		m.stop(t)
		m.audit(t)
	})
}

type model struct {
	dir     string
	disk    disk
	events  *ledger.Events
	process uint64
	rotated int
	added   map[string]int64 // by outcome, without what was dropped
}

func (m *model) path() string { return filepath.Join(m.dir, "usage") }

func (m *model) start(t *rapid.T) {
	m.process++
	var err error
	m.events, err = ledger.NewFaulty(ledger.Config{
		Path: m.path(), Source: "mete/r", Process: m.process, MaxGroups: 40, Now: func() time.Time { return noon },
	}, m.disk.faults(t))
	if err != nil {
		t.Fatal(err)
	}
}

// stop ends a process whose disk works again.
func (m *model) stop(t *rapid.T) {
	m.disk = disk{}
	if err := m.events.Close(); err != nil {
		t.Fatal(err)
	}
	for o, n := range m.events.Stats().Dropped {
		m.added[o.Word()] -= n
	}
}

// note remembers u.
func (m *model) note(u *ledger.Use) { m.added[u.Outcome.Word()] += u.Units }

func drawUse(t *rapid.T) ledger.Use {
	u := use(rapid.SampledFrom([]string{"a", "b", `"c`}).Draw(t, "tenant"), rapid.Int64Range(0, 1000).Draw(t, "units"))
	u.Outcome = rapid.SampledFrom([]ledger.Outcome{ledger.Counted, ledger.Refunded}).Draw(t, "outcome")
	u.Attribution = strconv.Itoa(rapid.IntRange(0, 60).Draw(t, "attribution"))
	return u
}

func (m *model) add(t *rapid.T) {
	u := drawUse(t)
	m.events.Add(&u)
	m.note(&u)
}

// storm adds from several goroutines while it is flushed.
func (m *model) storm(t *rapid.T) {
	uses := rapid.SliceOfN(rapid.Custom(drawUse), 1, 20).Draw(t, "uses")
	var adders sync.WaitGroup
	for i := range uses {
		m.note(&uses[i])
		adders.Go(func() { m.events.Add(&uses[i]) })
	}
	_ = m.events.Flush()
	adders.Wait()
}

func (m *model) fail(t *rapid.T) {
	m.disk.write = rapid.IntRange(0, 3).Draw(t, "writes")
	m.disk.truncate = rapid.IntRange(0, 3).Draw(t, "truncates")
	m.disk.sync = rapid.IntRange(0, 2).Draw(t, "syncs")
}

func (m *model) rotate(t *rapid.T) {
	m.disk = disk{}
	m.rotated++
	if err := os.Rename(m.path(), m.path()+strconv.Itoa(m.rotated)); err != nil {
		t.Fatal(err)
	}
	if err := m.events.Reopen(); err != nil {
		t.Fatal(err)
	}
}

func (m *model) bounded(t *rapid.T) {
	if s := m.events.Stats(); s.Groups > 40 || s.Pending < 0 || s.Pending > 2*40 {
		t.Fatalf("%+v", s)
	}
}

// audit reads all files as a bill would.
func (m *model) audit(t *rapid.T) {
	files, err := filepath.Glob(m.path() + "*")
	if err != nil {
		t.Fatal(err)
	}
	got, seen := make(map[string]int64), make(map[string]bool)
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			e := parse(t, line)
			if seen[e.ID] {
				t.Fatalf("id %s twice", e.ID)
			}
			seen[e.ID] = true
			got[e.Data.Outcome] += e.Data.Quantity
		}
	}
	for _, o := range []string{"counted", "refunded"} {
		if got[o] != m.added[o] {
			t.Fatalf("%d units %s, %d are written", m.added[o], o, got[o])
		}
	}
}
