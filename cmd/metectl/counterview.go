package main

import (
	"time"
)

// A counterReport is what `metectl counter ls -o json` prints. Its field names never
// change.
type counterReport struct {
	Domain   string        `json:"domain,omitempty"`
	Tenant   string        `json:"tenant,omitempty"`
	Counters []counterView `json:"counters"`
}

// A counterView is one limit of one counter.
type counterView struct {
	// Descriptor is what the command line calls the counter: a descriptor, a tenant, or
	// what is kept of the name of a counter that is too long.
	Descriptor string `json:"counter"`
	Key        string `json:"account"` // the tenant part of the accounts' keys

	usageLimit
}

// lines are the counters by the names that other commands take.
func (r counterReport) lines() []string {
	var names []string
	for _, v := range r.Counters {
		if len(names) == 0 || names[len(names)-1] != v.Descriptor {
			names = append(names, v.Descriptor)
		}
	}
	return names
}

// table renders the report for people.
func (r counterReport) table(now time.Time) *table {
	t := newTable("COUNTER", "LIMIT", "WINDOW", "USED", "LEASED", "OF", "%", "STATE", "RESETS").alignRight(3, 4, 5, 6)
	for i := range r.Counters {
		v := &r.Counters[i]
		window, amount := "-", "unknown"
		if v.Window != nil {
			window = v.Window.ID
		}
		if v.Amount != nil {
			amount = grouped(*v.Amount)
		}
		t.add(v.Descriptor, v.Name, window, shown(v.Used), shown(v.Leased), amount, v.percent(), v.state(), v.resets(now))
	}
	return t
}

// A clearReport is what `metectl counter reset -o json` prints. Its field names never
// change.
type clearReport struct {
	Domain   string        `json:"domain,omitempty"`
	Cleared  []clearedView `json:"cleared"`
	Revision int64         `json:"revision"` // from which replicas know of it
}

// A clearedView is one limit of a counter that was cleared.
type clearedView struct {
	Descriptor string       `json:"counter"`
	Name       string       `json:"name"`
	Window     *usageWindow `json:"window"` // null: of a bucket
	Used       *int64       `json:"used"`   // that was forgotten; null: buckets live in the replicas
}

func (r clearReport) table() *table {
	t := newTable("COUNTER", "LIMIT", "WINDOW", "FORGOTTEN").alignRight(3)
	for _, v := range r.Cleared {
		window := "-"
		if v.Window != nil {
			window = v.Window.ID
		}
		t.add(v.Descriptor, v.Name, window, shown(v.Used))
	}
	return t
}
