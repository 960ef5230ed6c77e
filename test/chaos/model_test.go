package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	metev1 "github.com/meteproject/mete/api/mete/v1"
	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store"
)

const holderA, holderB = "a-1", "b-1"

func key() quota.Key { return quota.Key{Root: "org:t", Tenant: "org:t", Limit: limitName, Window: "w"} }

func ask(holder string, seq uint64, want int64) quota.Operation {
	return quota.Operation{Key: key(), Holder: holder, Seq: seq, Want: want, Min: 1, Ceiling: 100, Replicas: 1}
}

// A script makes calls and the books that go with them.
type script struct {
	key    quota.Key
	calls  []call
	events []event
	clock  int64
	state  quota.Account
}

func newScript(t *testing.T) *script {
	t.Helper()
	s := &script{key: key()}
	s.put("/mete/v1/tenants/org:t", `{spec: {plan: pro}}`)
	s.amount(t, 100)
	s.put(store.LiablePrefix+holderA, "")
	s.put(store.LiablePrefix+holderB, "")
	return s
}

func (s *script) put(key, value string) { s.event(event{Key: key, Value: []byte(value)}) }

func (s *script) event(e event) {
	e.Revision, e.At = int64(len(s.events)+2), s.clock+11 // in the middle of the call that is noted next
	s.events = append(s.events, e)
}

func (s *script) amount(t *testing.T, n int64) {
	t.Helper()
	text, err := json.Marshal(map[string]string{"document": fmt.Sprintf("{spec: {limits: {%s: {amount: %d}}}}", limitName, n)})
	if err != nil {
		t.Fatal(err)
	}
	s.put(store.EffectiveKey(plan.KindPlan, "pro"), string(text))
}

// write stores an account.
func (s *script) write(t *testing.T, a quota.Account) {
	t.Helper()
	m := &metev1.Account{Base: a.Base}
	for _, h := range a.Holders {
		mh := &metev1.Holder{Id: h.ID, Seq: h.Seq, Used: h.Used}
		for _, l := range h.Leases {
			mh.Leases = append(mh.Leases, &metev1.Lease{Id: l.ID, Units: l.Units, Version: l.Version, Exact: l.Exact})
		}
		m.Holders = append(m.Holders, mh)
	}
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	s.state = a
	s.put(store.AccountKey(s.key), string(b))
}

// call notes a call that takes from now until two ticks later. A nil result is an
// unknown outcome.
func (s *script) call(op quota.Operation, result *quota.Result) {
	s.clock += 10
	s.calls = append(s.calls, call{op: op, began: s.clock, end: s.clock + 2, result: result})
}

// do applies op as a store does.
func (s *script) do(t *testing.T, op quota.Operation) {
	t.Helper()
	n, r := quota.Apply(s.state, op)
	s.write(t, n)
	op.Gone = nil
	s.call(op, &r)
}

// verdict proves the script.
func (s *script) verdict(t *testing.T) error {
	t.Helper()
	_, _, err := prove(s.events, s.calls, t.TempDir())
	return err
}

func wantError(t *testing.T, err error, says string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("got %v, want an error with %q", err, says)
	}
}

func TestProof_WhatAStoreDoesIsAccepted(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	s.do(t, ask(holderA, 1, 10))
	s.do(t, ask(holderB, 1, 10))
	report := quota.Operation{Key: key(), Holder: holderA, Seq: 2, Used: 7, Hold: []quota.Lease{{ID: 1, Units: 3}}, Ceiling: 100, Replicas: 1}
	s.do(t, report)
	lost := ask(holderB, 2, 5) // applied, and the reply is lost
	n, _ := quota.Apply(s.state, lost)
	s.write(t, n)
	s.call(lost, nil)
	_, again := quota.Apply(s.state, lost)
	s.call(lost, &again)
	s.event(event{Key: store.LiablePrefix + holderA, Deleted: true})
	fold := ask(holderB, 3, 5)
	fold.Gone = []string{holderA}
	s.do(t, fold)
	if err := s.verdict(t); err != nil {
		t.Error(err)
	}
}

func TestProof_A34_C102_UnitsLentTwiceAreFound(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	s.do(t, ask(holderA, 1, 10))
	alone, r := quota.Apply(quota.Account{}, ask(holderB, 1, 10)) // has not seen the other lease
	s.call(ask(holderB, 1, 10), &r)
	s.write(t, alone)
	wantError(t, s.verdict(t), "is not linearizable")
	wantError(t, s.verdict(t), "revision 7")
}

func TestProof_A34_MoreThanTheAmountIsFound(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	op := ask(holderA, 1, 60)
	op.Ceiling = 200
	s.do(t, op)
	op = ask(holderB, 1, 60)
	op.Ceiling = 200
	s.do(t, op)
	wantError(t, s.verdict(t), "> 100, the amount in force")
}

func TestProof_A44_AGrantUnderOldTermsIsFound(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	op := ask(holderA, 1, 10)
	op.Guards = []quota.Guard{{Kind: string(plan.KindPlan), Name: "pro", Revision: 3}}
	s.do(t, op)
	if err := s.verdict(t); err != nil {
		t.Error(err)
	}
	s.amount(t, 90)
	op.Seq = 2
	s.do(t, op)
	wantError(t, s.verdict(t), "was at revision 7, not 3")
}

func TestProof_A33_AFoldOfALiableHolderIsFound(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	s.do(t, ask(holderA, 1, 10))
	op := ask(holderB, 1, 10)
	op.Gone = []string{holderA}
	s.do(t, op)
	wantError(t, s.verdict(t), "is folded away while its liable key exists")
}

func TestProof_AChangeThatNobodyMadeIsFound(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	s.write(t, quota.Account{Base: 1})
	wantError(t, s.verdict(t), "no replica says that it did this")
}

// What was never answered may have been done at any time, or not at all.
func TestProof_AnUnknownOutcomeMayBeEither(t *testing.T) {
	t.Parallel()
	for _, landed := range []bool{true, false} {
		s := newScript(t)
		s.call(ask(holderA, 1, 10), nil)
		s.do(t, ask(holderB, 1, 10))
		if landed {
			late, _ := quota.Apply(s.state, ask(holderA, 1, 10))
			s.write(t, late)
		}
		s.do(t, ask(holderB, 2, 10))
		if err := s.verdict(t); err != nil {
			t.Errorf("landed %v: %v", landed, err)
		}
	}
}

func TestHistory_WhatNeverEndedIsUnknown(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "history")
	text := `{"call":"1-1","at":5,"op":{"Holder":"a","Seq":1}}
{"call":"1-2","at":6,"op":{"Holder":"b","Seq":1}}
{"call":"1-1","at":7,"result":{"Granted":3}}
{"call":"1-3","at":8,"op":{"Holder":"c","Seq":1}}
{"call":"1-3","at":9,"failed":"not_applied","error":"stale"}
{"call":"1-4","at":9,"op":{"Hol`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	calls, err := readHistory(path)
	if err != nil || len(calls) != 3 || unknown(calls) != 1 {
		t.Fatalf("got %+v, %v; want three calls, one of unknown outcome", calls, err)
	}
	if c := calls[0]; c.began != 5 || c.end != 7 || c.result == nil || c.result.Granted != 3 {
		t.Errorf("got %+v", c)
	}
	if !calls[2].notApplied {
		t.Error("what failed for good counts as applied, perhaps")
	}
}

func TestBooks_AGapIsFound(t *testing.T) {
	t.Parallel()
	b := &books{moved: make(chan struct{})}
	for i, revision := range []int64{2, 3, 3, 4} {
		if err := b.note(put(revision), nil); err != nil {
			t.Fatalf("event %d: %v", i, err)
		}
	}
	wantError(t, b.note(put(6), nil), "from revision 4 to 6")
	ctx := t.Context()
	wantError(t, b.upTo(ctx, 9), "from revision 4 to 6")
}
