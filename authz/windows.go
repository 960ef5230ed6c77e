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
func (a *attempt) purse(s *step, slot *slot) *quota.Purse {
	if purse := slot.at(a.minute); purse != nil {
		purse.SetTerms(a.at, slot.terms) // another app may have its own
		if !a.now.Before(slot.nextFrom) {
			a.openNext(s, slot)
		}
		return purse
	}
	before, next := slot.late, slot.next
	slot.late, slot.lateWindow = slot.purse, slot.window
	if next != nil && slot.nextWindow.Holds(a.minute) && !next.Closed() {
		slot.purse, slot.window = next, slot.nextWindow
	} else {
		slot.window = slot.calendar.Window(a.minute)
		slot.purse = a.open(s, slot, slot.window)
	}
	if !slot.nextWindow.Start.After(a.minute) { // it has begun, or nobody asked while it ran
		slot.next, slot.nextWindow = nil, quota.Window{}
	}
	slot.nextFrom = beginsAhead(slot.window, s.node.tenant)
	slot.purse.SetTerms(a.at, slot.terms)
	s.node.close(before)
	s.node.close(next)
	return slot.purse
}

func (a *attempt) open(s *step, slot *slot, window quota.Window) *quota.Purse {
	key := quota.Key{Root: a.path.root(), Tenant: s.node.tenant, Limit: slot.limit.Name, Window: window.ID}
	p := a.d.keeper.Open(key, window, slot.terms, &s.node.mu)
	s.node.opened(p)
	return p
}

// openNext takes the first lease of the next window a little before it begins, for a
// limit that is in use: at midnight not all tenants ask at once (P69). Nobody waits
// for it.
func (a *attempt) openNext(s *step, slot *slot) {
	if from := beginsAhead(slot.window, s.node.tenant); a.now.Before(from) {
		slot.nextFrom = from // it was that of another window
		return
	}
	slot.nextFrom = slot.window.End.Add(longestAhead) // not again
	next := slot.calendar.Window(slot.window.End)
	if slot.terms.Counts || !slot.window.Holds(a.minute) || slot.next != nil || slot.lateWindow.ID == next.ID {
		return
	}
	slot.next, slot.nextWindow = a.open(s, slot, next), next
	slot.next.SetTerms(a.at, slot.terms)
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
