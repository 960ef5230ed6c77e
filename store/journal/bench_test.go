//go:build linux || darwin

package journal_test

import (
	"testing"
	"time"
)

func TestCell_DoesNotAllocate(t *testing.T) {
	j, _ := open(t, t.TempDir())
	c := j.Open(key("a"), "api", "h")
	n := int64(0)
	if got := testing.AllocsPerRun(1000, func() { n++; c.Used(n, wall+n); c.Reported(n) }); got != 0 {
		t.Errorf("%v allocations", got)
	}
	c.Close()
}

func BenchmarkCellUsed(b *testing.B) {
	j, _ := open(b, b.TempDir())
	c := j.Open(key("a"), "api", "h")
	b.ReportAllocs()
	n := int64(0)
	for b.Loop() {
		n++
		c.Used(n, wall+n)
	}
	c.Close()
}

func BenchmarkCellUsedTogether(b *testing.B) {
	j, _ := open(b, b.TempDir())
	b.RunParallel(func(pb *testing.PB) {
		c := j.Open(key("a"), "api", "h")
		defer c.Close()
		for n := int64(0); pb.Next(); n++ {
			c.Used(n, wall+n)
		}
	})
}

func BenchmarkOpenClose(b *testing.B) {
	j, _ := open(b, b.TempDir())
	b.ReportAllocs()
	k := key("organisation/project")
	for b.Loop() {
		j.Open(k, "api", "replica-0-0123456789abcdef").Close()
	}
}

// BenchmarkOpen opens cells that stay open.
func BenchmarkOpen(b *testing.B) {
	j, _ := open(b, b.TempDir())
	b.ReportAllocs()
	k := key("organisation/project")
	var worst time.Duration
	for b.Loop() {
		began := time.Now()
		j.Open(k, "api", "replica-0-0123456789abcdef")
		worst = max(worst, time.Since(began))
	}
	b.ReportMetric(float64(worst.Microseconds()), "worst-µs")
}
