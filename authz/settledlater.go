package authz

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"
)

// laterRules are the rules of rate limit domains that this process has seen a look at: a
// descriptor with 0 hits, which Envoy sends before a request whose hits it tells once it has
// ended. What such a rule is charged is a bill. It is safe for concurrent use.
type laterRules struct {
	mu   sync.Mutex
	seen atomic.Pointer[map[string]bool] // by the rule's path; replaced, never changed
}

func (l *laterRules) has(path string) bool {
	seen := l.seen.Load()
	return seen != nil && (*seen)[path]
}

// add notes a look. It reports whether it is the first one.
func (l *laterRules) add(path string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.has(path) {
		return false
	}
	all := map[string]bool{}
	if seen := l.seen.Load(); seen != nil {
		all = maps.Clone(*seen)
	}
	all[strings.Clone(path)] = true
	l.seen.Store(&all)
	return true
}

// bills reports whether the hits of descriptor i tell of use that happened, and so count
// in full: its rule is settled later, and it is neither a look nor a refund. The answer is
// as for any other: where Envoy asks before a request, it refuses what does not fit.
func (t *counting) bills(i int) bool {
	ask, rule := &t.asks[i], t.rule(i)
	return rule != nil && rule.Limit != nil && ask.Hits > 0 && !ask.Refund &&
		(t.cur.snapshot.SettledLater(rule.Path) || t.d.later.has(rule.Path))
}

// noteLooks notes the rules that the request has looked at, for all replicas.
func (t *counting) noteLooks() {
	for i := range t.asks {
		rule := t.rule(i)
		if rule == nil || rule.Limit == nil || t.asks[i].Hits != 0 || t.asks[i].Refund || t.cur.snapshot.SettledLater(rule.Path) {
			continue
		}
		if t.d.later.add(rule.Path) && t.d.looked != nil {
			t.d.looked(rule.Path)
		}
	}
}
