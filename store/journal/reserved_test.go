//go:build linux || darwin

package journal_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/meteproject/mete/store/journal"
)

// openReserved opens a journal with its reservations.
func openReserved(t *testing.T, dir string) (*journal.Journal, *journal.Reserved) {
	t.Helper()
	j, _ := open(t, dir)
	r, full, err := j.OpenReserved()
	if err != nil || full != nil {
		t.Fatal(err, full)
	}
	return j, r
}

// tokensOf are what processes before have left.
func tokensOf(r *journal.Reserved) (all []string) {
	for token := range r.Left() {
		all = append(all, string(token))
	}
	return all
}

// The tokens of the latest four processes that had any are there (issue 12, D4).
func TestReserved_C134_OutliveTheProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for process := range 7 {
		j, r := openReserved(t, dir)
		var want []string
		for before := max(0, process-4); before < process; before++ {
			if before != 5 {
				want = append(want, fmt.Sprint(before), strings.Repeat("x", before*100))
			}
		}
		if process == 6 {
			want = append([]string{"1", strings.Repeat("x", 100)}, want...)
		}
		if got := tokensOf(r); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("process %d has %v, want %v", process, got, want)
		}
		if process != 5 { // that one leaves nothing, and takes nobody's place
			r.Keep([]byte(fmt.Sprint(process)))
			r.Keep([]byte(strings.Repeat("x", process*100)))
		}
		closed(t, j)
	}
}

// The latest are kept whole however many there were, from many goroutines.
func TestReserved_C134_TheOldestMakeRoom(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j, r := openReserved(t, dir)
	const writers, each = 4, 20_000
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				r.Keep(fmt.Appendf(nil, "%d!%d!%s", w, i, strings.Repeat("y", i%500)))
			}
		})
	}
	wg.Wait()
	closed(t, j)
	_, r = openReserved(t, dir)
	have := map[string]bool{}
	for _, token := range tokensOf(r) {
		name, _, _ := strings.Cut(token, "!y")
		have[name] = true
		if strings.Trim(token[strings.LastIndexByte(token, '!')+1:], "y") != "" {
			t.Fatalf("half a token: %.60s", token)
		}
	}
	if len(have) < 20_000 || len(have) >= writers*each {
		t.Errorf("%d tokens", len(have))
	}
}

// A full disk keeps nothing from working, and what is damaged, or was there before the
// machine went down, is passed over.
func TestReserved_P68_Troubles(t *testing.T) {
	t.Parallel()
	j, _ := open(t, t.TempDir())
	j.SetAllocate(func(*os.File, int) error { return unix.ENOSPC })
	r, full, err := j.OpenReserved()
	if err != nil || !errors.Is(full, unix.ENOSPC) {
		t.Fatal(err, full)
	}
	r.Keep([]byte("token"))
	for name, damage := range map[string]func([]byte) []byte{
		"a byte of a token": func(b []byte) []byte { b[journal.HeaderEnd+14]++; return b },
		"a length":          func(b []byte) []byte { b[journal.HeaderEnd+7] = 0xff; return b },
		"short":             func(b []byte) []byte { return b[:len(b)/2] },
		"another boot":      func(b []byte) []byte { return journal.OfAnotherBoot(b) },
	} {
		dir := t.TempDir()
		j, r := openReserved(t, dir)
		r.Keep([]byte("first"))
		if name != "a byte of a token" && name != "a length" {
			r.Keep([]byte("second"))
		}
		closed(t, j)
		path := filepath.Join(dir, "reserved", files(t, filepath.Join(dir, "reserved"))[0])
		b, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path, damage(b), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, r = openReserved(t, dir); len(tokensOf(r)) != 0 {
			t.Errorf("%s: %q", name, tokensOf(r))
		}
	}
}

// What a killed process has said that it kept is there.
func TestReserved_C134_AKilledProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	said := kill(t, dir, "reserve", 20_000)
	_, r := openReserved(t, dir)
	have := map[string]bool{}
	for _, token := range tokensOf(r) {
		have[token] = true
	}
	for n := range len(said) / 5 {
		if !have[fmt.Sprint("token", n)] {
			t.Fatalf("token %d of %d is lost", n, len(said)/5)
		}
	}
}

// BenchmarkReserved_Keep is what a decision pays for a token that outlives it.
func BenchmarkReserved_Keep(b *testing.B) {
	j, _, err := journal.Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	r, _, err := j.OpenReserved()
	if err != nil {
		b.Fatal(err)
	}
	token := []byte(strings.Repeat("t", 300))
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r.Keep(token)
		}
	})
}
