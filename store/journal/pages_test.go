//go:build linux || darwin

package journal_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meteproject/mete/store/journal"
)

var pageTime = time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)

// openPages opens a journal with its pages, without anything wrong in them.
func openPages(t *testing.T, dir string, now time.Time) (*journal.Journal, *journal.Pages, []*journal.Page) {
	t.Helper()
	j, _ := open(t, dir)
	p, left, problems, err := j.OpenPages(now)
	if err != nil || len(problems) > 0 {
		t.Fatal(err, problems)
	}
	return j, p, left
}

// What was settled, reported and taken outlives the process, orderly ended or not, and
// goes on where it is: so it outlives the next one, too.
func TestPages_C134_OutliveTheProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j, p, left := openPages(t, dir, pageTime)
	if len(left) != 0 {
		t.Fatalf("%d pages in a new directory", len(left))
	}
	one, gone := p.Page(7, 3, pageTime, true), p.Page(8, 0, pageTime, false)
	one.Settled[5], one.Reported[6] = 1<<9, 1<<63
	one.Taken.Add(11)
	one.Left.Store(2)
	gone.Left.Store(1)
	gone.Settled[0] = 2
	gone.Close()
	for range 2 {
		p.Close()
		closed(t, j)
		if j, p, left = openPages(t, dir, pageTime.Add(time.Hour)); len(left) != 1 {
			t.Fatalf("%d pages left, want one", len(left))
		}
		l := left[0]
		if l.Process != 7 || l.Index != 3 || !l.Own || !l.Began.Equal(pageTime) || l.Taken.Load() != 11 || l.Left.Load() != 2 ||
			l.Settled[5] != 1<<9 || l.Reported[6] != 1<<63 || l.Settled[0] != 0 {
			t.Errorf("left %+v, taken %d", l, l.Taken.Load())
		}
	}
	fresh := p.Page(9, 0, pageTime, true)
	if fresh.Left.Load() != 0 {
		t.Error("a page that is opened was left by somebody")
	}
	for i := range fresh.Settled {
		if fresh.Settled[i]|fresh.Reported[i] != 0 {
			t.Fatal("a page that is opened has bits of another one")
		}
	}
}

// A page is forgotten a day after its process was found gone, however old it was then.
func TestPages_A26_AreForgottenADayAfterTheirProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j, p, _ := openPages(t, dir, pageTime)
	p.Page(7, 0, pageTime, true)
	late := pageTime.Add(100 * 24 * time.Hour)
	for _, step := range []struct {
		after time.Duration
		want  int
	}{{0, 1}, {23 * time.Hour, 1}, {25 * time.Hour, 0}, {0, 0}} {
		p.Close()
		closed(t, j)
		var left []*journal.Page
		if j, p, left = openPages(t, dir, late.Add(step.after)); len(left) != step.want {
			t.Errorf("%d pages left after %v, want %d", len(left), step.after, step.want)
		}
	}
	if n := len(files(t, filepath.Join(dir, "settled"))); n != 1 {
		t.Errorf("%d files, want one: those with nothing in them go", n)
	}
}

// Room is made before it is needed, and there is a bound.
func TestPages_C134_RoomIsBounded(t *testing.T) {
	t.Parallel()
	j, _ := open(t, t.TempDir())
	j.SetAllocate(func(f *os.File, size int) error { return f.Truncate(int64(size)) })
	p, _, _, err := j.OpenPages(pageTime)
	if err != nil {
		t.Fatal(err)
	}
	got := 0
	for p.Stats().WithoutRoom == 0 {
		if p.Page(1, uint64(got), pageTime, true) != nil {
			got++
		}
		p.WaitAhead()
	}
	if got != journal.MaxPages {
		t.Errorf("%d pages, want %d", got, journal.MaxPages)
	}
}

// A full disk keeps nothing from working: pages are remembered once there is room.
func TestPages_P68_AFullDiskIsWaitedFor(t *testing.T) {
	t.Parallel()
	j, _ := open(t, t.TempDir())
	j.SetAllocate(func(*os.File, int) error { return unix.ENOSPC })
	p, _, _, err := j.OpenPages(pageTime)
	if err != nil {
		t.Fatal(err)
	}
	if p.Page(1, 0, pageTime, true) != nil || !errors.Is(p.Stats().Err, unix.ENOSPC) || p.Stats().WithoutRoom != 1 {
		t.Errorf("stats %+v", p.Stats())
	}
	j2, _ := open(t, t.TempDir())
	j2.SetAllocate(func(*os.File, int) error { return unix.EIO })
	if _, _, _, err := j2.OpenPages(pageTime); !errors.Is(err, unix.EIO) {
		t.Errorf("error %v, want that of the disk", err)
	}
}

// Damaged files are removed and told of; those of another version are left alone.
func TestPages_P68_DamagedFiles(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func([]byte) []byte{
		"short":   func(b []byte) []byte { return b[:len(b)/2] },
		"header":  func(b []byte) []byte { b[20]++; return b },
		"version": func(b []byte) []byte { b[journal.VersionAt]++; return b },
		"foreign": func([]byte) []byte { return []byte("a file of somebody else") },
		"state":   func(b []byte) []byte { b[journal.HeaderEnd+8]++; return b },
	} {
		dir := t.TempDir()
		j, p, _ := openPages(t, dir, pageTime)
		p.Page(7, 0, pageTime, true).Settled[0] = 4
		p.Close()
		closed(t, j)
		path := filepath.Join(dir, "settled", files(t, filepath.Join(dir, "settled"))[0])
		b, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path, damage(b), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		j, _ = open(t, dir)
		_, left, problems, err := j.OpenPages(pageTime)
		if err != nil || len(left) != 0 || (len(problems) == 0) != (name == "state") {
			t.Errorf("%s: %d left, problems %v, error %v", name, len(left), problems, err)
		}
		_, err = os.Stat(path)
		if kept := err == nil; kept != (name == "version" || name == "foreign") {
			t.Errorf("%s: the file is there: %v", name, kept)
		}
	}
}

// A process that is killed while it settles has settled what it has said.
func TestPages_C134_AKilledProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	said := kill(t, dir, "settle", 20_000)
	_, _, left := openPages(t, dir, pageTime)
	if len(left) != 1 || left[0].Taken.Load() < int64(len(said)/5) {
		t.Fatalf("left %+v", left)
	}
	for n := range len(said) / 5 {
		if left[0].Settled[n/64]&(1<<(n%64)) == 0 {
			t.Fatalf("number %d of %d is not settled", n, len(said)/5)
		}
	}
}
