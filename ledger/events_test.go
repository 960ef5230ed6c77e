package ledger_test

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/meteproject/mete/ledger"
)

var noon = time.Date(2026, 12, 10, 12, 0, 0, 0, time.UTC)

// use is one of units by tenant at noon.
func use(tenant string, units int64) ledger.Use {
	return ledger.Use{
		At: noon, App: "api", Tenant: tenant, Limit: "monthly", Unit: "requests", Window: "2026-12",
		Class: "people", Principal: "u_81", Route: "/v1/items/{id}", Attribution: "build-7",
		Outcome: ledger.Counted, Units: units,
	}
}

// config fills in what c leaves out.
func config(tb testing.TB, c ledger.Config) ledger.Config {
	tb.Helper()
	if c.Path == "" {
		c.Path = filepath.Join(tb.TempDir(), "usage.ndjson")
	}
	if c.Now == nil {
		c.Now = func() time.Time { return noon.Add(500 * time.Millisecond) }
	}
	c.Source = "mete/r1"
	if c.Process == 0 {
		c.Process = 0xabc
	}
	return c
}

// open returns Events and the file that they are written to.
func open(tb testing.TB, c ledger.Config) (*ledger.Events, string) {
	tb.Helper()
	return openFaulty(tb, c, ledger.Faults{})
}

func openFaulty(tb testing.TB, c ledger.Config, f ledger.Faults) (*ledger.Events, string) {
	tb.Helper()
	c = config(tb, c)
	e, err := ledger.NewFaulty(c, f)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = e.Close() })
	return e, c.Path
}

// An event is a line as a reader sees it.
type event struct {
	ID, Source, Type, Subject, SpecVersion, DataContentType string

	Time, RecordedTime time.Time

	Data struct {
		App, Limit, Unit, Window, Class, Principal, Route, Attribution, Outcome string

		Merged   bool
		Quantity int64
	}
}

func parse(tb interface{ Fatalf(string, ...any) }, line string) (e event) {
	if err := json.Unmarshal([]byte(line), &e); err != nil || !strings.HasSuffix(line, "\n") {
		tb.Fatalf("not a whole event: %v: %q", err, line)
	}
	return e
}

// read returns the events of a file, all of whose lines must be whole and have ids of
// their own.
func read(tb testing.TB, path string) []event {
	tb.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	var events []event
	seen := make(map[string]bool)
	for line := range strings.Lines(string(text)) {
		e := parse(tb, line)
		if seen[e.ID] {
			tb.Fatalf("id %s twice", e.ID)
		}
		seen[e.ID] = true
		events = append(events, e)
	}
	return events
}

func flush(tb testing.TB, e *ledger.Events) {
	tb.Helper()
	if err := e.Flush(); err != nil {
		tb.Fatal(err)
	}
}

// bill returns the units of each outcome.
func bill(events []event) map[string]int64 {
	units := make(map[string]int64)
	for i := range events {
		units[events[i].Data.Outcome] += events[i].Data.Quantity
	}
	return units
}

func TestEvents_Q49_C59_ALineTellsAllOfItsUnits(t *testing.T) {
	t.Parallel()
	e, path := open(t, ledger.Config{})
	u := use("org:acme", 30)
	e.Add(&u)
	u.Units, u.At = 7, noon.Add(250*time.Millisecond)
	e.Add(&u)
	u = ledger.Use{At: noon, App: "api", Tenant: "org:b", Limit: "l\"\\\x01", Unit: "t", Window: "\xff", Outcome: ledger.Refunded, Units: 1}
	flush(t, e)
	e.Add(&u)
	flush(t, e)
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"specversion":"1.0","type":"mete.usage.v1","source":"mete/r1","id":"0000000000000abc-1","subject":"org:acme",` +
		`"time":"2026-12-10T12:00:00.250Z","recordedtime":"2026-12-10T12:00:00.500Z","datacontenttype":"application/json",` +
		`"data":{"app":"api","limit":"monthly","unit":"requests","window":"2026-12","class":"people","principal":"u_81",` +
		`"route":"/v1/items/{id}","attribution":"build-7","outcome":"counted","quantity":37}}
{"specversion":"1.0","type":"mete.usage.v1","source":"mete/r1","id":"0000000000000abc-2","subject":"org:b",` +
		`"time":"2026-12-10T12:00:00.000Z","recordedtime":"2026-12-10T12:00:00.500Z","datacontenttype":"application/json",` +
		`"data":{"app":"api","limit":"l\"\\\u0001","unit":"t","window":"%FF","outcome":"refunded","quantity":1}}
`
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

func TestEvents_C22_C022_WhatDiffersInOneTextIsAnEventOfItsOwn(t *testing.T) {
	t.Parallel()
	e, path := open(t, ledger.Config{})
	base := func() ledger.Use { return use("x", 1) }
	uses := []ledger.Use{base()}
	for _, change := range []func(*ledger.Use){
		func(u *ledger.Use) { u.App = "x" },
		func(u *ledger.Use) { u.Tenant = "y" },
		func(u *ledger.Use) { u.Limit = "x" },
		func(u *ledger.Use) { u.Unit = "x" },
		func(u *ledger.Use) { u.Window = "x" },
		func(u *ledger.Use) { u.Class = "x" },
		func(u *ledger.Use) { u.Principal = "x" },
		func(u *ledger.Use) { u.Route = "x" },
		func(u *ledger.Use) { u.Attribution = "x" },
		func(u *ledger.Use) { u.Outcome = ledger.Refunded },
		func(u *ledger.Use) { u.At = noon.Add(time.Hour) },
		func(u *ledger.Use) { u.Tenant, u.Limit = "xmonth", "ly" }, // nothing is joined
		func(u *ledger.Use) { u.Principal, u.Route = u.Route, u.Principal },
	} {
		u := base()
		change(&u)
		uses = append(uses, u)
	}
	for range 3 {
		for i := range uses {
			e.Add(&uses[i])
		}
	}
	flush(t, e)
	events := read(t, path)
	if len(events) != len(uses) {
		t.Errorf("%d events for %d combinations", len(events), len(uses))
	}
	for _, v := range events {
		if v.Data.Quantity != 3 {
			t.Errorf("%+v", v)
		}
	}
}

// The hour of an event is that of its units, however late it is written.
func TestEvents_Q49_C137_LateUseIsInItsOwnHour(t *testing.T) {
	t.Parallel()
	e, path := open(t, ledger.Config{})
	for i, at := range []time.Duration{-3 * time.Hour, -1, 0, time.Hour - 1} {
		u := use("org:acme", int64(i+1))
		u.At = noon.Add(at)
		e.Add(&u)
	}
	flush(t, e)
	hours := make(map[int]int64)
	for _, v := range read(t, path) {
		hours[v.Time.Hour()] += v.Data.Quantity
	}
	if hours[9] != 1 || hours[11] != 2 || hours[12] != 3+4 || len(hours) != 3 {
		t.Errorf("hours %v", hours)
	}
}

// A cap of 100 of which 98 are used; 5 more are served, 3 of them given back, then 2 served.
func TestEvents_Q49_C139_CountedLessRefundedIsWhatWasServed(t *testing.T) {
	t.Parallel()
	e, path := open(t, ledger.Config{})
	for _, step := range []int64{98, 5, -3, 2} {
		u := use("org:acme", max(step, -step))
		if step < 0 {
			u.Outcome = ledger.Refunded
		}
		e.Add(&u)
	}
	flush(t, e)
	got := bill(read(t, path))
	if got["counted"] != 105 || got["refunded"] != 3 || len(got) != 2 {
		t.Errorf("%v", got)
	}
}

func TestEvents_C59_TextsAreCopied(t *testing.T) {
	t.Parallel()
	e, path := open(t, ledger.Config{})
	buffer := []byte("org:acme")
	u := use("", 1)
	u.Tenant = unsafe.String(&buffer[0], len(buffer))
	e.Add(&u)
	copy(buffer, "XXXXXXXX")
	flush(t, e)
	if got := read(t, path)[0].Subject; got != "org:acme" {
		t.Errorf("subject %q", got)
	}
}

// A header of a caller must not fill the memory, nor join tenants.
func TestEvents_C59_LongTextsAreCut(t *testing.T) {
	t.Parallel()
	e, path := open(t, ledger.Config{})
	long := strings.Repeat("a", 1<<20)
	u := use("org:"+strings.Repeat("t", 300), 1)
	u.Principal, u.Route, u.Attribution = long, long, long
	e.Add(&u)
	flush(t, e)
	v := read(t, path)[0]
	if v.Subject != u.Tenant {
		t.Error("the tenant was cut")
	}
	for _, s := range []string{v.Data.Principal, v.Data.Route, v.Data.Attribution} {
		if s != long[:256] {
			t.Errorf("%d bytes", len(s))
		}
	}
}

func TestEvents_C139_NoNegativeUse(t *testing.T) {
	t.Parallel()
	e, path := open(t, ledger.Config{})
	negative, none, zero := use("a", -1), use("a", 1), use("a", 0)
	none.Outcome = 0
	unknown := use("a", 1)
	unknown.Outcome = 9
	for _, u := range []ledger.Use{negative, none, unknown, zero} {
		e.Add(&u)
	}
	flush(t, e)
	if s := e.Stats(); s.Invalid != 3 || s.Groups != 0 || len(read(t, path)) != 0 {
		t.Errorf("%+v", s)
	}
}

func TestEvents_C139_ASumThatIsTooLargeIsDropped(t *testing.T) {
	t.Parallel()
	e, path := open(t, ledger.Config{})
	for range 3 { // one for a group, one for the merged group of its tenant
		u := use("a", math.MaxInt64)
		e.Add(&u)
	}
	flush(t, e)
	if s := e.Stats(); s.Dropped[ledger.Counted] != math.MaxInt64 || len(read(t, path)) != 2 {
		t.Errorf("%+v", s)
	}
}

func TestNewEvents_SaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	for _, c := range []ledger.Config{{}, {Path: "x", Source: "s"}, {Path: "x", Now: time.Now}, {Source: "s", Now: time.Now}} {
		if _, err := ledger.NewEvents(c); err == nil || !strings.Contains(err.Error(), "needs a path, a source and a clock") {
			t.Errorf("%v", err)
		}
	}
}
