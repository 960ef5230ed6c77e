package main

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"

	"github.com/meteproject/mete/plan"
)

// A batch is what -f named, decoded.
type batch struct {
	docs     []*plan.Document // the valid ones
	problems []plan.Problem
	files    map[*plan.Document]string
	texts    map[string][]byte // by file

	before, after *plan.Snapshot // what the store has, without and with docs; set by prepare
	emptied       []emptied      // by docs; set by prepare, too
}

// position returns where a field of doc stands in its file; zeros if unknown.
func (b *batch) position(doc *plan.Document, path ...string) (line, col int) {
	before, _, found := bytes.Cut(b.texts[b.files[doc]], doc.Text)
	t, err := parseTree(doc.Text)
	if !found || err != nil {
		return 0, 0
	}
	n := t.root
	for _, name := range path {
		if n = child(n, name); n == nil {
			return 0, 0
		}
	}
	return bytes.Count(before, []byte("\n")) + n.Line, n.Column
}

// readBatch decodes what -f names and checks it as far as that goes without a
// store. A document of descriptors is called like its domain, so one domain in two
// of them is refused.
func (c *cli) readBatch(names []string) (*batch, error) {
	b, err := c.readFiles(names)
	if err != nil {
		return nil, err
	}
	for _, p := range plan.RepeatedDomains(b.rateLimits()) {
		p.Message = strings.Replace(p.Message, mergeThere, mergeHere, 1)
		b.problems = append(b.problems, p)
	}
	return b, nil
}

// What to do about a domain in several files: where they may be merged, and elsewhere.
const (
	mergeThere = "merge them with --merge-domains"
	mergeHere  = "write both with metectl import envoy-ratelimit --merge-domains"
)

// readFiles is readBatch but for domains, which several documents may have.
func (c *cli) readFiles(names []string) (*batch, error) {
	sources, err := c.readSources(names)
	if err != nil {
		return nil, err
	}
	b := &batch{files: map[*plan.Document]string{}, texts: map[string][]byte{}}
	first := map[string]string{} // file of each document, by reference
	for _, s := range sources {
		b.texts[s.name] = s.text
		docs, problems := plan.Decode(s.name, s.text)
		b.problems = append(b.problems, problems...)
		for _, doc := range docs {
			b.files[doc] = s.name
			ref := reference(doc.Kind, doc.Name)
			if where, twice := first[ref]; twice && doc.Kind != plan.KindRateLimits {
				line, col := b.position(doc, "metadata", "name")
				b.problems = append(b.problems, plan.Problem{
					File: s.name, Line: line, Col: col, Kind: doc.Kind, Name: doc.Name,
					Message: fmt.Sprintf("%s is in %s already; keep one", shortReference(doc.Kind, doc.Name), where),
				})
				continue
			}
			first[ref] = s.name
			b.docs = append(b.docs, doc)
		}
	}
	return b, nil
}

// rateLimits returns the documents of descriptors.
func (b *batch) rateLimits() []*plan.RateLimits {
	var all []*plan.RateLimits
	for _, doc := range b.docs {
		if doc.RateLimits != nil {
			all = append(all, doc.RateLimits)
		}
	}
	return all
}

// verdict is the closing line of a check: how many problems, in how many
// documents.
func (b *batch) verdict() string {
	type id struct {
		file, kind, name string
		index            int
	}
	bad := map[id]bool{}
	problems, warnings := 0, 0
	good := map[string]bool{}
	for _, doc := range b.docs {
		good[reference(doc.Kind, doc.Name)] = true
	}
	extra := 0 // refused documents, which are not among docs
	for _, p := range b.problems {
		if p.Warning {
			warnings++
			continue
		}
		problems++
		key := id{file: p.File, kind: string(p.Kind), name: p.Name}
		if p.Name == "" {
			key.index = p.Index + 1
		}
		if !bad[key] && (p.Name == "" || !good[reference(p.Kind, p.Name)]) {
			extra++
		}
		bad[key] = true
	}
	total := len(b.docs) + extra
	if problems == 0 {
		line := plural(total, "document") + " valid"
		if warnings > 0 {
			line += ", " + plural(warnings, "warning")
		}
		return line
	}
	count := plural(problems, "problem")
	if warnings > 0 {
		count += " and " + plural(warnings, "warning")
	}
	return fmt.Sprintf("%s in %d of %d documents; nothing was sent", count, len(bad), total)
}

func (b *batch) refused() bool { return plan.Refused(b.problems) }

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// same reports whether two documents mean the same, however they are written: other
// comments, spaces, or 60s for 1m are no difference.
func same(a, b *plan.Document) bool {
	if a.RateLimits != nil && b.RateLimits != nil {
		return a.Name == b.Name && a.RateLimits.Same(b.RateLimits)
	}
	return reflect.DeepEqual(meaning(a), meaning(b))
}

// meaning is the document without how and where it is written.
func meaning(d *plan.Document) plan.Document {
	m := plan.Document{
		Kind: d.Kind, Name: d.Name, App: d.App, Plan: d.Plan, Routes: d.Routes,
		Tenant: d.Tenant, Credential: d.Credential, Webhook: d.Webhook,
	}
	if len(d.Labels) > 0 { // an empty map is none
		m.Labels = d.Labels
	}
	if len(d.Annotations) > 0 {
		m.Annotations = d.Annotations
	}
	return m
}

// shownHash is how much of a credential's hash is shown.
const shownHash = 12

// shortName is a document's name in output. Of a credential only the first
// digits of the hash are shown.
func shortName(kind plan.Kind, name string) string {
	if kind == plan.KindCredential && len(name) > shownHash {
		return name[:shownHash]
	}
	return name
}

func shortReference(kind plan.Kind, name string) string {
	return reference(kind, shortName(kind, name))
}

// endWithNewline makes text end in exactly one line end: etcdctl adds one and a
// shell takes it away.
func endWithNewline(text []byte) string {
	return strings.TrimRight(string(text), "\n") + "\n"
}
