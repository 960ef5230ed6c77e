package main

import (
	"fmt"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store"
)

// limitPerYear is what the accounts of counters have in place of a plan's limit.
const limitPerYear = "ratelimit:per_year"

// A ruleDoc is one of the documents of a domain, in the YAML of envoyproxy/ratelimit. All
// its limits are of a year, so that no window ends during a run.
type ruleDoc struct {
	domain, name string
	head         string // further lines of the document
	rules        []yearRule
}

// A yearRule is a rule of a ruleDoc. Below it may be one more, of another entry.
type yearRule struct {
	key, value string // value "": any
	amount     int64  // 0: no limit
	below      []yearRule
}

// badMark is in every document that must never be in force.
const badMark = "# bad "

// put returns the write of the document with share percent of its amounts. Note is a comment
// in it that means nothing.
func (d ruleDoc) put(note string, share int64) clientv3.Op {
	return d.write("# "+note+"\n", share, "year")
}

// putBad is put of a document that is generous but for one word of its limits, which is
// none of YAML's business.
func (d ruleDoc) putBad(note string) clientv3.Op {
	return d.write(badMark+note+"\n", 300, "fortnight")
}

func (d ruleDoc) write(note string, share int64, unit string) clientv3.Op {
	text := fmt.Sprintf("%sdomain: %s\n%sdescriptors: %s\n", note, d.domain, d.head, flow(d.rules, share, unit))
	return clientv3.OpPut(store.DocumentKey(plan.KindRateLimits, d.name), text)
}

func flow(rules []yearRule, share int64, unit string) string {
	all := make([]string, len(rules))
	for i, r := range rules {
		fields := []string{"key: " + r.key}
		if r.value != "" {
			fields = append(fields, fmt.Sprintf("value: %q", r.value))
		}
		if r.amount > 0 {
			fields = append(fields, fmt.Sprintf("rate_limit: {unit: %s, requests_per_unit: %d}", unit, r.amount*share/100))
		}
		if len(r.below) > 0 {
			fields = append(fields, "descriptors: "+flow(r.below, share, unit))
		}
		all[i] = "{" + strings.Join(fields, ", ") + "}"
	}
	return "[" + strings.Join(all, ", ") + "]"
}

// rules is what the audit needs of a document of descriptors. It reads them by itself:
// mete's own reader may be what is wrong.
type rules struct {
	Domain string `yaml:"domain"`
	Rules  []rule `yaml:"descriptors"`
}

type rule struct {
	Key   string `yaml:"key"`
	Value string `yaml:"value"`
	Limit *struct {
		Unit   string `yaml:"unit"`
		Amount int64  `yaml:"requests_per_unit"`
	} `yaml:"rate_limit"`
	Rules []rule `yaml:"descriptors"`
}

// amountOf returns what documents give the counter of a year. Values of the documents here
// are neither patterns nor in need of an escape.
func amountOf(documents map[string]rules, counter string) (amount int64, known bool) {
	domain, entries, ok := strings.Cut(counter, "?")
	if !ok {
		return 0, false
	}
	var level []rule
	for _, d := range documents {
		if d.Domain == domain {
			level = append(level, d.Rules...)
		}
	}
	var found *rule
	for entry := range strings.SplitSeq(entries, "&") {
		if found = matching(level, entry); found == nil {
			return 0, false
		}
		level = found.Rules
	}
	if found.Limit == nil || found.Limit.Unit != "year" {
		return 0, false
	}
	return found.Limit.Amount, true
}

// matching returns the rule for an entry: one for its very value, or else one for any.
func matching(level []rule, entry string) (found *rule) {
	key, value, _ := strings.Cut(entry, "=")
	for i := range level {
		r := &level[i]
		if r.Key == key && (r.Value == value || r.Value == "" && found == nil) {
			found = r
			if r.Value != "" {
				return found
			}
		}
	}
	return found
}

// unguarded returns a document that a counter's grant depends on, and not by its guards; "":
// there is none.
func unguarded(op quota.Operation, documents map[string]rules) string {
	if op.Key.Limit != limitPerYear {
		return ""
	}
	for name, d := range documents {
		domain, _, _ := strings.Cut(op.Key.Tenant, "?")
		if d.Domain == domain && !slices.ContainsFunc(op.Guards, func(g quota.Guard) bool {
			return g.Kind == string(plan.KindRateLimits) && g.Name == name
		}) {
			return name
		}
	}
	return ""
}
