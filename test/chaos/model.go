package main

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/meteproject/mete/quota"
)

// accountModel is the plain arithmetic of an account.
func accountModel() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return quota.Account{} },
		Step: step,
		Equal: func(x, y any) bool {
			a, _ := x.(quota.Account)
			b, _ := y.(quota.Account)
			return sameAccount(a, b)
		},
	}
}

// step reports whether an operation can have had its output, and what it made of the
// account.
func step(state, in, output any) (bool, any) {
	a, _ := state.(quota.Account)
	i, _ := in.(input)
	if i.op.Holder == "" {
		folded, _ := quota.Reclaim(a, i.op.Gone)
		return true, folded
	}
	next, want := quota.Apply(a, i.op)
	got, known := output.(quota.Result)
	switch {
	case known && got != want:
		return false, a
	case next.Used()+next.Leased() > max(i.op.Ceiling, a.Used()+a.Leased()):
		return false, a
	case unwritten(a, next, i.op.Holder):
		return true, a
	}
	return true, next
}

// unwritten reports whether next differs from a in the sequence of holder alone: a
// store does not write that.
func unwritten(a, next quota.Account, holder string) bool {
	strip := func(a quota.Account) quota.Account {
		a.Holders = slices.Clone(a.Holders)
		for i := range a.Holders {
			if a.Holders[i].ID == holder {
				a.Holders[i].Seq = 0
			}
		}
		a.Holders = slices.DeleteFunc(a.Holders, func(h quota.Holder) bool {
			return h.ID == holder && h.Used == 0 && len(h.Leases) == 0
		})
		return a
	}
	return sameAccount(strip(a), strip(next))
}

// checkHistories lets porcupine judge every account's history. It returns the number
// of operations that were judged. A history that is not linearizable is drawn into a
// page in dir.
func checkHistories(calls []call, found *audit, dir string, within time.Duration) (int, error) {
	deadline, n := time.Now().Add(within), 0
	all := histories(calls, found)
	for _, account := range slices.Sorted(maps.Keys(all)) {
		h := all[account]
		for _, o := range h {
			if o.Output != nil {
				n++
			}
		}
		switch porcupine.CheckOperationsTimeout(accountModel(), h, time.Until(deadline)) {
		case porcupine.Ok:
		case porcupine.Unknown:
			return n, fmt.Errorf("%s: its history of %d operations is not judged within %v", account, len(h), within)
		case porcupine.Illegal:
			return n, fmt.Errorf("%s: its history of %d operations is not linearizable: %s", account, len(h), draw(h, dir, account))
		}
	}
	return n, nil
}

// draw tells which operation nothing explains, and where the picture is.
func draw(h []porcupine.Operation, dir, account string) string {
	model := accountModel()
	model.DescribeOperation = describe
	model.DescribeState = func(state any) string { return fmt.Sprintf("%+v", state) }
	_, info := porcupine.CheckOperationsVerbose(model, h, 10*time.Second)
	var longest []int
	for _, partial := range info.PartialLinearizations()[0] {
		if len(partial) > len(longest) {
			longest = partial
		}
	}
	first := porcupine.Operation{}
	for i, o := range h {
		if !slices.Contains(longest, i) && (first.Input == nil || cmp.Compare(o.Return, first.Return) < 0) {
			first = o
		}
	}
	path := filepath.Join(dir, "history-"+strings.NewReplacer("/", "_", ":", "_").Replace(account)+".html")
	said := fmt.Sprintf("%d are explained, but not %s", len(longest), describe(first.Input, first.Output))
	if err := porcupine.VisualizePath(model, info, path); err != nil {
		return fmt.Sprintf("%s (no picture: %v)", said, err)
	}
	return said + "; see " + path
}

// describe shows an operation as people read it.
func describe(in, output any) string {
	i, _ := in.(input)
	said := "unknown"
	if r, known := output.(quota.Result); known {
		said = fmt.Sprintf("%+v", r)
	}
	return fmt.Sprintf("%s #%d: used %d, holds %v, wants %d of %d: %s", i.op.Holder, i.op.Seq, i.op.Used, i.op.Hold, i.op.Want, i.op.Ceiling, said)
}
