package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/store"
)

// An importPlan is what an import does to the store.
type importPlan struct {
	*batch

	steps   []step   // in the order of their names
	gone    []stored // to be deleted
	notes   []string // once the steps are known
	several int      // files that hold several documents

	transactions int   // that were made
	revision     int64 // of the last of them
}

// decode reads the documents of the files and checks them as far as that goes without
// a store.
func (im *importer) decode(r *importReader) *importPlan {
	p := &importPlan{batch: &batch{files: map[*plan.Document]string{}, texts: map[string][]byte{}}}
	of := map[*plan.Document]*importFile{}
	for i := range r.files {
		f := &r.files[i]
		docs, problems := plan.Decode(f.name, f.text)
		p.problems = append(p.problems, strangers(problems)...)
		limits := 0
		for _, doc := range docs {
			if doc.Kind != plan.KindRateLimits {
				p.problems = append(p.problems, doc.Problem("kind", "a "+string(doc.Kind)+" is none of envoyproxy/ratelimit's files; write it with metectl apply, and leave it out here"))
				continue
			}
			limits++
			p.files[doc], of[doc] = f.name, f
			p.docs = append(p.docs, doc)
		}
		if limits > 1 {
			p.several++
		}
	}
	if im.merge {
		_, problems := plan.MergeRateLimits(p.rateLimits())
		p.problems = append(p.problems, problems...)
	} else {
		p.problems = append(p.problems, plan.RepeatedDomains(p.rateLimits())...)
	}
	if !p.refused() {
		im.name(p, of)
	}
	return p
}

// strangers says of documents that are none of descriptors just that. What a document
// of mete lacks would help nobody.
func strangers(problems []plan.Problem) []plan.Problem {
	var kept []plan.Problem
	var told []string
	for _, p := range problems {
		id := p.File + "#" + strconv.Itoa(p.Index)
		switch {
		case slices.Contains(told, id):
			continue
		case p.Kind != plan.KindRateLimits && slices.Contains([]string{"apiVersion", "kind", "metadata", "spec"}, p.Path):
			told = append(told, id)
			kept = slices.DeleteFunc(kept, func(k plan.Problem) bool { return k.File == p.File && k.Index == p.Index })
			p.Path, p.Message = "", "has no domain and no descriptors, so it is none of envoyproxy/ratelimit's files; leave it out here"
		}
		kept = append(kept, p)
	}
	return kept
}

// name gives the documents their names and the line that tells where they are from. A
// name depends on nothing but the file and --merge-domains, so that a file that comes,
// goes or changes moves no other document.
func (im *importer) name(p *importPlan, of map[*plan.Document]*importFile) {
	first := map[string]string{}
	for _, doc := range p.docs {
		f := of[doc]
		if im.merge {
			doc.Name += "/" + f.key
		}
		if where, twice := first[doc.Name]; im.merge && twice {
			p.problems = append(p.problems, doc.Problem("domain", fmt.Sprintf(
				"would be %s, as that in %s; a file has one document of a domain, and files a name of their own", reference(doc.Kind, doc.Name), where)))
		}
		first[doc.Name] = f.name
		doc.Text = append([]byte(origin{f.rel, im.source}.line()), doc.Text...)
		if n := len(doc.Text); n > plan.MaxRateLimits {
			p.problems = append(p.problems, doc.Problem("domain", fmt.Sprintf(
				"has %d bytes with the line that tells where it is from, more than %d; split it into several files", n, plan.MaxRateLimits)))
		}
	}
	slices.SortStableFunc(p.docs, func(a, b *plan.Document) int { return strings.Compare(a.Name, b.Name) })
}

// An origin is where an imported document is from. It is the first line of what is
// stored, so that an import knows what earlier ones have written.
type origin struct{ file, source string }

const originStart = "# Imported by metectl from "

func (o origin) line() string {
	return fmt.Sprintf("%s%q, source %q; change it there, as the next import overwrites it.\n", originStart, o.file, o.source)
}

// originOf returns where a stored document is from; false if no import wrote it.
func originOf(text []byte) (o origin, imported bool) {
	line, _, _ := strings.Cut(string(text[:min(len(text), 4096)]), "\n")
	rest, ok := strings.CutPrefix(line, originStart)
	if !ok {
		return origin{}, false
	}
	quoted, err := strconv.QuotedPrefix(rest)
	if err != nil {
		return origin{}, false
	}
	rest, ok = strings.CutPrefix(rest[len(quoted):], ", source ")
	source, err := strconv.QuotedPrefix(rest)
	if err != nil || !ok {
		return origin{}, false
	}
	o.file, _ = strconv.Unquote(quoted)
	o.source, _ = strconv.Unquote(source)
	return o, true
}

// compare finds out what the store lacks of p and what it has too much, and checks what
// is to be written against all that is there. It prints what is wrong.
func (im *importer) compare(ctx context.Context, client *clientv3.Client, p *importPlan) error {
	all, err := listStored(ctx, client, plan.KindRateLimits)
	if err != nil {
		return err
	}
	there := make(map[string]stored, len(all))
	for _, s := range all {
		there[s.name] = s
	}
	if err := im.steps(p, there); err != nil {
		return err
	}
	im.findGone(p, all)
	if p.changes() == 0 {
		return im.refuse(p.batch)
	}
	catalog, err := limitsCatalog(ctx, client, all)
	if err != nil {
		return err
	}
	for _, s := range p.gone {
		catalog.Delete(s.kind, s.name, s.revision)
	}
	for _, s := range p.steps {
		catalog.Put(s.doc, s.stored.revision)
	}
	for _, doc := range p.docs {
		p.problems = append(p.problems, catalog.Check(doc)...)
	}
	return im.refuse(p.batch)
}

// limitsCatalog is loadCatalog of nothing but descriptors, which depend on nothing
// else: a million tenants are not read for them.
func limitsCatalog(ctx context.Context, client *clientv3.Client, all []stored) (*plan.Catalog, error) {
	catalog := plan.NewCatalog()
	for _, s := range all {
		if s.doc != nil {
			catalog.Put(s.doc, s.revision)
			continue
		}
		r, err := client.Get(ctx, store.EffectiveKey(s.kind, s.name)) // the last valid version is in force
		if err != nil {
			return nil, err
		}
		var record struct {
			Document string `json:"document"`
		}
		if len(r.Kvs) == 0 || json.Unmarshal(r.Kvs[0].Value, &record) != nil {
			continue
		}
		if doc, _ := plan.DecodeOne(s.kind, s.name, store.DocumentKey(s.kind, s.name), []byte(record.Document)); doc != nil {
			catalog.Put(doc, s.revision)
		}
	}
	return catalog, nil
}

// steps compares each document with the stored one. What an import of another source
// has written is not taken over: the two would undo each other's work for ever.
func (im *importer) steps(p *importPlan, there map[string]stored) error {
	for _, doc := range p.docs {
		old := there[doc.Name]
		ref := reference(doc.Kind, doc.Name)
		if o, imported := originOf(old.text); imported && o.source != im.source {
			return &failure{
				code: exitConflict, what: "nothing was written", why: fmt.Sprintf("%s was imported from %q of source %q", ref, o.file, o.source),
				next: fmt.Sprintf("import it with --source %s, or delete it there first", o.source),
			}
		}
		if old.doc != nil && old.doc.RateLimits.Domain != doc.RateLimits.Domain {
			return &failure{
				code: exitConflict, what: "nothing was written", why: fmt.Sprintf("%s holds descriptors of domain %s", ref, old.doc.RateLimits.Domain),
				next: "write those under another name first",
			}
		}
		s := step{doc: doc, stored: old, verb: verb(doc, old)}
		p.steps = append(p.steps, s)
		if s.changes() && old.doc != nil && old.doc.RateLimits.Settings != nil && doc.RateLimits.Settings == nil {
			p.notes = append(p.notes, fmt.Sprintf("%s had settings under mete, which %s lacks, so they go; write them into the file, or import a file of them with --merge-domains and another --source",
				ref, p.files[doc]))
		}
	}
	return nil
}

// findGone finds the documents of earlier imports that the files have no more: of the
// domains that they have always, of others if --prune is given. What people have
// written themselves is never among them.
func (im *importer) findGone(p *importPlan, all []stored) {
	domains, names := map[string]bool{}, map[string]bool{}
	for _, doc := range p.docs {
		domains[doc.RateLimits.Domain], names[doc.Name] = true, true
	}
	var left, strange []string
	for _, s := range all {
		o, imported := originOf(s.text)
		mine := imported && o.source == im.source
		switch {
		case names[s.name]:
		case mine && (im.prune || domains[s.domain()]):
			p.gone = append(p.gone, s)
		case mine:
			left = append(left, s.name)
		case im.prune && !domains[s.domain()]:
			strange = append(strange, s.name)
		}
	}
	if len(left) > 0 {
		p.notes = append(p.notes, fmt.Sprintf("%s of an earlier import, not in these files, %s in force: %s; --prune deletes %s",
			plural(len(left), "document"), either(len(left), "stays", "stay"), some(left), either(len(left), "it", "them")))
	}
	if len(strange) > 0 {
		p.notes = append(p.notes, fmt.Sprintf("%s that no import of source %s has written %s: %s; metectl delete ratelimits NAME deletes one",
			plural(len(strange), "document"), im.source, either(len(strange), "stays", "stay"), some(strange)))
	}
}

// domain returns the domain of a document of descriptors; "" if it cannot be read.
func (s stored) domain() string {
	if s.doc == nil {
		return ""
	}
	return s.doc.RateLimits.Domain
}
