package ledger_test

import (
	"strconv"
	"testing"

	"github.com/meteproject/mete/ledger"
)

func TestEvents_Q49_KnownGroupsDoNotAllocate(t *testing.T) {
	e, _ := open(t, ledger.Config{})
	u := use("org:acme", 1)
	e.Add(&u)
	if got := testing.AllocsPerRun(1000, func() { e.Add(&u) }); got != 0 {
		t.Errorf("%v allocations", got)
	}
}

func BenchmarkAdd(b *testing.B) {
	e, _ := open(b, ledger.Config{})
	u := use("org:acme", 1)
	b.ReportAllocs()
	for b.Loop() {
		e.Add(&u)
	}
}

// BenchmarkAddMany adds to many groups, which are not in the processor's cache.
func BenchmarkAddMany(b *testing.B) {
	e, _ := open(b, ledger.Config{})
	uses := make([]ledger.Use, 8192)
	for i := range uses {
		uses[i] = use("org:"+strconv.Itoa(i), 1)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		e.Add(&uses[i%len(uses)])
	}
}

func BenchmarkAddTogether(b *testing.B) {
	e, _ := open(b, ledger.Config{})
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for u := use("org:acme", 1); pb.Next(); {
			e.Add(&u)
		}
	})
}

// BenchmarkFlush writes 8192 events.
func BenchmarkFlush(b *testing.B) {
	e, _ := open(b, ledger.Config{})
	uses := make([]ledger.Use, 8192)
	for i := range uses {
		uses[i] = use("org:"+strconv.Itoa(i), 1)
	}
	b.ReportAllocs()
	for b.Loop() {
		for i := range uses {
			e.Add(&uses[i])
		}
		if err := e.Flush(); err != nil {
			b.Fatal(err)
		}
	}
}
