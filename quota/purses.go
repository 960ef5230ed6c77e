package quota

import (
	"slices"
	"sync"
)

// Open returns the purse of an account, the one that is open already if there is
// one. lock guards the purse; it must be the same for the same account for as long
// as the purse is not forgotten. The caller holds it.
//
// Where the open one belongs to another tree, because the tenant has moved, it is
// closed, and settled beside the one that Open returns. Where both trees have one account,
// Open returns the closed one until it is settled.
func (k *Keeper) Open(key Key, window Window, terms *Terms, lock sync.Locker) *Purse {
	k.mu.Lock()
	defer k.mu.Unlock()
	if p, ok := k.purses[key.account()]; ok {
		switch {
		case p.key.Root == key.Root:
			p.closing = false
			return p
		case p.Settled():
			k.drop(p)
		default:
			p.shut()
			k.enqueue(p)
			k.signal()
			if k.same(p.key, key) {
				return p
			}
			k.late[key.account()] = append(k.late[key.account()], p)
		}
	}
	p := k.lateOf(key)
	switch {
	case p != nil && p.key.Root == key.Root: // its tenant is back
		k.dropLate(p)
		p.window, p.terms, p.closing = window, terms, false
	case p != nil && !p.Settled(): // of the same account
		return p
	default:
		if p != nil {
			k.drop(p)
		}
		p = k.newPurse(key, window, terms, lock)
	}
	k.purses[key.account()] = p
	k.most = max(k.most, len(k.purses))
	return p
}

// OpenLate is Open for what is settled late, of a tenant that is in the tree under root
// now. Where the account that key names is that of another tree, because the tenant has
// moved, its purse is not the one that Open returns to requests: they are charged in the
// tree that the tenant is in. The caller closes it.
func (k *Keeper) OpenLate(key Key, root string, terms *Terms, lock sync.Locker) *Purse {
	now := key
	now.Root = root
	k.mu.Lock()
	p := k.purses[key.account()]
	if p == nil && k.same(now, key) || p != nil && p.key.Root == key.Root {
		k.mu.Unlock()
		return k.Open(key, Window{ID: key.Window}, terms, lock)
	}
	defer k.mu.Unlock()
	if p != nil && k.same(p.key, key) {
		return p
	}
	late := k.lateOf(key)
	if late == nil {
		late = k.newPurse(key, Window{ID: key.Window}, terms, lock)
		k.late[key.account()] = append(k.late[key.account()], late)
	}
	late.closing = false
	return late
}

// same reports whether two keys, which differ in their roots at most, name one account.
func (k *Keeper) same(a, b Key) bool {
	return a.Root == b.Root || k.cfg.SameAccount == nil || k.cfg.SameAccount(a, b)
}

// lateOf returns the late purse of the account that key names, or nil. The caller holds
// k's lock.
func (k *Keeper) lateOf(key Key) *Purse {
	for _, p := range k.late[key.account()] {
		if k.same(p.key, key) {
			return p
		}
	}
	return nil
}

// dropLate makes p, if it is a late purse, one no more, and reports whether it was. The
// caller holds k's lock.
func (k *Keeper) dropLate(p *Purse) bool {
	account := p.key.account()
	late := k.late[account]
	i := slices.Index(late, p)
	switch {
	case i < 0:
		return false
	case len(late) == 1:
		delete(k.late, account)
	default:
		k.late[account] = slices.Delete(late, i, i+1)
	}
	return true
}

// newPurse makes a purse. The caller holds k's lock.
func (k *Keeper) newPurse(key Key, window Window, terms *Terms, lock sync.Locker) *Purse {
	return &Purse{key: key, window: window, keeper: k, mu: lock, terms: terms, agenda: agenda{salt: k.nextSalt()}}
}

// has reports whether p is one that k has not forgotten. The caller holds k's lock.
func (k *Keeper) has(p *Purse) bool {
	account := p.key.account()
	return k.purses[account] == p || slices.Contains(k.late[account], p)
}

// Forget drops a purse that is Settled. The caller holds its lock. It tells
// whether the purse is gone.
func (k *Keeper) Forget(p *Purse) bool {
	if !p.gone && !p.Settled() {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if p.queued || p.busy {
		return false
	}
	k.drop(p)
	return true
}

// inPlaceOf returns the purse of p's account that was opened after p was forgotten, if
// p's lock guards it, too. The caller holds that lock.
func (k *Keeper) inPlaceOf(p *Purse) *Purse {
	k.mu.Lock()
	defer k.mu.Unlock()
	next := k.purses[p.key.account()]
	if next == nil || !k.same(next.key, p.key) { // that is of another tree
		next = k.lateOf(p.key)
	}
	if next == nil || next.mu != p.mu {
		return nil
	}
	return next
}

// drop forgets p. The caller holds p's and k's lock.
func (k *Keeper) drop(p *Purse) {
	if p.gone {
		return // another purse may have its place
	}
	p.gone = true
	p.closeCell()
	p.unfollow()
	if !k.dropLate(p) {
		delete(k.purses, p.key.account())
	}
	k.forgotten = k.forgotten || p.seq > 0
	k.shrink()
}

// shrink gives back the memory of a map that has had far more purses than it has. The
// caller holds k's lock.
func (k *Keeper) shrink() {
	const spare = 4096
	if k.most < 8*len(k.purses)+spare {
		return
	}
	purses := make(map[Key]*Purse, len(k.purses))
	for key, p := range k.purses {
		purses[key] = p
	}
	k.purses, k.most = purses, len(purses)
}

// open returns the purses. The caller holds k's lock.
func (k *Keeper) open() []*Purse {
	open := make([]*Purse, 0, len(k.purses)+len(k.late))
	for _, p := range k.purses {
		open = append(open, p)
	}
	for _, late := range k.late {
		open = append(open, late...)
	}
	return open
}
