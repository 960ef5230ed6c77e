//go:build linux || darwin

package journal_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store/journal"
)

func TestJournal_GrowsAndReuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j, _ := open(t, dir)
	const n = 2*journal.FirstSlots + 10
	var all []quota.Cell
	for i := range n {
		c := j.Open(key(fmt.Sprintf("%06d", i)), "api", "h")
		c.Used(int64(i), wall)
		all = append(all, c)
	}
	full := j.Stats()
	if full.Cells != n || full.Chunks < 3 || full.Chunks > 4 || full.WithoutRoom != 0 {
		t.Errorf("stats: %+v", full)
	}
	for i, c := range all {
		if i%2 == 0 {
			c.Close()
		}
	}
	for i := range n / 2 {
		j.Open(key(fmt.Sprintf("x%06d", i)), "api", "h").Reported(-5)
	}
	if st := j.Stats(); st.Cells != n || st.Chunks > 4 {
		t.Errorf("stats after half of them were reused: %+v", st)
	}
	for i, c := range all {
		if i%2 == 1 {
			c.Used(int64(i+1), wall)
		}
	}
	closed(t, j)
	_, orphans := open(t, dir)
	if len(orphans) != n {
		t.Fatalf("%d orphans, want %d", len(orphans), n)
	}
	for i, o := range orphans {
		if i < n/2 && (o.Key.Tenant != fmt.Sprintf("%06d", 2*i+1) || o.Used != int64(2*i+2) || o.Reported != 0) ||
			i >= n/2 && (o.Used != quota.Unbased || o.Reported != -5 || o.Wall != 0) {
			t.Fatalf("orphan %d: %+v", i, o)
		}
	}
}

// Where the disk is full cells remember nothing, and the disk is not asked for each of
// them. Once there is room again they do.
func TestJournal_ADiskThatIsFull(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		j, _ := open(t, dir)
		asked := 0
		j.SetAllocate(func(f *os.File, _ int) error {
			asked++
			_ = f.Truncate(100)
			return unix.ENOSPC
		})
		const more = 100
		for i := range journal.FirstSlots + more {
			j.Open(key(fmt.Sprint(i)), "api", "h").Used(1, wall)
		}
		st := j.Stats()
		if st.Cells != journal.FirstSlots || st.WithoutRoom != more || st.Err == nil || !strings.Contains(st.Err.Error(), dir) {
			t.Errorf("stats: %+v", st)
		}
		if asked != 1 {
			t.Errorf("asked the disk %d times", asked)
		}
		time.Sleep(journal.RetryAfter + time.Second)
		j.SetAllocate(journal.Zeros)
		j.Open(key("again"), "api", "h").Used(1, wall)
		if st := j.Stats(); st.Cells != journal.FirstSlots+1 || st.WithoutRoom != more || st.Err != nil {
			t.Errorf("stats once there is room: %+v", st)
		}
		closed(t, j)
		if left := files(t, dir); len(left) != 2 {
			t.Errorf("files: %v, want two", left)
		}
		if _, orphans := open(t, dir); len(orphans) != journal.FirstSlots+1 {
			t.Errorf("%d orphans", len(orphans))
		}
	})
}

func TestJournal_RoomIsRealAndNotSparse(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func(*os.File, int) error{"allocate": journal.Allocate, "zeros": journal.Zeros} {
		f, err := os.Create(filepath.Join(t.TempDir(), name))
		if err != nil {
			t.Fatal(err)
		}
		const size = 300_001
		if err := make(f, size); err != nil {
			t.Fatal(err)
		}
		var st unix.Stat_t
		if err := unix.Fstat(int(f.Fd()), &st); err != nil || st.Size != size || st.Blocks*512 < size {
			t.Errorf("%s: %d bytes in %d blocks, %v", name, st.Size, st.Blocks, err)
		}
		_ = f.Close()
	}
}
