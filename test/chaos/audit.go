package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/proto"

	metev1 "github.com/meteproject/mete/api/mete/v1"
	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store"
)

// An audit goes through the books revision by revision.
type audit struct {
	calls map[opID][]call // what replicas say that they did

	keys     map[string]int64  // revision of every key there is
	plans    map[string]string // by tenant
	amounts  map[string]int64  // by plan, of what is enforced
	rules    map[string]rules  // by document of descriptors, of what is enforced
	accounts map[string]quota.Account

	revisions int // of accounts
	grants    int
	written   map[opID]written // operations that changed an account
	last      map[string]int64 // when a holder's last operation that was written began
	folds     []fold           // that were no part of an operation
}

// An opID names an operation of a holder on an account.
type opID struct {
	account, holder string
	seq             uint64
}

// written is an operation that changed an account, with the holders that it folded
// away, and when it was heard of.
type written struct {
	op   quota.Operation
	gone []string
	at   int64
}

// fold is the sweep of an account, and when it was heard of. It came after all that
// its holders ever wrote.
type fold struct {
	account   string
	gone      []string
	after, at int64
}

// auditBooks checks every change of every account: the account holds no more than
// its ceiling (but what it held before the ceiling came down), and the change is
// exactly one operation of a replica that was liable, under documents that were in
// force. It returns what it found at the end.
func auditBooks(events []event, calls []call) (*audit, error) {
	a := &audit{
		calls: map[opID][]call{}, plans: map[string]string{},
		keys: map[string]int64{}, amounts: map[string]int64{}, rules: map[string]rules{}, accounts: map[string]quota.Account{},
		written: map[opID]written{}, last: map[string]int64{},
	}
	for _, c := range calls {
		a.calls[c.id()] = append(a.calls[c.id()], c)
	}
	var faults []error
	for len(events) > 0 {
		n := 1
		for n < len(events) && events[n].Revision == events[0].Revision {
			n++
		}
		if err := a.transaction(events[:n]); err != nil && len(faults) < maxFaults {
			faults = append(faults, fmt.Errorf("revision %d: %w", events[0].Revision, err))
		}
		events = events[n:]
	}
	return a, errors.Join(faults...)
}

// maxFaults is how many faults are told: those that follow from them are no news.
const maxFaults = 3

// transaction checks the events of one revision against what was before it.
func (a *audit) transaction(events []event) error {
	var errs []error
	for _, e := range events {
		if !strings.HasPrefix(e.Key, store.AccountsPrefix) {
			continue
		}
		err := errors.New("is deleted")
		if !e.Deleted {
			err = a.account(e)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", e.Key, err))
		}
	}
	for _, e := range events {
		if e.Deleted {
			delete(a.keys, e.Key)
			continue
		}
		a.keys[e.Key] = e.Revision
		if err := a.document(e); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", e.Key, err))
		}
	}
	return errors.Join(errs...)
}

// document notes what a tenant, a plan or descriptors that are enforced say from now on.
func (a *audit) document(e event) error {
	kind, name, ok := store.ParseDocumentKey(e.Key)
	if ok && kind == plan.KindTenant {
		doc, err := readDocument(string(e.Value))
		a.plans[name] = doc.Spec.Plan
		return err
	}
	rest, under := strings.CutPrefix(e.Key, store.EffectivePrefix)
	if kind, name, ok = store.ParseDocumentKey(store.Prefix + rest); !under || !ok || kind != plan.KindPlan && kind != plan.KindRateLimits {
		return nil
	}
	var record struct {
		Document string `json:"document"`
	}
	if err := json.Unmarshal(e.Value, &record); err != nil {
		return err
	}
	if kind == plan.KindRateLimits {
		var doc rules
		err := yaml.Unmarshal([]byte(record.Document), &doc)
		a.rules[name] = doc
		return err
	}
	doc, err := readDocument(record.Document)
	a.amounts[name] = doc.Spec.Limits[limitName].Amount
	return err
}

// A document is what the audit needs of a Plan or a Tenant.
type document struct {
	Spec struct {
		Plan   string `yaml:"plan"`
		Limits map[string]struct {
			Amount int64 `yaml:"amount"`
		} `yaml:"limits"`
	} `yaml:"spec"`
}

func readDocument(text string) (d document, err error) {
	err = yaml.Unmarshal([]byte(text), &d)
	return d, err
}

// account checks one change of an account.
func (a *audit) account(e event) error {
	now, err := readAccount(e.Value)
	if err != nil {
		return err
	}
	key, ok := store.ParseAccountKey(e.Key)
	if !ok {
		return errors.New("no account has such a key")
	}
	before := a.accounts[e.Key]
	a.accounts[e.Key] = now
	a.revisions++
	ceiling, known := a.ceiling(key)
	if out := now.Used() + now.Leased(); !known || out > max(ceiling, before.Used()+before.Leased()) {
		return fmt.Errorf("used %d + leased %d > %d, the amount in force", now.Used(), now.Leased(), ceiling)
	}
	return a.explain(e, before, now)
}

// ceiling returns the amount that is in force for an account: of the rule of a counter, or
// of the tenant's plan. It returns false where nothing that is enforced has such a limit.
func (a *audit) ceiling(key quota.Key) (amount int64, known bool) {
	switch key.Limit {
	case limitPerYear:
		return amountOf(a.rules, key.Tenant)
	case limitName:
		amount, known = a.amounts[a.plans[key.Tenant]]
	}
	return amount, known
}

// explain finds the operation that made now of before.
func (a *audit) explain(e event, before, now quota.Account) error {
	gone := missing(before, now)
	for _, id := range gone {
		if a.keys[store.LiablePrefix+id] != 0 {
			return fmt.Errorf("holder %s is folded away while its liable key exists", id)
		}
	}
	var why []string
	if next, _ := quota.Reclaim(before, gone); len(gone) > 0 && sameAccount(next, now) {
		f := fold{account: e.Key, gone: gone, at: e.At}
		for _, id := range gone {
			f.after = max(f.after, a.last[id])
		}
		a.folds = append(a.folds, f)
		return nil
	}
	for _, h := range now.Holders {
		for _, c := range a.calls[opID{e.Key, h.ID, h.Seq}] {
			op := c.op
			op.Gone = gone
			next, result := quota.Apply(before, op)
			switch fault := a.conditions(op); {
			case !sameAccount(next, now):
			case fault != "":
				why = append(why, fault)
			default:
				a.note(c, gone, e.At, result)
				return nil
			}
		}
	}
	if why == nil {
		why = []string{"no replica says that it did this"}
	}
	return fmt.Errorf("%s: from %+v to %+v", strings.Join(why, "; "), before, now)
}

// note notes what was written.
func (a *audit) note(c call, gone []string, at int64, result quota.Result) {
	a.written[c.id()] = written{c.op, gone, at}
	a.last[c.op.Holder] = max(a.last[c.op.Holder], c.began)
	if c.op.Want > 0 && result.Granted > 0 {
		a.grants++
	}
}

// conditions tells which condition of op does not hold; "" if all do.
func (a *audit) conditions(op quota.Operation) string {
	if a.keys[store.LiablePrefix+op.Holder] == 0 {
		return "its holder was not liable"
	}
	if op.Want == 0 {
		return ""
	}
	if name := unguarded(op, a.rules); name != "" {
		return fmt.Sprintf("no guard is about the document %s", name)
	}
	for _, g := range op.Guards {
		key := store.DocumentKey(plan.Kind(g.Kind), g.Name)
		switch plan.Kind(g.Kind) {
		case plan.KindApp, plan.KindPlan, plan.KindRoutes, plan.KindRateLimits:
			key = store.EffectiveKey(plan.Kind(g.Kind), g.Name)
		case plan.KindTenant, plan.KindCredential, plan.KindWebhook:
		default: // a guard of what is not a document: state/versions
			continue
		}
		if a.keys[key] != g.Revision {
			return fmt.Sprintf("%s was at revision %d, not %d", key, a.keys[key], g.Revision)
		}
	}
	return ""
}

// missing returns the holders of before that now does not have.
func missing(before, now quota.Account) []string {
	var gone []string
	for _, h := range before.Holders {
		if !slices.ContainsFunc(now.Holders, func(o quota.Holder) bool { return o.ID == h.ID }) {
			gone = append(gone, h.ID)
		}
	}
	return gone
}

func sameAccount(a, b quota.Account) bool {
	return a.Base == b.Base && slices.EqualFunc(a.Holders, b.Holders, func(x, y quota.Holder) bool {
		return x.ID == y.ID && x.Seq == y.Seq && x.Used == y.Used && slices.Equal(x.Leases, y.Leases)
	})
}

// readAccount decodes an account as it is stored.
func readAccount(b []byte) (quota.Account, error) {
	var m metev1.Account
	if err := proto.Unmarshal(b, &m); err != nil {
		return quota.Account{}, err
	}
	a := quota.Account{Base: m.GetBase()}
	for _, mh := range m.GetHolders() {
		h := quota.Holder{ID: mh.GetId(), Seq: mh.GetSeq(), Used: mh.GetUsed()}
		for _, l := range mh.GetLeases() {
			h.Leases = append(h.Leases, quota.Lease{ID: l.GetId(), Units: l.GetUnits(), Version: l.GetVersion(), Exact: l.GetExact()})
		}
		a.Holders = append(a.Holders, h)
	}
	return a, nil
}
