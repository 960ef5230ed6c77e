package store

import "sync"

// maxAsked bounds the accounts of [askedFor].
const maxAsked = 1024

// askedFor keeps accounts as they were answered to a question until the operation that
// follows it: a purse that asks first what the account knows of it has its lease after
// one more round trip then, and not after two. One that is old by then loses the swap,
// and nothing else. Its methods may be called concurrently.
type askedFor struct {
	mu       sync.Mutex
	versions map[string]version // guarded by mu
}

// keep keeps v for the next operation on key. Past the bound all others are dropped.
func (f *askedFor) keep(key string, v version) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.versions == nil || len(f.versions) >= maxAsked {
		f.versions = map[string]version{}
	}
	v.current = false // it was before the operation began
	f.versions[key] = v
}

// take returns what was kept for key, once; nil if nothing was.
func (f *askedFor) take(key string) *version {
	f.mu.Lock()
	defer f.mu.Unlock()
	v, kept := f.versions[key]
	if !kept {
		return nil
	}
	delete(f.versions, key)
	return &v
}

func (f *askedFor) clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.versions)
}
