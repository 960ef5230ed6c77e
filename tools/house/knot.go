package main

import "slices"

// knot returns the largest set of files that reach each other along arrows, sorted; none
// if no two do.
func knot(arrows map[string]map[string]bool) (most []string) {
	k := &knots{arrows: arrows, index: map[string]int{}, low: map[string]int{}, on: map[string]bool{}}
	for from := range arrows {
		if k.index[from] == 0 {
			k.visit(from)
		}
	}
	if len(k.most) < 2 {
		return nil
	}
	slices.Sort(k.most)
	return k.most
}

// knots are found by Tarjan's algorithm.
type knots struct {
	arrows map[string]map[string]bool
	index  map[string]int // in the order of visits, from 1 on
	low    map[string]int // the least index that is reached
	stack  []string
	on     map[string]bool // the stack
	most   []string
}

func (k *knots) visit(file string) {
	k.index[file] = len(k.index) + 1
	k.low[file] = k.index[file]
	k.stack = append(k.stack, file)
	k.on[file] = true
	for to := range k.arrows[file] {
		switch {
		case k.index[to] == 0:
			k.visit(to)
			k.low[file] = min(k.low[file], k.low[to])
		case k.on[to]:
			k.low[file] = min(k.low[file], k.index[to])
		}
	}
	if k.low[file] != k.index[file] {
		return
	}
	from := slices.Index(k.stack, file)
	for _, f := range k.stack[from:] {
		k.on[f] = false
	}
	if found := k.stack[from:]; len(found) > len(k.most) {
		k.most = slices.Clone(found)
	}
	k.stack = k.stack[:from]
}
