package authz

import (
	"time"

	"github.com/meteproject/mete/quota"
)

// longestAhead is how long before a window begins its purse is opened at most: the first
// lease is not spent from after 60 s.
const longestAhead = 30 * time.Second

// purse returns the purse of the window that the request belongs to, which is never
// reset (Q48). The one of the window before is kept for requests that began in it.
//
// The caller holds the node's lock; root is that of the tree that the accounts are in.
func (d *Decider) purse(n *node, slot *slot, root string, m moment) *quota.Purse {
	if purse := slot.at(m.minute); purse != nil {
		purse.SetTerms(m.at, slot.terms) // another app may have its own
		if !n.shared && !m.now.Before(slot.nextFrom) {
			d.openNext(n, slot, root, m)
		}
		return purse
	}
	before, next := slot.late, slot.next
	slot.late, slot.lateWindow = slot.purse, slot.window
	if next != nil && slot.nextWindow.Holds(m.minute) && !next.Closed() {
		slot.purse, slot.window = next, slot.nextWindow
	} else {
		slot.window = slot.calendar.Window(m.minute)
		slot.purse = d.openPurse(n, slot, root, slot.window)
	}
	if !slot.nextWindow.Start.After(m.minute) { // it has begun, or nobody asked while it ran
		slot.next, slot.nextWindow = nil, quota.Window{}
	}
	slot.nextFrom = beginsAhead(slot.window, n.tenant)
	slot.purse.SetTerms(m.at, slot.terms)
	n.close(before)
	n.close(next)
	return slot.purse
}

func (d *Decider) openPurse(n *node, slot *slot, root string, window quota.Window) *quota.Purse {
	key := slot.account
	key.Root, key.Window = root, window.ID
	if n.shared {
		return d.keeper.NewLocal(key, window, slot.terms)
	}
	p := d.keeper.Open(key, window, slot.terms, &n.mu)
	n.opened(p)
	if !n.declared.Load() {
		n.newcomer(p)
	}
	return p
}

// newcomer says of a purse that was just opened how new its name is.
func (n *node) newcomer(p *quota.Purse) {
	ration := int64(0)
	if n.rations > 0 {
		n.rations--
		ration = n.minute
	}
	p.Newcomer(n.born+int64(newFor), ration)
}

// openNext takes the first lease of the next window a little before it begins, for a
// limit that is in use: at midnight not all tenants ask at once (P69). Nobody waits
// for it.
func (d *Decider) openNext(n *node, slot *slot, root string, m moment) {
	if from := beginsAhead(slot.window, n.tenant); m.now.Before(from) {
		slot.nextFrom = from // it was that of another window
		return
	}
	slot.nextFrom = slot.window.End.Add(longestAhead) // not again
	next := slot.calendar.Window(slot.window.End)
	if slot.terms.Counts || !slot.window.Holds(m.minute) || slot.next != nil || slot.lateWindow.ID == next.ID {
		return
	}
	slot.next, slot.nextWindow = d.openPurse(n, slot, root, next), next
	slot.next.SetTerms(m.at, slot.terms)
	slot.next.Succeed(slot.purse)
}

// beginsAhead returns when the purse of the window after w is opened: before the minute
// in which the first requests belong to it (A17), each tenant at a time of its own.
func beginsAhead(w quota.Window, tenant string) time.Time {
	h := uint32(2166136261) // FNV-1a
	for i := range len(tenant) {
		h = (h ^ uint32(tenant[i])) * 16777619
	}
	ahead := longestAhead - time.Duration(h%20)*time.Second
	return w.End.Add(-time.Minute - ahead)
}
