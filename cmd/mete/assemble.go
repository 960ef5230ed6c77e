package main

import (
	"context"
	"time"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/envoy"
	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store"
)

// assemble makes the parts that decide. None of them runs yet.
func (m *mete) assemble(context.Context, process) error {
	m.documents = store.NewDocuments(m.etcd)
	m.documents.Log = m.log
	m.members = store.NewMembers(m.etcd, m.cfg.Name)
	m.lendAccounts()
	cfg := quota.KeeperConfig{
		Store: m.leases, Now: time.Now, Journal: m.remembers(),
		Wait: m.cfg.LeaseWait, UnavailableFor: m.cfg.UnavailableFor, RefusalMemory: m.cfg.RefusalMemory,
		NewAccounts: m.cfg.MaxNewAccounts, SameAccount: store.SameAccount,
		Gone: func(string) { m.members.Check() },
	}
	m.board = store.NewBoard(m.etcd, m.members.Incarnation)
	if m.cfg.Recalls {
		cfg.Board = m.board
	}
	m.keeper = quota.NewKeeper(cfg, m.members.Incarnation())
	m.board.Log, m.board.OnRecall, m.board.OnAccount = m.log, m.keeper.Recalled, m.keeper.Changed
	m.sweeper = store.NewSweeper(m.etcd, m.members.Liable, m.members.Incarnation)
	m.sweeper.Log, m.sweeper.Declared = m.log, func(tenant string) bool { return m.decider.Declared(tenant) }
	m.writes = store.NewWrites(m.etcd)
	m.writes.Log = m.log
	m.recovery = quota.NewRecovery(quota.RecoveryConfig{
		Store: m.leases.Store, Now: time.Now, SameAccount: store.SameAccount,
		Settled: func(holders []string) { m.settled = holders },
	}, m.orphans)
	m.orphans = nil // the recovery lets go of each as it is settled
	m.looked = make(chan string, mostLooked)
	m.decider = authz.New(authz.Config{
		Keeper: m.keeper, Now: time.Now, MaxTenants: m.cfg.MaxTenants, MaxCounters: m.cfg.MaxCounters, MaxRuleSeries: m.cfg.MaxRatelimitSeries,
		Waited:  func(d time.Duration) { m.metrics.lease.Observe(d.Seconds()) },
		Process: m.process, Used: m.tellsUse(), Room: m.roomForPages(), Before: pagesOf(m.before), Keep: m.keeps(),
		Looked: m.noteLooked,
	})
	m.decider.SetShadowMode(m.cfg.ShadowMode)
	m.assembleSettlement()

	m.connectMembers()
	m.connectDocuments()
	m.probes = &probes{
		loaded: m.decider.Ready, sealing: m.decider.Sealing, met: m.met, entered: m.gate.open, behind: m.gate.behind.Load,
		storeUp: m.storeUp, refusal: m.writes.Refusal,
	}
	m.metrics.registry.MustRegister(newCollector(m.read), newSettlementCollector(m.readSettlement), newRatelimitCollector(m.readRatelimit),
		newIntakeCollector(func() envoy.Stats { return m.envoy.Stats() }))
	return nil
}

// connectMembers makes what this replica says of itself and hears of the others known
// where it matters.
func (m *mete) connectMembers() {
	m.members.Log, m.members.PresenceTTL = m.log, m.cfg.PresenceTTL
	m.members.Presence = store.Presence{
		Address: m.advertised(), Process: processName(m.process), Version: build().Version, Feature: plan.FeatureLevel,
		Before: processesBefore(m.before), Zones: plan.ZonesVersion(),
	}
	m.members.OnIncarnation, m.members.OnLive, m.members.OnPeers = m.keeper.SetHolder, m.decider.SetReplicas, m.router.SetPeers
	m.members.OnSuccessors = m.router.SetSuccessors
}

// connectDocuments makes documents known to those who decide by them.
func (m *mete) connectDocuments() {
	m.gate = newGate(plan.FeatureLevel, m.etcd, m.members, m.log)
	m.documents.OnSnapshot, m.documents.OnMinimum = m.decider.SetSnapshot, m.gate.notice
	m.documents.OnApplied = func(d time.Duration) { m.metrics.apply.Observe(d.Seconds()) }
	// What was leased from another store is not spent: a new incarnation has no
	// leases.
	m.documents.OnReset = func() {
		m.accounts.Forget()
		m.keeper.Learn(learnFor)
		m.members.Renew()
	}
}

// lendAccounts makes what the keeper asks for leases.
func (m *mete) lendAccounts() {
	m.accounts.Liable = m.members.Liable
	m.accounts.Alone = func() bool { return m.members.Live() == 1 }
	m.accounts.RoundTrip = m.etcd.RoundTrip
	m.leases = &leaseWatch{
		Store: m.tracer.traced(recorded(m.accounts)), wait: m.cfg.LeaseWait,
		roundTrip: m.etcd.RoundTrip, up: m.storeUp, log: m.log,
	}
}
