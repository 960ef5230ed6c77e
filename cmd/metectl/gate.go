package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/store"
)

// mayWrite refuses to write to a store that needs a newer metectl: this one could
// drop what it does not see (S27). No flag overrules that.
func mayWrite(ctx context.Context, client *clientv3.Client) error {
	_, err := store.Writable(ctx, client)
	return conflict(err)
}

// tooOld is the failure of a metectl that is too old for the store, nil if err is
// another one.
func tooOld(err error) error {
	var old *store.TooOldError
	if !errors.As(err, &old) {
		return nil
	}
	next := "use the metectl of the replicas' version, which metectl status shows; no flag overrules this"
	if v := old.Minimum.Version; v != "" {
		next = "use metectl " + v + " or newer; no flag overrules this"
	}
	return &failure{
		code: exitConflict, what: "nothing was written",
		why:  "this metectl is older than what the store needs: " + old.Error(),
		next: next,
	}
}

// tellWaiting tells of documents that come into force only once older replicas are
// gone. They are written all the same: nobody has to think of them again.
func (c *cli) tellWaiting(ctx context.Context, client *clientv3.Client, steps []step) error {
	needed, which := 1, ""
	for _, s := range steps {
		if level, path := s.doc.Needs(); s.changes() && level > needed {
			needed, which = level, shortReference(s.doc.Kind, s.doc.Name)+": "+path
		}
	}
	if needed == 1 {
		return nil
	}
	r, err := readStatus(ctx, client)
	if err != nil {
		return err
	}
	var old []string
	for _, v := range r.Replicas {
		if v.FeatureLevel < needed {
			old = append(old, fmt.Sprintf("%s (version %s, level %d)", v.Incarnation, orDash(v.Version), v.FeatureLevel))
		}
	}
	if len(old) > 0 {
		c.say("%s needs feature level %d; it comes into force once these replicas are upgraded or gone: %s", which, needed, strings.Join(old, ", "))
	}
	return nil
}

// needsNewer is what the status says of a replica that is below what the store needs.
func needsNewer(v replicaView, m store.Minimum) string {
	switch {
	case m.Level == 1, !m.Above(v.FeatureLevel):
		return ""
	case m.Level == 0:
		return "unknown: " + store.MinimumKey + " cannot be read"
	}
	return fmt.Sprintf("needs a newer version: the store needs level %d", m.Level)
}

// ownLevel tells on stderr if this metectl cannot read all that the store holds.
func (c *cli) ownLevel(m store.Minimum) {
	if m.Above(plan.FeatureLevel) {
		c.say("this metectl has feature level %d and the store needs %s: what is newer is not shown, and nothing is written", plan.FeatureLevel, m.Needed())
	}
}
