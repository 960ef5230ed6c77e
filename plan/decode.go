package plan

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// MaxDocument is how many bytes a document may have.
const MaxDocument = 256 << 10

// Decode reads the documents of a file, YAML or JSON, several of them divided by
// lines "---". It returns the documents that may be applied as far as they tell
// by themselves ([Catalog.Check] tells the rest), and everything that is wrong
// with any of them, in the order of the file. A document with a problem that is
// no mere warning is not returned, and spoils no other.
//
// A document of rate limit descriptors, which says no kind, is known by "domain" and
// "descriptors"; its name is its domain.
//
// file is only named in problems.
func Decode(file string, data []byte) (docs []*Document, problems []Problem) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	index := 0
	for _, c := range split(data) {
		if !c.bare && isBlank(c.text) && len(c.text) < len(data) {
			continue // comments before the first marker
		}
		r := &reader{file: file, index: index, lines: c.lines}
		index++
		doc := r.chunk(c)
		for i := range r.problems {
			r.problems[i].Kind, r.problems[i].Name = r.kind, r.name
		}
		sortProblems(r.problems)
		problems = append(problems, r.problems...)
		if doc != nil && !Refused(r.problems) {
			doc.file, doc.root, doc.lines = file, r.root, r.lines
			docs = append(docs, doc)
		}
	}
	return docs, problems
}

// DecodeOne reads the document that is stored under kind and name. Anything but
// this one document is a problem.
func DecodeOne(kind Kind, name, file string, data []byte) (*Document, []Problem) {
	docs, problems := Decode(file, data)
	wrong := func(index, line, col int, format string, args ...any) (*Document, []Problem) {
		return nil, append(problems, Problem{
			File: file, Line: line, Col: col, Index: index, Kind: kind, Name: name, Message: fmt.Sprintf(format, args...),
		})
	}
	if len(problems) > 0 && problems[len(problems)-1].Index > 0 || len(docs) > 1 {
		return wrong(1, secondDocument(data), 1, "holds several documents; write one to each key")
	}
	if Refused(problems) || len(docs) == 0 {
		return nil, problems
	}
	if d := docs[0]; kind == KindRateLimits && d.Kind == kind && d.RateLimits.under(name) {
		d.Name = name // nobody else knows d yet
	} else if d.Kind != kind || d.Name != name {
		path := "metadata.name"
		switch {
		case d.Kind == KindRateLimits:
			path = "domain"
		case d.Kind != kind:
			path = "kind"
		}
		at, _ := d.place(path)
		return wrong(0, at.line, at.col, "holds %s %s under the key of %s %s; write it to its own key", d.Kind, d.Name, kind, name)
	}
	return docs[0], problems
}

// secondDocument returns the line of the marker before the second document.
func secondDocument(data []byte) int {
	chunks := split(data)
	if first := chunks[0]; !first.bare && isBlank(first.text) {
		chunks = chunks[1:] // comments before the first marker
	}
	if len(chunks) < 2 {
		return 0
	}
	return chunks[1].lines + 1
}

// isBlank reports whether text holds nothing but space and comments.
func isBlank(text []byte) bool {
	for line := range bytes.Lines(text) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			return false
		}
	}
	return true
}

func (r *reader) chunk(c chunk) *Document {
	text := c.body()
	if len(text) < len(c.text) {
		r.lines++
	}
	start := pos{1, 1}
	switch {
	case len(text) > MaxRateLimits:
		most := MaxDocument
		if bytes.Contains(text, []byte("domain")) { // too long to be read, so this is a guess
			most = MaxRateLimits
		}
		r.tooLong(text, most)
		return nil
	case !utf8.Valid(text):
		r.add(start, "", "is no UTF-8; save it as UTF-8")
		return nil
	}
	n, errs := parse(text)
	family := n.family()
	if len(text) > MaxDocument && family != descriptorFile && (n != nil || len(errs) == 0) {
		r.tooLong(text, MaxDocument)
		return nil
	}
	for _, e := range errs {
		r.add(e.pos, "", e.message)
	}
	if n == nil {
		if len(errs) == 0 {
			r.add(start, "", "is empty; write a document, or delete the key to remove it")
		}
		return nil
	}
	r.root = n
	switch family {
	case descriptorFile:
		r.kind = KindRateLimits
		l := r.rateLimits(n)
		r.name = l.Domain
		return &Document{Kind: r.kind, Name: r.name, RateLimits: l, Text: bytes.Clone(text)}
	case envoyConfiguration:
		r.fail(n, "", "is a configuration of Envoy, which mete does not read; check it with envoy --mode validate")
		return nil
	case oneOfOurs:
	}
	doc := &Document{Text: bytes.Clone(text)}
	r.document(n, doc)
	return doc
}

func (r *reader) tooLong(text []byte, most int) {
	r.add(pos{1, 1}, "", fmt.Sprintf("has %d bytes, more than %d; split it into several documents", len(text), most))
}

func (r *reader) document(n *node, doc *Document) {
	o := r.object(n, "")
	if v := o.require("apiVersion", APIVersion); v != nil && (v.kind != stringNode || v.text != APIVersion) {
		r.fail(v, "apiVersion", "%s is unknown; write %s", v.shown(), APIVersion)
	}
	kindNode := o.require("kind", "App, Plan, Routes, Tenant, Credential or Webhook")
	if kindNode != nil {
		r.kind = r.readKind(kindNode)
		doc.Kind = r.kind
	}
	if m := o.require("metadata", "{name: ...}"); m != nil {
		r.metadata(m, doc)
	}
	spec := o.require("spec", "what the document says")
	if spec != nil {
		r.spec(spec, kindNode, doc)
	}
	o.done()
}

func kindWords() []string {
	return []string{string(KindApp), string(KindPlan), string(KindRoutes), string(KindTenant), string(KindCredential), string(KindWebhook)}
}

func (r *reader) readKind(n *node) Kind {
	if n.kind == stringNode && slices.Contains(kindWords(), n.text) {
		return Kind(n.text)
	}
	if n.kind == stringNode && n.text == string(KindRateLimits) {
		r.fail(n, "kind", "rate limits have a domain and descriptors, and say no kind; write those alone")
		return ""
	}
	if near := nearest(n.text, kindWords()); n.kind == stringNode && near != "" {
		r.fail(n, "kind", "%s is unknown; did you mean %s?", n.shown(), near)
		return ""
	}
	r.fail(n, "kind", "%s is unknown; use %s", n.shown(), listed(kindWords(), "or"))
	return ""
}

func (r *reader) metadata(n *node, doc *Document) {
	o := r.object(n, "metadata")
	if name := o.require("name", "the name of the document"); name != nil {
		if s, ok := r.documentName(name, "metadata.name"); ok {
			doc.Name, r.name = s, s
		}
	}
	if labels := o.field("labels"); labels != nil {
		doc.Labels = r.strings(labels, "metadata.labels", 63)
	}
	if notes := o.field("annotations"); notes != nil {
		doc.Annotations = r.strings(notes, "metadata.annotations", MaxDocument)
	}
	o.done()
}

func (r *reader) documentName(n *node, path string) (string, bool) {
	switch r.kind {
	case KindTenant:
		return r.tenant(n, path)
	case KindCredential:
		s := n.text // sixty-four digits without a letter are read as a number
		if n.kind != stringNode && n.kind != numberNode || len(s) != 64 || strings.Trim(s, "0123456789abcdef") != "" {
			r.fail(n, path, "%s is no SHA-256; write the 64 digits 0-9, a-f of the key's hash, never the key", hidden(n))
			return "", false
		}
		if n.kind == numberNode {
			return r.paragraph(n, path)
		}
		return s, true
	case KindApp, KindPlan, KindRoutes, KindWebhook, KindRateLimits:
		return r.readName(n, path)
	}
	return r.text(n, path) // the kind is unknown, and reported
}

// hidden shows n without what may be a secret: somebody may have written the key
// where its hash belongs.
func hidden(n *node) string {
	if n.kind == stringNode || n.kind == numberNode {
		return fmt.Sprintf("a text of %d characters", utf8.RuneCountInString(n.text))
	}
	return n.shown()
}

func (r *reader) strings(n *node, path string, longest int) map[string]string {
	all := make(map[string]string)
	r.entries(n, path, func(key, value *node, path string) {
		s, ok := r.paragraph(value, path)
		switch {
		case ok && utf8.RuneCountInString(s) > longest:
			r.fail(value, path, "has more than %d characters; write fewer", longest)
		case ok:
			all[key.text] = s
		}
	})
	return all
}

func (r *reader) spec(n, kind *node, doc *Document) {
	o := r.object(n, "spec")
	switch doc.Kind {
	case KindApp:
		doc.App = o.app()
		doc.App.Name = doc.Name
	case KindPlan:
		doc.Plan = o.plan()
		doc.Plan.Name = doc.Name
	case KindRoutes:
		doc.Routes = o.routes()
		doc.Routes.Name = doc.Name
	case KindTenant:
		doc.Tenant = o.tenant()
		doc.Tenant.Name = doc.Name
		if doc.Tenant.Parent != "" && doc.Tenant.Parent == doc.Name {
			r.fail(o.field("parent"), "spec.parent", "is the tenant itself; write another one or leave it out")
		}
	case KindCredential:
		doc.Credential = o.credential()
		_, _ = hex.Decode(doc.Credential.Hash[:], []byte(doc.Name))
	case KindWebhook:
		doc.Webhook = o.webhook()
		doc.Webhook.Name = doc.Name
		r.unsupported(kind, "kind", kindWebhook)
	case KindRateLimits: // it says no kind
	default:
		return // no kind, no fields to compare with
	}
	o.done()
}

// tenantIn reads a field that holds a tenant's name.
func (o *object) tenantIn(name string) string {
	n := o.field(name)
	if n == nil {
		return ""
	}
	s, _ := o.reader.tenant(n, o.at(name))
	return s
}

func (o *object) tenant() *Tenant {
	t := &Tenant{
		Parent: o.tenantIn("parent"),
		App:    o.name("app"),
		Plan:   o.name("plan"),
	}
	t.PoolRoot = choose(o, "pool", false, option[bool]{"own", false}, option[bool]{"root", true})
	if n := o.field("time_zone"); n != nil {
		t.TimeZone = o.zone(n, o.at("time_zone"))
	}
	if n := o.field("billing_anchor"); n != nil {
		day, _ := o.whole(n, o.at("billing_anchor"), 1, 31)
		t.BillingAnchor = int(day)
	}
	if n := o.field("limits"); n != nil {
		t.Limits = o.limits(n, o.at("limits"))
		for i := range t.Limits {
			if l := &t.Limits[i]; l.Kind == Quota && l.Reset.Kind == CalendarBilling && l.Reset.Anchor == 0 && t.BillingAnchor == 0 {
				o.fail(n, o.at("limits."+l.Name+".reset"), "has no day to start on; write anchor here or billing_anchor in the tenant")
			}
		}
	}
	if n := o.field("overrides"); n != nil {
		t.Overrides = o.overrides(n, o.at("overrides"), true)
	}
	if t.PoolRoot && t.Parent != "" && (t.Plan != "" || len(t.Limits) > 0 || len(t.Overrides) > 0) {
		o.fail(o.n, o.at("pool"), "root counts at the root alone, so plan, limits and overrides here would do nothing; leave them out or write pool: own")
	}
	if n := o.field("account"); n != nil {
		a := o.object(n, o.at("account"))
		t.Created = a.text("created")
		if n := a.field("created"); n != nil && t.Created != "" {
			a.date(n, a.at("created"), time.UTC)
		}
		t.Payment = choose(a, "payment", "", option[string]{"good", "good"}, option[string]{"late", "late"}, option[string]{"none", "none"})
		a.done()
	}
	return t
}

func (o *object) credential() *Credential {
	c := &Credential{}
	if n := o.require("tenant", "the tenant that the key belongs to"); n != nil {
		c.Tenant, _ = o.reader.tenant(n, o.at("tenant"))
	}
	c.Principal = o.text("principal")
	c.Class = o.name("class")
	c.Prefix = o.text("prefix")
	if n := o.field("prefix"); n != nil && len(c.Prefix) > 32 {
		o.fail(n, o.at("prefix"), "has more than 32 characters; write the first characters of the key alone, never the key")
	}
	c.Expires = o.instant("expires")
	c.Disabled = o.bool("disabled", false)
	return c
}

func (o *object) webhook() *Webhook {
	w := &Webhook{}
	if n := o.require("url", "https://..."); n != nil {
		w.URL = o.webAddress("url", "https")
	}
	w.Events = o.texts("events")
	if n := o.field("events"); n != nil && n.kind == listNode {
		for i, item := range n.items {
			if item.kind == stringNode && !isEvent(item.text) {
				o.fail(item, o.at("events["+strconv.Itoa(i)+"]"), "%q is not an event; write one such as quota.threshold_reached or quota.*", short(item.text))
			}
		}
	}
	if n := o.require("secret", "{file: ...} or {env: ...}"); n != nil {
		s := o.object(n, o.at("secret"))
		w.SecretFile, w.SecretEnv = s.text("file"), s.text("env")
		if (w.SecretFile == "") == (w.SecretEnv == "") {
			o.fail(n, o.at("secret"), "must name one of file and env; write {file: PATH}")
		}
		s.done()
	}
	w.Disabled = o.bool("disabled", false)
	return w
}

// isEvent reports whether s is words of a-z, 0-9 and _ with dots between, of which
// all but the first may hold "*".
func isEvent(s string) bool {
	for i, word := range strings.Split(s, ".") {
		allowed := "abcdefghijklmnopqrstuvwxyz0123456789_"
		if i > 0 {
			allowed += "*"
		}
		if word == "" || strings.Trim(word, allowed) != "" {
			return false
		}
	}
	return true
}
