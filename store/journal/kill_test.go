//go:build linux || darwin

package journal_test

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store/journal"
	"github.com/meteproject/mete/store/storetest"
)

// The test binary runs itself as the process that is killed.
const (
	childDir  = "METE_TEST_JOURNAL_DIR"
	childWhat = "METE_TEST_JOURNAL_WHAT"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		j, _, err := journal.Open(dir)
		if err != nil {
			panic(err)
		}
		switch os.Getenv(childWhat) {
		case "spend":
			spend(j)
		case "open":
			openMany(j)
		case "settle":
			settleMany(j)
		case "reserve":
			reserveMany(j)
		}
		panic("a child ended by itself")
	}
	os.Exit(m.Run())
}

const spenders, pockets = 3, 7

// A spender goes through the same steps in the process that is killed and in the one
// that checks it. Cells are nil in the latter.
type spender struct {
	id       int
	journal  quota.Journal
	cells    [pockets]quota.Cell
	is       [pockets]quota.Orphan
	openings int
}

// step does the nth step: each is one change of what the journal has.
func (s *spender) step(n int) {
	i := n % pockets
	switch {
	case s.is[i].Holder == "":
		s.openings++
		s.is[i] = quota.Orphan{
			Key: key(fmt.Sprintf("%d-%d", s.id, i)), App: "api", Holder: fmt.Sprintf("h%d", s.openings), Used: quota.Unbased,
		}
		if s.journal != nil {
			s.cells[i] = s.journal.Open(s.is[i].Key, s.is[i].App, s.is[i].Holder)
		}
	case n%97 == 0:
		s.is[i] = quota.Orphan{}
		if c := s.cells[i]; c != nil {
			c.Close()
		}
	case n%5 == 0 && s.is[i].Used != quota.Unbased:
		s.is[i].Reported = s.is[i].Used
		if c := s.cells[i]; c != nil {
			c.Reported(s.is[i].Used)
		}
	default:
		if s.is[i].Used++; s.is[i].Used > quota.Unbased {
			s.is[i].Used = 1 // the first
		}
		if c := s.cells[i]; c != nil {
			c.Used(s.is[i].Used, wall)
		}
	}
}

// spend lets spenders do steps and say so after each, until it is killed.
func spend(j *journal.Journal) {
	for id := range spenders {
		go func() {
			s := spender{id: id, journal: j}
			for n := 0; ; n++ {
				s.step(n)
				said := binary.BigEndian.AppendUint32([]byte{byte(id)}, uint32(n+1))
				if _, err := os.Stdout.Write(said); err != nil {
					panic(err)
				}
			}
		}()
	}
	select {}
}

// openMany opens cells and says so after each, until it is killed.
func openMany(j *journal.Journal) {
	for n := 0; ; n++ {
		j.Open(key(fmt.Sprintf("%07d", n)), "api", "h").Used(int64(n), wall)
		if _, err := os.Stdout.Write([]byte{0, 0, 0, 0, 0}); err != nil {
			panic(err)
		}
	}
}

// settleMany takes and settles numbers and says so after each, until it is killed.
func settleMany(j *journal.Journal) {
	p, _, _, err := j.OpenPages(pageTime)
	if err != nil {
		panic(err)
	}
	page := p.Page(7, 0, pageTime, true)
	for n := range journal.PageNumbers {
		page.Taken.Add(1)
		page.Settled[n/64] |= 1 << (n % 64)
		if _, err := os.Stdout.Write([]byte{0, 0, 0, 0, 0}); err != nil {
			panic(err)
		}
	}
	select {}
}

// reserveMany keeps tokens and says so after each, until it is killed.
func reserveMany(j *journal.Journal) {
	r, _, err := j.OpenReserved()
	if err != nil {
		panic(err)
	}
	for n := range 50_000 { // they fit
		r.Keep(fmt.Append(nil, "token", n))
		if _, err := os.Stdout.Write([]byte{0, 0, 0, 0, 0}); err != nil {
			panic(err)
		}
	}
	select {}
}

// kill runs a child on dir until it has said something n times, kills it, and returns
// everything that it has said.
func kill(t *testing.T, dir, what string, n int) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0]) //nolint:gosec // itself
	cmd.Env = append(os.Environ(), childDir+"="+dir, childWhat+"="+what)
	cmd.Stderr = os.Stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	out := bufio.NewReader(pipe)
	said := make([]byte, 5*n)
	if _, err := io.ReadFull(out, said); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(out)
	if err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || !strings.Contains(exit.String(), "killed") {
		t.Fatalf("the child ended with %v, want it killed", err)
	}
	return append(said, rest...)
}

// TestKill_A45_A47_P68_C101: after kill -9 the journal has exactly what the process had
// done, to the unit, and an account to which it is reported has it too.
func TestKill_A45_A47_P68_C101_ToTheUnit(t *testing.T) {
	t.Parallel()
	for range 20 {
		dir := t.TempDir()
		var done [spenders]int
		for said := kill(t, dir, "spend", 1+rand.IntN(20_000)); len(said) >= 5; said = said[5:] {
			done[said[0]] = int(binary.BigEndian.Uint32(said[1:]))
		}
		_, orphans := open(t, dir)
		for id, n := range done {
			// The process may have been killed after a step, before it said so.
			if got := state(ofSpender(id, orphans)); got != expected(id, n) && got != expected(id, n+1) {
				t.Errorf("spender %d after %d steps:\ngot  %s\nwant %s\nor   %s", id, n, got, expected(id, n), expected(id, n+1))
			}
		}
		checkReported(t, orphans)
	}
}

// expected returns the state of a spender after n steps.
func expected(id, n int) string {
	s := spender{id: id}
	for i := range n {
		s.step(i)
	}
	var open []quota.Orphan
	for _, o := range s.is {
		if o.Holder != "" {
			open = append(open, o)
		}
	}
	return state(plain(open))
}

func state(orphans []quota.Orphan) string {
	var b strings.Builder
	for _, o := range orphans {
		fmt.Fprintf(&b, "%s/%s %d-%d ", o.Key.Tenant, o.Holder, o.Used, o.Reported)
	}
	return b.String()
}

func ofSpender(id int, orphans []quota.Orphan) (of []quota.Orphan) {
	for _, o := range orphans {
		if strings.HasPrefix(o.Key.Tenant, fmt.Sprintf("%d-", id)) {
			of = append(of, o)
		}
	}
	return of
}

// checkReported recovers orphans, over a store that loses answers, where their
// accounts know what was reported.
func checkReported(t *testing.T, orphans []quota.Orphan) {
	t.Helper()
	var m storetest.Memory
	for _, o := range orphans {
		for seq, op := range []quota.Operation{{Want: 50, Min: 1}, {Used: o.Reported, Hold: []quota.Lease{{ID: 1, Units: 9}}}} {
			op.Key, op.Holder, op.Seq, op.Ceiling = o.Key, o.Holder, uint64(seq+1), quota.MaxUnits
			if _, err := m.Apply(t.Context(), op); err != nil {
				t.Fatal(err)
			}
		}
	}
	lossy := storetest.LostReply(&m, 3)
	for _, o := range orphans {
		for {
			if _, err := quota.Recover(t.Context(), lossy, &o, wall); err == nil {
				break
			}
		}
		// Recover has made the use of an unused cell that of the account: nothing.
		if a := m.Account(o.Key); a.Used() != o.Used || a.Leased() != 0 {
			t.Errorf("%s: %d used and %d leased, want %d and none", o.Key.Tenant, a.Used(), a.Leased(), o.Used)
		}
	}
}

// A process that is killed while its journal grows leaves no half of anything.
func TestKill_P68_WhileTheJournalGrows(t *testing.T) {
	t.Parallel()
	for i := range 8 {
		dir := t.TempDir()
		n := len(kill(t, dir, "open", 1+i*1024+rand.IntN(1024))) / 5
		_, orphans := open(t, dir)
		if len(orphans) != n && len(orphans) != n+1 {
			t.Errorf("%d orphans, want %d or one more", len(orphans), n)
		}
		for i, o := range orphans {
			if o.Key != key(fmt.Sprintf("%07d", i)) || o.Used != int64(i) && (i < n || o.Used != quota.Unbased) {
				t.Fatalf("orphan %d: %+v", i, o)
			}
		}
		for _, name := range files(t, dir) {
			if strings.HasSuffix(name, ".making") {
				t.Errorf("%s is left", name)
			}
		}
	}
}
