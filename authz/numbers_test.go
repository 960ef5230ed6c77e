package authz_test

import (
	"testing"
	"time"

	"github.com/meteproject/mete/authz"
)

// A numbersDesk is the numbers of a process in a test, and its clock.
type numbersDesk struct {
	t   *testing.T
	n   authz.Numbers
	now time.Time
}

func (d *numbersDesk) take(n int) {
	for range n {
		d.n.Take(d.now)
	}
}

func (d *numbersDesk) settle(number uint64, want authz.Settled) {
	d.t.Helper()
	if got := d.n.Settle(number, d.now); got != want {
		d.t.Errorf("number %d is %q, want %q", number, got.Word(), want.Word())
	}
}

func (d *numbersDesk) mustOpen(unsettled, missing int64) {
	d.t.Helper()
	if u, m := d.n.Open(); u != unsettled || m != missing {
		d.t.Errorf("%d are unsettled and %d missing, want %d and %d", u, m, unsettled, missing)
	}
}

// Each number is settled once, also when all of its page are, which takes no memory then.
func TestNumbers_C134_OnceEach(t *testing.T) {
	t.Parallel()
	d := &numbersDesk{t: t, now: time.Now()}
	d.take(authz.PageNumbers + 9)
	for i := range uint64(authz.PageNumbers - 1) {
		d.settle(i+1, 0)
	}
	if pages := d.n.Bits(); pages != 0 {
		t.Errorf("%d pages take memory of which all is settled", pages)
	}
	for i := range uint64(authz.PageNumbers) { // and the first of the next page
		d.settle(authz.PageNumbers+i, 0)
	}
	for _, number := range []uint64{1, 77, authz.PageNumbers - 1, authz.PageNumbers, 2*authz.PageNumbers - 1} {
		d.settle(number, authz.SettledBefore)
	}
}

// What is settled and what is not adds up.
func TestNumbers_A26_AddUp(t *testing.T) {
	t.Parallel()
	d := &numbersDesk{t: t, now: time.Now()}
	d.take(10)
	d.settle(3, 0)
	d.settle(3, authz.SettledBefore)
	d.settle(4, 0)
	d.mustOpen(8, 0)
	d.take(authz.PageNumbers)
	d.mustOpen(8+authz.PageNumbers, 0)
	d.now = d.now.Add(24*time.Hour + time.Second)
	d.take(authz.PageNumbers) // turns a page: the last one began more than a day ago, so the first is older
	d.mustOpen(2*authz.PageNumbers+8-(authz.PageNumbers-1-2), authz.PageNumbers-1-2)
	d.settle(5, authz.SettledLate)
	d.settle(3, authz.SettledLate)
	d.settle(authz.PageNumbers, 0) // of a page that is not all older than a day
	d.mustOpen(2*authz.PageNumbers+7-(authz.PageNumbers-1-2), authz.PageNumbers-1-2)
}

// A day keeps a page however many come after it, up to as many as fit.
func TestNumbers_A26_C134_Bounds(t *testing.T) {
	t.Parallel()
	d := &numbersDesk{t: t, now: time.Now()}
	for range authz.MaxPages - 1 {
		d.take(authz.PageNumbers)
		d.now = d.now.Add(time.Minute)
	}
	d.settle(1, 0)
	d.take(authz.PageNumbers) // one page too many
	d.settle(1, authz.SettledLate)
	d.settle(authz.PageNumbers, 0)
	if _, missing := d.n.Open(); missing != authz.PageNumbers-2 {
		t.Errorf("%d are missing, want all of the first page but one", missing)
	}
}

// Numbers of another process come in any order, and none twice.
func TestNumbers_C134_OfAnother(t *testing.T) {
	t.Parallel()
	d := &numbersDesk{t: t, now: time.Now()}
	const first = 2000 * authz.PageNumbers
	for _, number := range []uint64{first, first - 100*authz.PageNumbers, first + 300*authz.PageNumbers, first - 1, first + 1} {
		d.settle(number, 0)
		d.settle(number, authz.SettledBefore)
	}
	d.settle(5, authz.SettledLate)
}

// An old number of a process that is gone, of a page that nobody has heard of while the
// next one came of age, is late and no more.
func TestNumbers_A26_C135_AnOldPageOfAnother(t *testing.T) {
	t.Parallel()
	d := &numbersDesk{t: t, now: time.Now()}
	d.settle(authz.PageNumbers+1, 0)
	d.now = d.now.Add(25 * time.Hour)
	d.settle(1, authz.SettledLate)
	d.settle(authz.PageNumbers+1, authz.SettledBefore)
	d.settle(authz.PageNumbers+2, 0)
}
