package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// nearShare is the percentage of an amount from which a limit is NEAR its end: the
// share at which notices start unless a plan says otherwise.
const nearShare = 80

// A usageReport is what `metectl usage -o json` prints. Its field names never
// change.
type usageReport struct {
	Tenant string       `json:"tenant"`
	Limits []usageLimit `json:"limits"`
}

// A usageLimit is one limit of one node. Null: not known here, or not
// applicable.
type usageLimit struct {
	App      string       `json:"app,omitempty"`  // where several apps know the tenant
	Node     string       `json:"node,omitempty"` // with --path alone
	Name     string       `json:"name"`
	Kind     string       `json:"kind"`
	Unit     string       `json:"unit"`
	Window   *usageWindow `json:"window"` // null: none is live, or the limit has none
	Amount   *int64       `json:"amount"` // null: unlimited
	Used     *int64       `json:"used"`   // null for rates: buckets live in the replicas
	Reserved *int64       `json:"reserved"`
	Leased   *int64       `json:"leased"`
	Left     *int64       `json:"left"`
	ResetsAt *time.Time   `json:"resets_at"`

	pace string // of rates: 300 per 1m0s
}

type usageWindow struct {
	ID    string    `json:"id"`
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
}

// table renders the report for people.
func (r usageReport) table(now time.Time) *table {
	head := []string{"LIMIT", "KIND", "UNIT", "USED", "LEASED", "OF", "%", "STATE", "RESETS"}
	path := len(r.Limits) > 0 && r.Limits[0].Node != ""
	if path {
		head = append([]string{"NODE"}, head...)
	}
	apps := len(r.Limits) > 0 && r.Limits[0].App != ""
	if apps {
		head = append([]string{"APP"}, head...)
	}
	first := len(head) - 6 // USED
	t := newTable(head...).alignRight(first, first+1, first+2, first+3)
	for _, l := range r.Limits {
		row := []string{l.Name, l.Kind, l.Unit, shown(l.Used), shown(l.Leased), "unlimited", l.percent(), l.state(), l.resets(now)}
		if l.Amount != nil {
			row[5] = grouped(*l.Amount)
		}
		if path {
			row = append([]string{l.Node}, row...)
		}
		if apps {
			row = append([]string{l.App}, row...)
		}
		t.add(row...)
	}
	return t
}

func (l usageLimit) percent() string {
	if l.Used == nil || l.Amount == nil || *l.Amount == 0 {
		return "-"
	}
	return strconv.FormatInt(*l.Used*100 / *l.Amount, 10)
}

// state says in a word how a limit stands.
func (l usageLimit) state() string {
	switch {
	case l.Used == nil:
		return "-"
	case l.Amount == nil:
		return "OK"
	case *l.Used >= *l.Amount:
		return "FULL"
	case *l.Used*100 >= *l.Amount*nearShare:
		return "NEAR"
	}
	return "OK"
}

func (l usageLimit) resets(now time.Time) string {
	switch {
	case l.pace != "":
		return l.pace
	case l.ResetsAt == nil && l.Kind == "quota":
		return "after first use"
	case l.ResetsAt == nil:
		return "-"
	}
	return fmt.Sprintf("%s, in %s", l.ResetsAt.Format("2006-01-02 15:04Z"), ahead(l.ResetsAt.Sub(now)))
}

// ahead writes a span in its two largest units: 21d 3h, 2h 30m, 40s.
func ahead(d time.Duration) string {
	d = max(0, d)
	days, hours := int(d/(24*time.Hour)), int(d/time.Hour)%24
	minutes, seconds := int(d/time.Minute)%60, int(d/time.Second)%60
	switch {
	case days > 0:
		return fmt.Sprintf("%dd %dh", days, hours)
	case hours > 0:
		return fmt.Sprintf("%dh %dm", hours, minutes)
	case minutes > 0:
		return fmt.Sprintf("%dm", minutes)
	}
	return fmt.Sprintf("%ds", seconds)
}

func shown(n *int64) string {
	if n == nil {
		return "-"
	}
	return grouped(*n)
}

// grouped writes 25000 as 25,000.
func grouped(n int64) string {
	digits := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, digits = "-", digits[1:]
	}
	var b strings.Builder
	b.WriteString(sign)
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(d)
	}
	return b.String()
}
