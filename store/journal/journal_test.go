//go:build linux || darwin

package journal_test

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store/journal"
)

const wall = int64(1_700_000_000_000_000_000)

func key(tenant string) quota.Key {
	return quota.Key{Root: "org:acme", Tenant: tenant, Limit: "monthly", Window: "2026-11"}
}

// open opens dir's journal, without anything wrong in it.
func open(tb testing.TB, dir string) (*journal.Journal, []quota.Orphan) {
	tb.Helper()
	j, left, err := journal.Open(dir)
	if err != nil {
		tb.Fatal(err)
	}
	if left.Damaged != 0 || len(left.Problems) != 0 {
		tb.Fatalf("%d slots damaged, problems %v", left.Damaged, left.Problems)
	}
	tb.Cleanup(func() { _ = j.Close() })
	return j, plain(left.Orphans)
}

// plain sorts orphans and makes them comparable.
func plain(orphans []quota.Orphan) []quota.Orphan {
	orphans = slices.Clone(orphans)
	for i := range orphans {
		orphans[i].Keep = nil
	}
	slices.SortFunc(orphans, func(a, b quota.Orphan) int {
		return cmp.Or(cmp.Compare(a.Key.Tenant, b.Key.Tenant), cmp.Compare(a.Holder, b.Holder))
	})
	return orphans
}

func same(tb testing.TB, got, want []quota.Orphan) {
	tb.Helper()
	if !slices.EqualFunc(got, want, func(a, b quota.Orphan) bool { return fmt.Sprintf("%+v", a) == fmt.Sprintf("%+v", b) }) {
		tb.Errorf("orphans: got\n%+v, want\n%+v", got, want)
	}
}

func files(tb testing.TB, dir string) []string {
	tb.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		tb.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func closed(tb testing.TB, j *journal.Journal) {
	tb.Helper()
	if err := j.Close(); err != nil {
		tb.Fatal(err)
	}
}

func TestJournal_P68_WhatCellsRememberOutlivesTheProcess(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data", "journal") // is made
	j, orphans := open(t, dir)
	same(t, orphans, nil)
	a, b, c := j.Open(key("a"), "api", "one-1"), j.Open(key("b"), "", "one-1"), j.Open(key("c"), "api", "one-1")
	a.Used(7, wall)
	a.Used(9, wall+1) // the time is kept by the second
	a.Reported(7)
	b.Used(quota.Unbased-3, wall)
	b.Used(quota.Unbased-4, wall+int64(time.Minute))
	c.Used(1, wall)
	c.Close()
	j.Open(key("e"), "api", "one-2")
	j.Open(key("d"), "api", "one-2").Used(2, wall-int64(time.Hour)) // a clock may be set back
	if st := j.Stats(); st.Cells != 4 || st.Chunks != 1 || st.WithoutRoom != 0 || st.Err != nil {
		t.Errorf("stats: %+v", st)
	}
	closed(t, j) // with open cells: as if killed
	_, orphans = open(t, dir)
	same(t, orphans, []quota.Orphan{
		{Key: key("a"), App: "api", Holder: "one-1", Used: 9, Reported: 7, Wall: wall},
		{Key: key("b"), Holder: "one-1", Used: quota.Unbased - 4, Wall: wall + int64(time.Minute)},
		{Key: key("d"), App: "api", Holder: "one-2", Used: 2, Wall: wall - int64(time.Hour)},
		{Key: key("e"), App: "api", Holder: "one-2", Used: quota.Unbased}, // nothing yet, on top of what is known
	})
}

// A second kill while the first one's use is recovered loses nothing; what is settled
// is gone.
func TestJournal_A47_OldFilesStayUntilTheyAreSettled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i := range 3 {
		j, orphans := open(t, dir)
		if len(orphans) != i {
			t.Errorf("run %d found %d orphans", i, len(orphans))
		}
		j.Open(key(fmt.Sprint(i)), "api", "h").Used(int64(i), wall)
		closed(t, j)
	}
	j, left, err := journal.Open(dir)
	if err != nil || len(left.Orphans) != 3 {
		t.Fatalf("%d orphans, %v; want 3", len(left.Orphans), err)
	}
	cell := j.Open(key("mine"), "api", "h")
	if err := left.Orphans[1].Keep(41, 40); err != nil {
		t.Fatal(err)
	}
	closed(t, j)
	j, orphans := open(t, dir)
	if len(orphans) != 4 || orphans[1].Used != 41 || orphans[1].Reported != 40 || orphans[1].Wall != left.Orphans[1].Wall {
		t.Errorf("got %+v, want the second to be 41, of which 40 are reported", orphans)
	}
	for range 2 {
		if err := j.Settled(); err != nil {
			t.Fatal(err)
		}
	}
	cell.Close() // of a journal that is closed: does no harm
	closed(t, j)
	if left := files(t, dir); len(left) != 0 {
		t.Errorf("a clean stop leaves %v", left)
	}
}

// A process that is killed again and again while etcd is away does not fill the disk
// with files that remember nothing.
func TestOpen_FilesThatRememberNothingGoAtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := killed(t, dir)
	for range 3 {
		j, orphans := open(t, dir)
		if got := files(t, dir); len(orphans) != 3 || len(got) != 2 {
			t.Fatalf("%d orphans in %v; want 3, in the first file, and a new one", len(orphans), got)
		}
		mine := filepath.Join(dir, files(t, dir)[1])
		b, err := os.ReadFile(mine)
		if err != nil {
			t.Fatal(err)
		}
		closed(t, j)
		if err := os.WriteFile(mine, b, 0o600); err != nil { // as a kill leaves it
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("what remembers something: %v", err)
	}
}

func TestJournal_ACleanStopLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j, _ := open(t, dir)
	c := j.Open(key("a"), "api", "h")
	c.Used(1, wall)
	c.Close()
	c.Used(2, wall) // by mistake: does nothing
	c.Close()
	closed(t, j)
	closed(t, j)
	if left := files(t, dir); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	if c := j.Open(key("a"), "api", "h"); c == nil {
		t.Error("no cell of a closed journal")
	} else {
		c.Used(1, wall)
	}
}

// Two processes would both report what a third one had left, and each take the other's
// files for a dead one's.
func TestJournal_OneProcessAtATime(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j, _ := open(t, dir)
	_, _, err := journal.Open(dir)
	if err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "stop it, or choose another") {
		t.Errorf("got %v, want an error that names %s and says what to do", err, dir)
	}
	closed(t, j)
	open(t, dir)
}

func TestJournal_Names(t *testing.T) {
	t.Parallel()
	long := func(n int) string { return strings.Repeat("n", n-1) + "\xff" }
	longest := quota.Orphan{
		Key: quota.Key{Root: long(256), Tenant: long(256), Limit: long(128), Window: long(128)},
		App: long(128), Holder: long(280),
	}
	tooLong := longest
	tooLong.Holder = long(309)
	dir := t.TempDir()
	j, _ := open(t, dir)
	var want []quota.Orphan
	for _, o := range []quota.Orphan{{}, longest, {Holder: "\x00", App: "/"}, {Key: quota.Key{Tenant: long(245)}}, tooLong} {
		j.Open(o.Key, o.App, o.Holder).Used(3, wall)
		if o.Holder != tooLong.Holder {
			o.Used, o.Wall = 3, wall
			want = append(want, o)
		}
	}
	if st := j.Stats(); st.Cells != 4 || st.WithoutRoom != 1 || st.Chunks != 2 {
		t.Errorf("stats: %+v, want one cell without room, and a chunk for long names", st)
	}
	closed(t, j)
	_, orphans := open(t, dir)
	same(t, orphans, plain(want))
}

func TestOpen_Failures(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := journal.Open(file); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a file in place of the directory: got %v", err)
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o500); err != nil { //nolint:gosec // that is the point
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		t.Skip("root may write everywhere")
	}
	if _, _, err := journal.Open(dir); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("a directory that cannot be written to: got %v", err)
	}
}

// Many purses open, use and close cells at once; each finds its own again.
func TestJournal_ManyAtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j, _ := open(t, dir)
	const purses, rounds = 16, 600
	var wg sync.WaitGroup
	for p := range purses {
		wg.Go(func() {
			var open []quota.Cell
			for i := range rounds {
				c := j.Open(key(fmt.Sprintf("%d-%d", p, i)), "api", "h")
				c.Used(int64(p*rounds+i), wall)
				c.Reported(int64(i))
				if open = append(open, c); i%3 == 0 {
					open[0].Close()
					open = open[1:]
				}
				_ = j.Stats()
			}
		})
	}
	wg.Wait()
	const want = purses * rounds * 2 / 3
	if st := j.Stats(); st.Cells != want || st.WithoutRoom != 0 {
		t.Errorf("stats: %+v, want %d cells", st, want)
	}
	closed(t, j)
	_, orphans := open(t, dir)
	if len(orphans) != want {
		t.Errorf("%d orphans, want %d", len(orphans), want)
	}
	for _, o := range orphans {
		var p, i int
		if _, err := fmt.Sscanf(o.Key.Tenant, "%d-%d", &p, &i); err != nil || o.Used != int64(p*rounds+i) || o.Reported != int64(i) {
			t.Fatalf("orphan %+v", o)
		}
	}
}
