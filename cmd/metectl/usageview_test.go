package main

import (
	"strings"
	"testing"
	"time"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/quota"
)

func TestUsageTable(t *testing.T) {
	now := time.Date(2026, 12, 10, 12, 0, 0, 0, time.UTC)
	n := func(v int64) *int64 { return &v }
	at := func(y, m, d, h int) *time.Time {
		t := time.Date(y, time.Month(m), d, h, 0, 0, 0, time.UTC)
		return &t
	}
	r := usageReport{Tenant: "org:acme", Limits: []usageLimit{
		{Name: "per_minute", Kind: "rate", Unit: "requests", Amount: n(300), pace: "300 per 1m"},
		{Name: "monthly", Kind: "quota", Unit: "requests", Amount: n(1000), Used: n(962), Reserved: n(0), Leased: n(10), Left: n(28), ResetsAt: at(2027, 1, 1, 0)},
		{Name: "session", Kind: "quota", Unit: "tokens", Amount: n(10000), Used: n(10000), Reserved: n(0), Leased: n(0), Left: n(0), ResetsAt: at(2026, 12, 10, 14)},
		{Name: "idle", Kind: "quota", Unit: "tokens", Amount: n(2000), Used: n(0), Reserved: n(0), Leased: n(0), Left: n(2000)},
		{Name: "open", Kind: "quota", Unit: "requests", Used: n(1234567), Reserved: n(0), Leased: n(0), ResetsAt: at(2026, 12, 11, 0)},
		{Name: "none", Kind: "quota", Unit: "requests", Amount: n(0), Used: n(0), Reserved: n(0), Leased: n(0), Left: n(0), ResetsAt: at(2026, 12, 11, 0)},
	}}
	const want = "" +
		"LIMIT       KIND   UNIT           USED  LEASED         OF    %  STATE  RESETS\n" +
		"per_minute  rate   requests          -       -        300    -  -      300 per 1m\n" +
		"monthly     quota  requests        962      10      1,000   96  NEAR   2027-01-01 00:00Z, in 21d 12h\n" +
		"session     quota  tokens       10,000       0     10,000  100  FULL   2026-12-10 14:00Z, in 2h 0m\n" +
		"idle        quota  tokens            0       0      2,000    0  OK     after first use\n" +
		"open        quota  requests  1,234,567       0  unlimited    -  OK     2026-12-11 00:00Z, in 12h 0m\n" +
		"none        quota  requests          0       0          0    -  FULL   2026-12-11 00:00Z, in 12h 0m\n"
	var b strings.Builder
	if err := r.table(now).write(&b, 0); err != nil {
		t.Fatal(err)
	}
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}

func TestGrouped(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", -1234567: "-1,234,567", 999_999_999_999_999: "999,999,999,999,999"} {
		if got := grouped(n); got != want {
			t.Errorf("grouped(%d) = %s; want %s", n, got, want)
		}
	}
}

func TestPace_SaysTheWindowAsDocumentsDo(t *testing.T) {
	for window, want := range map[time.Duration]string{
		time.Second: "5 per 1s", 10 * time.Second: "5 per 10s", 1500 * time.Millisecond: "5 per 1s500ms", time.Minute: "5 per 1m",
		90 * time.Second: "5 per 1m30s", 10 * time.Minute: "5 per 10m", time.Hour: "5 per 1h", 20 * time.Hour: "5 per 20h",
		90 * time.Minute: "5 per 1h30m", time.Hour + time.Second: "5 per 1h1s", 24 * time.Hour: "5 per 1d", 30 * 24 * time.Hour: "5 per 30d",
		100 * time.Millisecond: "5 per 100ms", 36 * time.Hour: "5 per 1d12h",
	} {
		if got := pace(&plan.EffectiveLimit{Limit: plan.Limit{Amount: 5, Burst: 5, Window: window}}); got != want {
			t.Errorf("pace of %s = %q; want %q", window, got, want)
		}
	}
}

// Use below 0 is shown, and may be used on top of the amount.
func TestUsage_Q49_BelowZero(t *testing.T) {
	t.Parallel()
	amount := int64(100)
	l := usageLimit{Amount: &amount}
	l.fill(quota.Window{ID: "w"}, quota.Account{Base: -7})
	if *l.Used != -7 || *l.Left != 107 {
		t.Errorf("used %d, left %d, want -7 and 107", *l.Used, *l.Left)
	}
	running := quota.Account{Base: -900, Holders: []quota.Holder{{ID: "a", Used: 900, Reserved: 900}}} // cleared while it ran
	if l.fill(quota.Window{ID: "w"}, running); *l.Used != 0 || *l.Reserved != 0 || *l.Left != 100 {
		t.Errorf("used %d, reserved %d, left %d, want 0, 0 and 100", *l.Used, *l.Reserved, *l.Left)
	}
}
