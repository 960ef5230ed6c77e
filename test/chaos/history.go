package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"reflect"

	"github.com/anishathalye/porcupine"

	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store"
)

// A call is one operation on an account, as the replica that asked for it knows it.
// The result is nil where the outcome is unknown.
type call struct {
	op         quota.Operation
	began, end int64
	result     *quota.Result
	notApplied bool
}

func (c call) id() opID { return opID{store.AccountKey(c.op.Key), c.op.Holder, c.op.Seq} }

// readHistory reads what replicas have written. A call that never ended is of
// unknown outcome.
func readHistory(path string) ([]call, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	var calls []call
	index := map[string]int{}
	for in := bufio.NewReader(f); ; {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return calls, nil // what has no end of line was never written in whole
		}
		if err != nil {
			return nil, err
		}
		var r struct {
			Call   string           `json:"call"`
			At     int64            `json:"at"`
			Op     *quota.Operation `json:"op"`
			Result *quota.Result    `json:"result"`
			Failed string           `json:"failed"`
		}
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, fmt.Errorf("%s: %w: %s", path, err, line)
		}
		if r.Op != nil {
			index[r.Call] = len(calls)
			calls = append(calls, call{op: *r.Op, began: r.At, end: math.MaxInt64})
			continue
		}
		i, begun := index[r.Call]
		if !begun {
			return nil, fmt.Errorf("%s: call %s ends and never began", path, r.Call)
		}
		calls[i].end, calls[i].result, calls[i].notApplied = r.At, r.Result, r.Failed == "not_applied"
	}
}

// unknown counts the calls of unknown outcome.
func unknown(calls []call) (n int) {
	for _, c := range calls {
		if c.result == nil && !c.notApplied {
			n++
		}
	}
	return n
}

// An input is an operation for the model, with the holders that it folds away. An
// operation without a holder folds and nothing else.
type input struct{ op quota.Operation }

// histories returns what porcupine is to check, by account.
//
// A call tries as often as it takes: one try makes the change, and a later one may
// bring the answer, which tells of the account as it is by then. So what was written
// is one operation without an answer, which began with the first call of it and was
// over when it was heard of; and each answer is another one that changes nothing if
// the first comes before it. Calls of which nothing was written and nothing heard
// have done nothing.
func histories(calls []call, found *audit) map[string][]porcupine.Operation {
	all := map[string][]porcupine.Operation{}
	add := func(account string, op quota.Operation, output any, began, end int64) {
		all[account] = append(all[account], porcupine.Operation{
			ClientId: len(all[account]), Input: input{op}, Output: output, Call: began, Return: end,
		})
	}
	effects := map[opID]bool{}
	for _, c := range calls {
		id := c.id()
		if w, written := found.written[id]; written && !effects[id] && reflect.DeepEqual(c.op, w.op) {
			effects[id] = true
			op := c.op
			op.Gone = w.gone
			add(id.account, op, nil, c.began, w.at)
		}
		if c.result != nil {
			add(id.account, c.op, *c.result, c.began, c.end)
		}
	}
	for _, f := range found.folds {
		add(f.account, quota.Operation{Gone: f.gone}, nil, f.after, f.at)
	}
	return all
}
