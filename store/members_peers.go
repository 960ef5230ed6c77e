package store

import (
	"iter"
	"maps"
	"math"
	"slices"
	"strconv"
)

// present is a presence as it was put at a revision.
type present struct {
	Presence
	revision int64
}

// process returns the number that p's process is named by; false if it has none that
// this version can read.
func (p *Presence) process() (uint64, bool) {
	return processNumber(p.Process)
}

func processNumber(name string) (uint64, bool) {
	const digits = 16
	if len(name) != digits || !isLowerHex(name) {
		return 0, false
	}
	n, err := strconv.ParseUint(name, 16, 64)
	return n, err == nil
}

func isLowerHex(s string) bool {
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// peers returns the addresses of all live replicas, this one included, by the numbers
// that their processes are named by. A replica without such a name or without an address
// is left out. Of a process that is just beginning another incarnation, two presences
// may be there: the one that was put last tells where it is. This replica knows best
// what it is, and does not wait for its own presence. The caller holds mu.
func (m *Members) peers() map[uint64]string {
	peers, put := map[uint64]string{}, map[uint64]int64{}
	for _, p := range m.live {
		n, named := p.process()
		if named && p.Address != "" && p.revision > put[n] {
			peers[n], put[n] = p.Address, p.revision
		}
	}
	if n, named := m.Presence.process(); named && m.Presence.Address != "" {
		peers[n] = m.Presence.Address
	}
	return peers
}

// newPeers returns the peers, and whether OnPeers does not know them so yet. The caller
// holds mu and calls OnPeers.
func (m *Members) newPeers() (peers map[uint64]string, other bool) {
	peers = m.peers()
	if maps.Equal(peers, m.told) {
		return nil, false
	}
	m.told = maps.Clone(peers)
	return peers, true
}

// newSuccessors returns who remembers what processes before it have settled, and whether
// OnSuccessors does not know so yet. Of several the one that was put last does. This replica
// does not wait for its own presence. The caller holds mu and calls OnSuccessors.
func (m *Members) newSuccessors() (after map[uint64]uint64, other bool) {
	after, put := map[uint64]uint64{}, map[uint64]int64{}
	add := func(p *Presence, revision int64) {
		process, named := p.process()
		if !named || p.Address == "" {
			return
		}
		for _, name := range p.Before {
			if n, ok := processNumber(name); ok && n != process && revision > put[n] {
				after[n], put[n] = process, revision
			}
		}
	}
	for _, p := range m.live {
		add(&p.Presence, p.revision)
	}
	add(&m.Presence, math.MaxInt64)
	if maps.Equal(after, m.after) {
		return nil, false
	}
	m.after = maps.Clone(after)
	return after, true
}

// ZoneVersions returns the versions of the data of time zones among presences, sorted. Those
// that say none are left out.
func ZoneVersions(all iter.Seq[Presence]) []string {
	var versions []string
	for p := range all {
		if p.Zones != "" && !slices.Contains(versions, p.Zones) {
			versions = append(versions, p.Zones)
		}
	}
	slices.Sort(versions)
	return versions
}

// newZones returns those versions of the live replicas, this one included, and whether
// there are several and that was not told yet. The caller holds mu.
func (m *Members) newZones() (versions []string, differ bool) {
	versions = ZoneVersions(func(yield func(Presence) bool) {
		if !yield(m.Presence) {
			return
		}
		for _, p := range m.live {
			if !yield(p.Presence) {
				return
			}
		}
	})
	before := m.zones
	m.zones = versions
	return versions, len(versions) > 1 && !slices.Equal(before, versions)
}
