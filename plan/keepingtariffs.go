package plan

import (
	"cmp"
	"slices"
)

// MaxTariffs is how many bytes of tariffs are kept of rules that are gone: some 4,000.
// Requests end within a day, and documents are edited by people.
const MaxTariffs = 1 << 20

// keptTariffs are the tariffs of all rules, and of those that were there before.
type keptTariffs struct {
	all     map[string]*keptTariff // by id
	bytes   int
	seen    uint64          // how many have been added
	owed    map[string]bool // to the store
	dropped []StoredTariff
}

type keptTariff struct {
	tariff   *Tariff
	size     int
	seen     uint64
	revision int64 // of its key; 0: it is not stored
}

// A StoredTariff is a tariff as a store has it.
type StoredTariff struct {
	ID       string
	Text     []byte
	Revision int64 // of its key; 0: it has none
}

// keepTariffs remembers the tariffs of a table, for requests that outlast its rules.
func (c *Catalog) keepTariffs(t *routeTable) {
	for _, id := range sortedKeys(t.tariffs) {
		c.keepTariff(id, t.tariffs[id])
	}
	c.trimTariffs()
}

func (c *Catalog) keepTariff(id string, t *Tariff) {
	if c.tariffs.all[id] != nil {
		return
	}
	c.tariffs.seen++
	k := &keptTariff{tariff: t, size: len(id) + len(t.text()), seen: c.tariffs.seen}
	c.tariffs.all[id], c.tariffs.owed[id] = k, true
	c.tariffs.bytes += k.size
	c.now.tariffs.edit(c.age)[id] = t
}

// trimTariffs forgets those of rules that are gone, the oldest first, until the rest is
// no more than MaxTariffs.
func (c *Catalog) trimTariffs() {
	if c.tariffs.bytes <= MaxTariffs {
		return
	}
	inForce := map[string]bool{}
	for _, e := range c.now.apps.entries {
		for id := range e.routes.tariffs {
			inForce[id] = true
		}
	}
	ids := slices.DeleteFunc(sortedKeys(c.tariffs.all), func(id string) bool { return inForce[id] })
	slices.SortFunc(ids, func(a, b string) int { return c.tariffs.all[a].compareAge(c.tariffs.all[b]) })
	for _, id := range ids {
		if c.tariffs.bytes <= MaxTariffs {
			return
		}
		k := c.tariffs.all[id]
		if k.revision > 0 {
			c.tariffs.dropped = append(c.tariffs.dropped, StoredTariff{ID: id, Revision: k.revision})
		}
		c.tariffs.bytes -= k.size
		delete(c.tariffs.all, id)
		delete(c.tariffs.owed, id)
		delete(c.now.tariffs.edit(c.age), id)
	}
}

// compareAge returns less than 0 if k is older than other: what is stored by when it was,
// and all of it before the rest.
func (k *keptTariff) compareAge(other *keptTariff) int {
	if k.revision > 0 && other.revision > 0 {
		return cmp.Compare(k.revision, other.revision)
	}
	return cmp.Or(btoi(k.revision == 0)-btoi(other.revision == 0), cmp.Compare(k.seen, other.seen))
}

// SetTariff says that the store has the text of a tariff since a revision, or, without a
// text, has it no more. What is not the tariff of that id is none. It reports whether
// snapshots change by it.
func (c *Catalog) SetTariff(s StoredTariff) (changed bool) {
	if s.Text == nil || tariffID(s.Text) != s.ID {
		c.TariffStored(s.ID, 0)
		return false
	}
	t := decodeTariff(s.Text)
	if t == nil { // this version does not understand it
		return false
	}
	changed = c.tariffs.all[s.ID] == nil
	c.keepTariff(s.ID, t)
	c.TariffStored(s.ID, s.Revision)
	c.trimTariffs()
	return changed
}

// TariffStored says that the store has a tariff since a revision; 0: it has it not.
func (c *Catalog) TariffStored(id string, revision int64) {
	k := c.tariffs.all[id]
	if k == nil {
		return
	}
	k.revision = revision
	delete(c.tariffs.owed, id)
	if revision == 0 {
		c.tariffs.owed[id] = true
	}
}

// ForgetStoredTariffs says that what the store has is about to be told from the start.
func (c *Catalog) ForgetStoredTariffs() {
	for id := range c.tariffs.all {
		c.TariffStored(id, 0)
	}
}

// TariffsToStore returns the tariffs that no store is known to have, at most n of them,
// sorted by their ids. All of them are needed: a process that starts later settles
// requests of rules that it has never seen.
func (c *Catalog) TariffsToStore(n int) []StoredTariff {
	var all []StoredTariff
	for _, id := range sortedKeys(c.tariffs.owed) {
		if len(all) < n {
			all = append(all, StoredTariff{ID: id, Text: c.tariffs.all[id].tariff.text()})
		}
	}
	return all
}

// TariffsToDrop returns the stored tariffs that were forgotten, and forgets that they
// were.
func (c *Catalog) TariffsToDrop() []StoredTariff {
	all := c.tariffs.dropped
	c.tariffs.dropped = nil
	return all
}
