package main

import (
	"cmp"
	"context"
	"net"
	"os"
	"time"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/ledger"
	"github.com/meteproject/mete/peers"
	"github.com/meteproject/mete/store"
)

// assembleSettlement makes the parts that settle requests once they have ended.
func (m *mete) assembleSettlement() {
	m.seals = store.NewSeals(m.etcd)
	m.seals.Log = m.log
	m.seals.OnKeys = func(sign store.SealKey, all []store.SealKey) {
		keys := make([]authz.SealKey, len(all))
		for i, k := range all {
			keys[i] = authz.SealKey(k)
		}
		m.decider.SetSeals(authz.SealKey(sign), keys)
	}
	m.router = peers.New(peers.Config{
		Decider: m.decider, Process: m.process, Now: time.Now, Log: m.log,
		Ready: m.settles, Secure: m.secure.peerCredentials(),
	})
}

// settles reports whether this replica settles: not before it was ready once. Until then it
// may have no keys and no documents, or not know who has decided.
func (m *mete) settles() bool {
	select {
	case <-m.settling:
		return true
	default:
		return false
	}
}

// meetFor is how long a start waits until this replica is among the others. An etcd that
// takes no writes must not keep it from deciding; only repeats could be settled twice then.
const meetFor = 10 * time.Second

// met reports whether this replica has been seen among all, or has waited for that. One that
// is cut off later has been met all the same.
func (m *mete) met() bool {
	if m.known.Load() {
		return true
	}
	_, seen := m.members.Replicas()[m.members.Incarnation()]
	if seen || time.Since(m.began) > meetFor {
		m.known.Store(true)
	}
	return m.known.Load()
}

// advertised returns the address at which other replicas reach this one.
func (m *mete) advertised() string {
	if m.cfg.AdvertiseAddress != "" {
		return m.cfg.AdvertiseAddress
	}
	listening := cmp.Or(m.inUse.Peers, m.inUse.GRPC)
	host, port, err := net.SplitHostPort(listening)
	if err != nil || isSocket(listening) {
		return listening // of a socket: so that the others know this process to be alive
	}
	ip := net.ParseIP(host)
	if ip != nil && !ip.IsUnspecified() {
		return listening
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return listening
	}
	return net.JoinHostPort(reachable(addrs, ip.To4() != nil), port)
}

// reachable returns the address among addrs at which others reach what listens on all
// interfaces: one of IPv4 where there is any, since nobody lacks that but who is told
// otherwise.
func reachable(addrs []net.Addr, onlyIPv4 bool) string {
	found := ""
	for _, a := range addrs {
		n, ok := a.(*net.IPNet)
		switch {
		case !ok || !n.IP.IsGlobalUnicast():
		case n.IP.To4() != nil:
			return n.IP.String()
		case found == "" && !onlyIPv4:
			found = n.IP.String()
		}
	}
	return cmp.Or(found, "127.0.0.1")
}

// startEvents opens the file of usage events, if the settings name one.
func (m *mete) startEvents(ctx context.Context, _ process) (err error) {
	if m.cfg.UsageEvents == "" {
		return nil
	}
	m.events, err = ledger.NewEvents(ledger.Config{
		Path: m.cfg.UsageEvents, Source: "mete/" + m.cfg.Name, Process: m.process, Now: time.Now, Log: m.log,
	})
	if err != nil {
		return err
	}
	m.parts.atStop(ctx, "file of usage events", m.events.Close)
	m.parts.start(ctx, "usage events", m.events.Run)
	hup := m.hangup()
	m.parts.start(ctx, "rotation of usage events", func(ctx context.Context) error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-hup:
				if err := m.events.Reopen(); err != nil {
					m.log.Error().Err(err).Msg("usage events go on to the old file")
				}
			}
		}
	})
	return nil
}

// tellsUse returns what notes use for the usage events; nil: nothing does.
func (m *mete) tellsUse() func(*authz.Use) {
	if m.events == nil {
		return nil
	}
	return func(u *authz.Use) {
		use := ledger.Use{
			At: u.At, App: u.App, Tenant: u.Tenant, Limit: u.Limit, Unit: u.Unit, Window: u.Window,
			Class: u.Class, Principal: u.Principal, Route: u.Route, Attribution: u.Attribution,
			Outcome: ledger.Counted, Units: u.Units,
		}
		if u.Units < 0 {
			use.Outcome, use.Units = ledger.Refunded, -u.Units
		}
		m.events.Add(&use)
	}
}

// hangup returns a channel that gets each SIGHUP, for one more part that rereads
// something.
func (m *mete) hangup() <-chan os.Signal {
	ch := make(chan os.Signal, 1)
	m.hangups = append(m.hangups, ch)
	return ch
}

// startHangups hands each SIGHUP to all who asked for it.
func (m *mete) startHangups(ctx context.Context, p process) error {
	m.parts.start(ctx, "hangups", func(ctx context.Context) error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case s := <-p.hup:
				for _, ch := range m.hangups {
					select {
					case ch <- s:
					default: // it has yet to see the last one
					}
				}
			}
		}
	})
	return nil
}
