package main

import (
	"net"
	"strings"
	"testing"
)

// A bill explains an account by requests that count as they were reserved, and by
// nothing else.
func TestBill_Explain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reserved, used      int64
		account, unheard    int64
		unsettled, unheardX int64
		wrong               bool
	}{
		"the truth":                  {reserved: 100, used: 7, account: 70},
		"two not settled":            {reserved: 100, used: 7, account: 70 + 2*93, unsettled: 2},
		"less than reserved":         {reserved: 10, used: 25, account: 250 - 3*15, unsettled: 3},
		"one too many":               {reserved: 100, used: 7, account: 70 + 11*93, wrong: true},
		"a unit too many":            {reserved: 100, used: 7, account: 71, wrong: true},
		"a unit too few":             {reserved: 100, used: 7, account: 69, wrong: true},
		"settled twice":              {reserved: 100, used: 7, account: 70 - 93, wrong: true},
		"more than any request":      {reserved: 10, used: 25, account: 250 + 15, wrong: true},
		"as reserved":                {reserved: 5, used: 5, account: 50},
		"as reserved, one too many":  {reserved: 5, used: 5, account: 55, wrong: true},
		"one check unheard of":       {reserved: 5, used: 5, account: 55, unheard: 1, unheardX: 1},
		"rather unheard of":          {reserved: 5, account: 5, unheard: 1, unheardX: 1},
		"no more than that":          {reserved: 5, account: 10, unheard: 1, unsettled: 1, unheardX: 1},
		"unheard of and not settled": {reserved: 100, used: 7, account: 70 + 93 + 100, unheard: 4, unsettled: 1, unheardX: 1},
	} {
		b := &bill{outcome: outcome{name: name, reserved: c.reserved, used: c.used}}
		b.answered.Store(10)
		e, err := b.explain(c.account, c.unheard)
		if (err != nil) != c.wrong || e.unsettled != c.unsettled || e.unheardOf != c.unheardX {
			t.Errorf("%s: got %d not settled, %d unheard of, %v; want %d, %d, an error: %t",
				name, e.unsettled, e.unheardOf, err, c.unsettled, c.unheardX, c.wrong)
		}
	}
}

// What replicas tell is held against what explains the accounts.
func TestTold_Judge(t *testing.T) {
	t.Parallel()
	const answered = 10
	explained := func() []explanation {
		var all []explanation
		for _, b := range newBills() {
			b.answered.Store(answered)
			e := explanation{bill: b}
			if b.reserved != b.used {
				e.unsettled = 2
			}
			all = append(all, e)
		}
		return all
	}
	for name, c := range map[string]struct {
		change func(*told)
		want   string
	}{
		"all as it is":              {func(*told) {}, ""},
		"one less settled":          {func(l *told) { l.settled["free"]-- }, "weight 5, answered 500: by its account 2 are not settled"},
		"one more settled":          {func(l *told) { l.settled["more"]++ }, "10 reserved, 25 used: by its account 2 are not settled"},
		"none knows of some":        {func(l *told) { l.unsettled -= 2 }, "mete_reservations_unsettled is 6; accounts tell of 8"},
		"an entry that did nothing": {func(l *told) { l.entries++ }, "33 entries arrived, 32 requests were settled"},
	} {
		l := told{unsettled: 8, entries: 32, settled: map[string]int64{"as_reserved": 8, "free": 8, "less": 8, "more": 8}}
		c.change(&l)
		_, err := l.judge(explained())
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

// The example is as a front wants it: what it replaces is there.
func TestFront_Text(t *testing.T) {
	t.Parallel()
	cfg := frontConfig{checks: []string{"127.0.0.1:1001", "127.0.0.1:1002"}, logs: []string{"127.0.0.1:1003"}}
	text, err := cfg.text(net.JoinHostPort("127.0.0.1", "1000"))
	if err != nil {
		t.Fatal(err)
	}
	for port, n := range map[string]int{"1000": 1, "1001": 1, "1002": 1, "1003": 1, "9001": 0, "9901": 0, "8000": 0} {
		if got := strings.Count(text, "port_value: "+port+"}"); got != n {
			t.Errorf("port %s: %d times, want %d", port, got, n)
		}
	}
	cfg.edits = map[string]string{"nothing like that": ""}
	if _, err := cfg.text("127.0.0.1:1000"); err == nil {
		t.Error("an edit that finds no place is no error")
	}
}
