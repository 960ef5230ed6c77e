//go:build linux || darwin

package journal_test

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store/journal"
)

// killed leaves a journal with three orphans and returns the path of its file.
func killed(t *testing.T, dir string) string {
	t.Helper()
	j, _ := open(t, dir)
	for _, tenant := range []string{"a", "b", "c"} {
		j.Open(key(tenant), "api", "h").Used(5, wall)
	}
	closed(t, j)
	return filepath.Join(dir, files(t, dir)[0])
}

func edit(t *testing.T, path string, change func([]byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, change(b), 0o600); err != nil {
		t.Fatal(err)
	}
}

func flip(at int) func([]byte) []byte {
	return func(b []byte) []byte { b[at] ^= 0x40; return b }
}

func TestOpen_FilesThatAreDamaged(t *testing.T) {
	t.Parallel()
	keys := journal.HeaderEnd + journal.FirstSlots*journal.SlotBytes
	for _, c := range []struct {
		name    string
		change  func([]byte) []byte
		orphans int
		damaged int
		problem string
		stays   bool
	}{
		{"whole", func(b []byte) []byte { return b }, 3, 0, "", false},
		{"a letter of a key", flip(keys + 5), 2, 1, "", false},
		{"a length of a key", flip(keys + 1), 2, 1, "", false},
		{"the state of a slot", flip(journal.HeaderEnd + 5), 2, 1, "", false},
		{"the checksum of a slot", flip(journal.HeaderEnd), 2, 1, "", false},
		{"a number that no purse counts to", flip(journal.HeaderEnd + 16 + 7), 2, 1, "", false},
		{"cut in the keys", func(b []byte) []byte { return b[:keys+256+10] }, 1, 2, "lacks", false},
		{"cut in the numbers", func(b []byte) []byte { return b[:journal.HeaderEnd+70] }, 0, 1, "lacks", false},
		{"cut in the header", func(b []byte) []byte { return b[:30] }, 0, 0, "damaged at its beginning", false},
		{"empty", func(b []byte) []byte { return b[:0] }, 0, 0, "damaged at its beginning", false},
		{"zeros", func(b []byte) []byte { clear(b); return b }, 0, 0, "damaged at its beginning", false},
		{"the header", flip(13), 0, 0, "damaged at its beginning", false},
		{"longer than it says", func(b []byte) []byte { return append(b, make([]byte, 1000)...) }, 3, 0, "", false},
		{"another version", func(b []byte) []byte {
			binary.NativeEndian.PutUint32(b[journal.VersionAt:], 7)
			return b
		}, 0, 0, "start that version on this directory once", true},
		{"something else", func([]byte) []byte { return []byte("SQLite format 3") }, 0, 0, "move it elsewhere", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path := killed(t, dir)
			edit(t, path, c.change)
			j, left, err := journal.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = j.Close() })
			if len(left.Orphans) != c.orphans || left.Damaged != c.damaged {
				t.Errorf("%d orphans and %d damaged, want %d and %d", len(left.Orphans), left.Damaged, c.orphans, c.damaged)
			}
			if (c.problem == "") != (len(left.Problems) == 0) {
				t.Errorf("problems: %v, want %q", left.Problems, c.problem)
			}
			for _, p := range left.Problems {
				if !strings.Contains(p.Error(), c.problem) || !strings.Contains(p.Error(), path) {
					t.Errorf("problem %q, want %s and %q", p, path, c.problem)
				}
			}
			if err := j.Settled(); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(path); (err == nil) != c.stays {
				t.Errorf("the file stays: %v, want %v", err == nil, c.stays)
			}
			closed(t, j)
		})
	}
}

// What is not a journal's is not touched; a file that was never finished is removed.
func TestOpen_OtherFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := killed(t, dir)
	others := []string{"README", "x.cells", "1.cells", "00000001.cells.bak", "-0000001.cells"}
	for _, name := range others {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "00000009.cells"), 0o700); err != nil {
		t.Fatal(err)
	}
	half := path + ".making"
	if err := os.WriteFile(half, []byte("metejrnl"), 0o600); err != nil {
		t.Fatal(err)
	}
	j, orphans := open(t, dir)
	if len(orphans) != 3 {
		t.Errorf("%d orphans, want 3", len(orphans))
	}
	if err := j.Settled(); err != nil {
		t.Fatal(err)
	}
	closed(t, j)
	if got := files(t, dir); len(got) != len(others)+1 {
		t.Errorf("left: %v, want %v and a directory", got, others)
	}
}

func TestOpen_AFileThatMayNotBeRead(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 {
		t.Skip("root may read everything")
	}
	dir := t.TempDir()
	path := killed(t, dir)
	if err := os.Chmod(path, 0); err != nil {
		t.Fatal(err)
	}
	j, left, err := journal.Open(dir)
	if err != nil || len(left.Problems) != 1 || !strings.Contains(left.Problems[0].Error(), path) {
		t.Fatalf("problems %v, %v; want one of %s", left.Problems, err, path)
	}
	if err := j.Settled(); err != nil {
		t.Fatal(err)
	}
	closed(t, j)
	if got := files(t, dir); len(got) != 1 {
		t.Errorf("left %v, want the file that could not be read", got)
	}
}

// What was remembered before the machine itself went down may be older than what was
// reported.
func TestOpen_A45_AMachineThatWentDown(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b, err := os.ReadFile(killed(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	for boot, stale := range map[string]bool{journal.Boot(): journal.Boot() == "", "another": true, "": true} {
		orphans, damaged, err := journal.Parse(b, boot)
		if err != nil || damaged != 0 || len(orphans) != 3 {
			t.Fatalf("%d orphans, %d damaged, %v", len(orphans), damaged, err)
		}
		for _, o := range orphans {
			if o.Stale != stale {
				t.Errorf("booted as %q: stale %v, want %v", boot, o.Stale, stale)
			}
		}
	}
	b = journal.Small(1, 96, "")
	journal.Put(b, 0, quota.Orphan{Key: key("a")})
	if orphans, _, err := journal.Parse(b, ""); err != nil || len(orphans) != 1 || !orphans[0].Stale {
		t.Errorf("where nobody knows when the machine went down: %+v, %v; want it stale", orphans, err)
	}
}

func TestParse_FindsWhatWasPut(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringN(0, 8, 12)
		units := rapid.Int64Range(-quota.MaxUnits, quota.MaxUnits)
		want := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) quota.Orphan {
			o := quota.Orphan{
				Key: quota.Key{Root: name.Draw(t, "root"), Tenant: name.Draw(t, "tenant"), Limit: name.Draw(t, "limit"), Window: name.Draw(t, "window")},
				App: name.Draw(t, "app"), Holder: name.Draw(t, "holder"),
				Used: units.Draw(t, "used"), Reported: units.Draw(t, "reported"), Wall: rapid.Int64().Draw(t, "wall"),
			}
			if rapid.Bool().Draw(t, "unbased") {
				o.Used += quota.Unbased
			}
			return o
		}), 0, 8).Draw(t, "orphans")
		b := journal.Small(8, 96, "b")
		for i, o := range want {
			journal.Put(b, i, o)
		}
		got, damaged, err := journal.Parse(b, "b")
		if err != nil || damaged != 0 || len(got) != len(want) {
			t.Fatalf("%d orphans, %d damaged, %v; want %d", len(got), damaged, err, len(want))
		}
		for i := range got {
			if got[i].Key != want[i].Key || got[i].App != want[i].App || got[i].Holder != want[i].Holder ||
				got[i].Used != want[i].Used || got[i].Reported != want[i].Reported || got[i].Wall != want[i].Wall {
				t.Fatalf("got %+v, want %+v", got[i], want[i])
			}
		}
	})
}

// FuzzParse: no file crashes the reader or makes it return more than there is. The
// part of the header that is always empty is left out of what is fuzzed.
func FuzzParse(f *testing.F) {
	const head = 64
	whole := journal.Small(3, 96, "b")
	journal.Put(whole, 1, quota.Orphan{Key: key("a"), App: "api", Holder: "h", Used: 5, Reported: 3, Wall: wall})
	f.Add(whole[:head], whole[journal.HeaderEnd:])
	f.Add(whole[:head], whole[journal.HeaderEnd:len(whole)-50])
	f.Add(whole[:head], whole[journal.HeaderEnd:journal.HeaderEnd+10])
	f.Add(journal.Small(300, 0, "b")[:head], whole[journal.HeaderEnd:])
	f.Add(journal.Small(2, 9, "")[:head], whole[journal.HeaderEnd:])
	f.Add([]byte("metejrnl"), []byte{})
	f.Fuzz(func(t *testing.T, start, rest []byte) {
		b := append([]byte{}, start...)
		if len(rest) > 0 {
			b = append(b, make([]byte, max(0, journal.HeaderEnd-len(b)))...)
		}
		b = append(b, rest...)
		orphans, damaged, _ := journal.Parse(b, "b")
		if most := max(0, len(b)-journal.HeaderEnd) / journal.SlotBytes; len(orphans)+damaged > most {
			t.Errorf("%d orphans and %d damaged of %d slots", len(orphans), damaged, most)
		}
	})
}
