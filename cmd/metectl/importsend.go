package main

import (
	"context"
	"errors"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/store"
)

// send runs the transactions, or their rehearsal, and notes the revision of each step.
func (im *importer) send(ctx context.Context, client *clientv3.Client, p *importPlan) error {
	parts := p.parts()
	if im.dryRun == "client" {
		return nil
	}
	if im.dryRun == "server" {
		return importConflict(rehearse(ctx, client, slices.Concat(parts...)))
	}
	if len(parts) > 1 {
		im.say("%d documents are more than etcd takes at once; they are written in %d transactions", len(slices.Concat(parts...)), len(parts))
	}
	applied := 0
	for _, part := range parts {
		revision, err := store.ApplyDocuments(ctx, client, part)
		if err != nil && applied > 0 {
			err = &store.PartialError{Applied: applied, Total: len(slices.Concat(parts...)), Err: err}
		}
		if err != nil {
			return importConflict(err)
		}
		applied += len(part)
		p.wrote(part, revision)
	}
	return nil
}

// importConflict is conflict with what to do about it here.
func importConflict(err error) error {
	changed := errors.Is(err, store.ErrChanged)
	err = conflict(err)
	if f := (*failure)(nil); errors.As(err, &f) && (changed || f.code == exitPartly) {
		f.next = "import again, which writes what is missing"
	}
	return err
}

// wrote notes the revision that changes were made at.
func (p *importPlan) wrote(part []store.Change, revision int64) {
	for _, ch := range part {
		for i := range p.steps {
			if p.steps[i].doc.Name == ch.Name {
				p.steps[i].revision = revision
			}
		}
		p.revision = revision
	}
	p.transactions++
}

// What one transaction takes: etcd allows 128 operations, and a request of 1.5 MiB.
const (
	importOps   = 60
	importBytes = 1 << 20
)

// parts divides the changes into transactions. As long as its own changes fit into
// one, a domain changes in one; else what is new comes first and deletions last.
func (p *importPlan) parts() [][]store.Change {
	of := map[string][]store.Change{}
	var domains []string
	add := func(domain string, ch store.Change) {
		if of[domain] == nil {
			domains = append(domains, domain)
		}
		of[domain] = append(of[domain], ch)
	}
	for _, s := range p.steps {
		if s.changes() {
			add(s.doc.RateLimits.Domain, store.Change{Kind: s.doc.Kind, Name: s.doc.Name, Text: s.doc.Text, ModRevision: s.stored.revision})
		}
	}
	for _, s := range p.gone {
		add(s.domain(), store.Change{Kind: s.kind, Name: s.name, ModRevision: s.revision})
	}
	var parts [][]store.Change
	var part []store.Change
	ops, bytes := 0, 0
	flush := func() {
		if len(part) > 0 {
			parts, part, ops, bytes = append(parts, part), nil, 0, 0
		}
	}
	for _, domain := range domains {
		if size := sizeOf(of[domain]...); ops+len(of[domain]) > importOps || bytes+size > importBytes {
			flush()
		}
		for _, ch := range of[domain] {
			if ops+1 > importOps || bytes+sizeOf(ch) > importBytes {
				flush()
			}
			part = append(part, ch)
			ops, bytes = ops+1, bytes+sizeOf(ch)
		}
	}
	flush()
	return parts
}

// sizeOf estimates the bytes of changes in a request: each names its key three times.
func sizeOf(changes ...store.Change) int {
	n := 0
	for _, ch := range changes {
		n += len(ch.Text) + 3*len(store.DocumentKey(ch.Kind, ch.Name)) + 64
	}
	return n
}
