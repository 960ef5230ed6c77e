package bench_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/plan"
)

// descriptorDesk is a Decider with a domain of limits a second, a minute and an hour.
func descriptorDesk(b *testing.B) *authz.Decider {
	b.Helper()
	d := authz.New(authz.Config{Keeper: runKeeper(b, nil), Now: time.Now, MaxCounters: 1 << 20})
	docs, problems := plan.Decode("edge.yaml", []byte(`
domain: edge
descriptors:
  - key: plan
    descriptors:
      - {key: customer_id, rate_limit: {unit: minute, requests_per_unit: 4000000000}}
  - {key: path, value: /v1/*, rate_limit: {unit: second, requests_per_unit: 4000000000}}
  - {key: customer_id, rate_limit: {unit: hour, requests_per_unit: 4000000000}}
  - {key: remote_address, rate_limit: {unit: minute, requests_per_unit: 4000000000}}
`))
	if plan.Refused(problems) {
		b.Fatal(problems)
	}
	c := plan.NewCatalog()
	c.Put(docs[0], 1)
	d.SetSnapshot(c.Snapshot())
	return d
}

func descriptorAsk(text string) authz.DescriptorAsk {
	ask := authz.DescriptorAsk{Hits: 1}
	for entry := range strings.FieldsSeq(text) {
		key, value, _ := strings.Cut(entry, "=")
		ask.Entries = append(ask.Entries, plan.DescriptorEntry{Key: key, Value: value})
	}
	return ask
}

func benchmarkDescriptors(b *testing.B, counters int, ask func(i int) []authz.DescriptorAsk) {
	b.Helper()
	d := descriptorDesk(b)
	all := make([][]authz.DescriptorAsk, counters)
	var c authz.Count
	count := func(asks []authz.DescriptorAsk) {
		c.Reset()
		d.CountDescriptors(b.Context(), time.Now(), "edge", asks, false, &c)
	}
	for i := range all {
		all[i] = ask(i)
		count(all[i])
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		count(all[i%counters])
	}
	if !c.Outcome.Admits() {
		b.Fatal(c.Outcome.Word())
	}
}

func BenchmarkCountDescriptors(b *testing.B) {
	one := func(i int) []authz.DescriptorAsk {
		return []authz.DescriptorAsk{descriptorAsk(fmt.Sprintf("plan=pro customer_id=c%d", i))}
	}
	four := func(i int) []authz.DescriptorAsk {
		id := fmt.Sprintf("customer_id=c%d", i)
		return []authz.DescriptorAsk{
			descriptorAsk("plan=pro " + id), descriptorAsk("path=/v1/orders"), descriptorAsk(id), descriptorAsk("remote_address=10.1.2.3"),
		}
	}
	b.Run("one", func(b *testing.B) { benchmarkDescriptors(b, 1, one) })
	b.Run("one of 10000", func(b *testing.B) { benchmarkDescriptors(b, 10_000, one) })
	b.Run("four", func(b *testing.B) { benchmarkDescriptors(b, 1, four) })
	b.Run("four of 10000", func(b *testing.B) { benchmarkDescriptors(b, 10_000, four) })
}

// BenchmarkCounterMemory counts a value that nobody has sent before, and reports what the
// counter of each takes: such values come from anyone who may send a header.
func BenchmarkCounterMemory(b *testing.B) {
	d := descriptorDesk(b)
	var c authz.Count
	asks := []authz.DescriptorAsk{descriptorAsk("remote_address=0")}
	before := heapInUse()
	b.ReportAllocs()
	n := 0
	for ; b.Loop(); n++ {
		asks[0].Entries[0].Value = fmt.Sprintf("2001:db8::%x", n)
		c.Reset()
		d.CountDescriptors(b.Context(), time.Now(), "edge", asks, false, &c)
	}
	b.StopTimer()
	b.ReportMetric(float64(heapInUse()-before)/float64(n), "B/counter")
	runtime.KeepAlive(d)
}

func heapInUse() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
