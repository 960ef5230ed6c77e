package main

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/meteproject/mete/store"
)

// status is what GET /v1/status answers.
type status struct {
	Name        string     `json:"name"`
	Incarnation string     `json:"incarnation"`
	Version     string     `json:"version"`
	Ready       bool       `json:"ready"`
	StoreUp     bool       `json:"store_up"`
	Refusal     string     `json:"store_refuses_writes,omitempty"` // what etcd says to them
	Level       int        `json:"feature_level"`                  // of this replica
	Minimum     int        `json:"minimum_level"`                  // that the store needs; 0: not known
	Behind      bool       `json:"needs_newer_version,omitempty"`  // this replica does
	Revision    int64      `json:"revision"`                       // of etcd, up to which all is applied
	Rejected    []rejected `json:"rejected"`
	Replicas    []replica  `json:"replicas"`
}

// rejected is a document whose newest edit is not enforced.
type rejected struct {
	Kind     string    `json:"kind"`
	Name     string    `json:"name"`
	Revision int64     `json:"revision"`
	Deleted  bool      `json:"deleted,omitempty"` // the edit is a deletion
	Since    time.Time `json:"since"`
	Problems []problem `json:"problems"`
}

type problem struct {
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Path    string `json:"path,omitempty"`
	Message string `json:"message"`
}

type replica struct {
	Incarnation string `json:"incarnation"`
	store.Presence
}

// status returns what is to be known of this replica and of what it knows. Lists
// are sorted, so that two replicas' answers can be compared.
func (m *mete) status() any {
	docs := m.documents.Stats()
	s := status{
		Name: m.cfg.Name, Incarnation: m.members.Incarnation(), Version: build().Version,
		Ready: m.probes.ready(), StoreUp: m.storeUp(), Refusal: m.writes.Refusal(), Revision: docs.Revision,
		Level: m.gate.level, Minimum: docs.Minimum.Level, Behind: m.gate.behind.Load(),
		Rejected: []rejected{}, Replicas: []replica{},
	}
	for _, r := range m.documents.Rejected() {
		s.Rejected = append(s.Rejected, rejection(r))
	}
	for id, p := range m.members.Replicas() {
		s.Replicas = append(s.Replicas, replica{Incarnation: id, Presence: p})
	}
	slices.SortFunc(s.Replicas, func(a, b replica) int { return strings.Compare(a.Incarnation, b.Incarnation) })
	return s
}

func rejection(r store.Rejection) rejected {
	out := rejected{Kind: string(r.Kind), Name: r.Name, Revision: r.Revision, Deleted: r.Deleted, Since: r.Since, Problems: []problem{}}
	for _, p := range r.Problems {
		if !p.Warning {
			out.Problems = append(out.Problems, problem{Line: p.Line, Column: p.Col, Path: p.Path, Message: p.Message})
		}
	}
	return out
}

// read reads the parts for a scrape.
func (m *mete) read() readings {
	docs := m.documents.Stats()
	r := readings{
		Decider: m.decider.Stats(), Envoy: m.envoy.Stats(), Keeper: m.keeper.Stats(),
		Rejected: map[string]int{}, NotAfter: m.certificateEnds(),
		StoreUp: m.storeUp(), Writable: m.writes.Refusal() == "", Untold: docs.Untold, Revision: docs.Revision, Replicas: m.members.Live(),
		Limits: m.keeper.Limits(), Accounts: m.accounts.Stats(), Cluster: m.etcd.Health(),
		Sweep: m.sweeper.Stats(), Recovery: m.recovery.Stats(),
	}
	if m.journal != nil {
		r.Journal = m.journal.Stats()
	}
	for _, kind := range store.Kinds() { // also those of which all are good
		r.Rejected[string(kind)] = docs.Rejected[kind]
	}
	return r
}

// readSettlement reads the parts that settle, for a scrape.
func (m *mete) readSettlement() settlementReadings {
	r := settlementReadings{Decider: m.decider.Stats(), Envoy: m.envoy.Stats(), Router: m.router.Stats()}
	if m.events != nil {
		events := m.events.Stats()
		r.Events = &events
	}
	return r
}

// readRatelimit reads what tells of rate limit domains, for a scrape.
func (m *mete) readRatelimit() ratelimitReadings {
	return ratelimitReadings{Decider: m.decider.Stats(), Envoy: m.envoy.Stats()}
}

// certificateEnds returns when the certificates in use end, by use.
func (m *mete) certificateEnds() map[string]time.Time {
	ends := map[string]time.Time{}
	maps.Copy(ends, m.secure.notAfter())
	if end, ok := m.etcdPair.notAfter(); ok {
		ends["etcd"] = end
	}
	return ends
}
