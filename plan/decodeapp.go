package plan

import (
	"slices"
	"strings"
	"time"
)

func (o *object) app() *App {
	a := &App{Headers: Headers{RateLimitName: "ratelimit", PolicyName: "ratelimit-policy", XEnvoyRateLimited: true}}
	if n := o.require("time_zone", "UTC or a name such as Europe/Berlin"); n != nil {
		a.TimeZone = o.zone(n, o.at("time_zone"))
	}
	if n := o.field("envoy"); n != nil {
		o.object(n, o.at("envoy")).envoy(a)
	}
	if n := o.field("units"); n != nil {
		a.Units = o.units(n, o.at("units"))
	}
	if n := o.require("identity", "{tenant: [...]}, how callers are told apart"); n != nil {
		a.Identity = o.object(n, o.at("identity")).identity(a.Units)
	}
	a.Count = DefaultCount()
	if n := o.field("count"); n != nil {
		a.Count = o.object(n, o.at("count")).count()
	}
	if n := o.field("attribution"); n != nil {
		f := o.object(n, o.at("attribution"))
		f.require("request_header", "a header such as x-pipeline-id")
		a.Attribution = f.headerIn("request_header", "")
		f.done()
	}
	if n := o.field("paths"); n != nil {
		a.Paths = o.object(n, o.at("paths")).paths()
	}
	a.Defaults = Defaults{OnUnavailable: Allow, Replicas: Full}
	if n := o.field("defaults"); n != nil {
		d := o.object(n, o.at("defaults"))
		a.Defaults = Defaults{
			Plan:          d.name("plan"),
			OnUnavailable: d.choice("on_unavailable", Allow),
			Replicas:      d.spread("replicas", Full),
		}
		d.done()
	}
	if n := o.field("headers"); n != nil {
		o.object(n, o.at("headers")).headers(&a.Headers)
	}
	a.Refusal.ContentType = "application/json"
	if n := o.field("refusal"); n != nil {
		o.object(n, o.at("refusal")).refusal(&a.Refusal)
	}
	return a
}

func (o *object) choice(name string, otherwise Choice) Choice {
	return choose(o, name, otherwise, option[Choice]{"allow", Allow}, option[Choice]{"deny", Deny})
}

func (o *object) spread(name string, otherwise Spread) Spread {
	return choose(o, name, otherwise, option[Spread]{"full", Full}, option[Spread]{"split", Split})
}

func (o *object) envoy(a *App) {
	a.Domain = o.text("domain")
	if n := o.field("hosts"); n != nil {
		one := o.host(&a.Hosts)
		o.elements(n, o.at("hosts"), func(item *node, path string) {
			if item.kind == stringNode && item.text == AllOtherHosts && !slices.Contains(a.Hosts, AllOtherHosts) {
				a.Hosts = append(a.Hosts, AllOtherHosts)
				return
			}
			one(item, path)
		})
	}
	o.done()
}

// host returns what reads one element of a list of hosts, into all.
func (r *reader) host(all *[]string) func(item *node, path string) {
	return func(item *node, path string) {
		s, ok := r.text(item, path)
		lower := strings.ToLower(s)
		switch {
		case !ok:
		case !isHost(s):
			r.fail(item, path, "%q is not a host; write one such as api.example.com or *.example.com, without a port", short(s))
		case slices.Contains(*all, lower):
			r.fail(item, path, "%q is listed twice; keep one", s)
		default:
			*all = append(*all, lower)
		}
	}
}

func isHost(s string) bool {
	s = strings.TrimPrefix(s, "*.")
	if s == "" || len(s) > 253 {
		return false
	}
	for label := range strings.SplitSeq(strings.ToLower(s), ".") {
		if label == "" || len(label) > 63 || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return false
		}
	}
	return true
}

func (o *object) units(n *node, path string) []Unit {
	var units []Unit
	o.entries(n, path, func(key, value *node, path string) {
		u := Unit{Name: key.text}
		if !o.checkName(key, path, key.text) {
			return
		}
		if key.text == DefaultUnit {
			o.fail(key, path, "every app counts requests; name another unit")
			return
		}
		f := o.object(value, path)
		u.Title = f.text("title")
		u.Registered = choose(f, "registered", "",
			option[string]{"requests", "requests"},
			option[string]{"content-bytes", "content-bytes"},
			option[string]{"concurrent-requests", "concurrent-requests"})
		f.done()
		units = append(units, u)
	})
	return units
}

// identity reads how callers of an app with these units are told apart.
func (o *object) identity(units []Unit) Identity {
	id := Identity{}
	if n := o.require("tenant", "a list of sources, such as [{request_header: x-tenant}]"); n != nil {
		id.Tenant = o.sources(n, o.at("tenant"))
		if n.kind == listNode && len(n.items) == 0 {
			o.fail(n, o.at("tenant"), "is empty; list at least one source")
		}
	}
	if n := o.field("principal"); n != nil {
		id.Principal = o.sources(n, o.at("principal"))
	}
	id.WithoutTenant = o.choice("without_tenant", Deny)
	if n := o.field("signed_headers"); n != nil {
		id.SignedHeaders = o.signedHeaders(n, o.at("signed_headers"))
	}
	if n := o.field("classes"); n != nil {
		id.Classes = o.classes(n, o.at("classes"), id.SignedHeaders, units)
	}
	for _, h := range id.SignedHeaders {
		if !slices.ContainsFunc(id.Classes, func(c Class) bool { return c.SignedHeader == h.Name }) {
			o.warn(o.field("signed_headers"), o.at("signed_headers"), "no class asks for %s, so it changes nothing; write one with when: {signed_header: %s}", h.Name, h.Name)
		}
	}
	o.done()
	return id
}

func (o *object) sources(n *node, path string) []Source {
	var all []Source
	o.elements(n, path, func(item *node, path string) {
		f := o.object(item, path)
		late := "is known after the response alone, too late to tell who calls; use a source of the request"
		f.foreign = map[string]string{"response_header": late, "response_trailer": late, "report": late}
		before := len(f.problems)
		s, written := f.source()
		if as := f.field("as"); as != nil && written == 1 && len(f.problems) == before {
			f.shaped(&s, as)
		} else if s.Peer.HasGroups() && len(f.problems) == before {
			o.fail(item, path, "has groups and no as; write how they make a name, such as as: \"org:{%s}\"", s.Peer.names[0])
		}
		switch {
		case len(f.problems) > before:
		case written == 0 && !slices.ContainsFunc(f.n.keys, func(k *node) bool { return k.text != "as" }):
			o.fail(item, path, "names no source; write one such as {request_header: x-tenant}")
		case written > 1:
			o.fail(item, path, "names %d sources; write each as an element of its own, in the order to try them", written)
		case written == 1:
			all = append(all, s)
		}
		f.done()
	})
	return all
}

// shaped reads the field as of a source.
func (o *object) shaped(s *Source, as *node) {
	switch s.Kind { //nolint:exhaustive // all others have a value of their own
	case SourceAPIKey:
		o.fail(as, o.at("as"), "has no use, since the tenant of an API key is in its Credential; leave it out")
	case SourceClientAddress:
		o.fail(as, o.at("as"), "has no use, since addresses are ip:ADDRESS; leave it out")
	default:
		s.As = o.shape(as, o.at("as"), s.Peer.names)
	}
}

// source reads the one field of a source and tells how many were written.
func (o *object) source() (Source, int) {
	var s Source
	written := 0
	if n := o.field("client_address"); n != nil {
		written++
		s = Source{Kind: SourceClientAddress, Address: o.object(n, o.at("client_address")).clientAddress()}
	}
	for _, form := range []option[SourceKind]{
		{"api_key", SourceAPIKey},
		{"request_header", SourceRequestHeader},
		{"jwt_claim", SourceJWTClaim},
		{"metadata", SourceMetadata},
		{"peer_spiffe_id", SourcePeerSPIFFE},
		{"context_extension", SourceContextExtension},
	} {
		n := o.field(form.word)
		if n == nil {
			continue
		}
		written++
		text, ok := o.reader.text(n, o.at(form.word))
		if !ok {
			continue
		}
		s = Source{Kind: form.is, Name: text}
		switch form.is {
		case SourceAPIKey, SourceRequestHeader:
			s.Name, _ = o.header(n, o.at(form.word), text)
		case SourceJWTClaim:
			s.Path = o.claim(n, o.at(form.word), text)
		case SourceMetadata:
			s.Name, s.Path = o.inMetadata(n, o.at(form.word), text)
		case SourcePeerSPIFFE, SourceContextExtension, SourceNone, SourceResponseHeader, SourceResponseTrailer, SourceReport, SourceClientAddress:
			if text == "" {
				o.fail(n, o.at(form.word), "is empty; write what to look for")
			}
			if form.is == SourcePeerSPIFFE && strings.ContainsAny(text, "{}") {
				s.Peer = o.peerPattern(n, o.at(form.word), text)
			}
		}
	}
	return s, written
}

// inMetadata splits "namespace:path.to.value".
func (r *reader) inMetadata(n *node, path, text string) (namespace string, parts []string) {
	namespace, rest, _ := strings.Cut(text, ":")
	parts = strings.Split(rest, ".")
	if namespace == "" || slices.Contains(parts, "") {
		r.fail(n, path, "%q is not a place in metadata; write NAMESPACE:PATH, such as envoy.filters.http.jwt_authn:payload.org_id", short(text))
	}
	return namespace, parts
}

// claim splits the path of a claim at its dots.
func (o *object) claim(n *node, path, text string) []string {
	parts := strings.Split(text, ".")
	if slices.Contains(parts, "") {
		o.fail(n, path, "%q is not a claim; write its name, with dots between the levels, such as org_id or realm.id", short(text))
	}
	return parts
}

// headerIn reads a field that holds the name of a header.
func (o *object) headerIn(name, otherwise string) string {
	n := o.field(name)
	if n == nil {
		return otherwise
	}
	if text, ok := o.reader.text(n, o.at(name)); ok {
		if s, ok := o.header(n, o.at(name), text); ok {
			return s
		}
	}
	return otherwise
}

// header reads the name of a header, in lower case.
func (r *reader) header(n *node, path, text string) (string, bool) {
	const token = "abcdefghijklmnopqrstuvwxyz0123456789-_.!#$%&'*+^`|~"
	s := strings.ToLower(text)
	if s == "" || len(s) > 100 || strings.Trim(s, token) != "" {
		r.fail(n, path, "%q is not a header; write its name, such as x-api-key", short(text))
		return "", false
	}
	return s, true
}

func (o *object) headers(h *Headers) {
	h.RateLimit = choose(o, "ratelimit", Always,
		option[Advertise]{"always", Always}, option[Advertise]{"near", Near},
		option[Advertise]{"denied", OnDenial}, option[Advertise]{"never", Never})
	h.XRateLimit = choose(o, "x_ratelimit", XOff,
		option[ResetForm]{"off", XOff}, option[ResetForm]{"epoch", XEpoch}, option[ResetForm]{"delta", XDelta})
	h.XQuota = o.bool("x_quota", false)
	if n := o.field("partition_key"); n != nil {
		if pick(o.reader, n, o.at("partition_key"), false, option[bool]{"off", false}, option[bool]{"tenant-hash", true}) {
			o.unsupported(n, o.at("partition_key"), partitionKey)
		}
	}
	// More than a minute of jitter is no jitter: the caller is kept out.
	h.RetryJitter = o.duration("retry_jitter", 0, 0, time.Minute)
	if n := o.field("retry_after"); n != nil {
		r := o.object(n, o.at("retry_after"))
		if r.require("most", "the most that Retry-After says, such as 1h") != nil {
			h.RetryMost = r.duration("most", 0, time.Second, 366*24*time.Hour)
		}
		r.done()
	}
	h.XEnvoyRateLimited = o.bool("x_envoy_ratelimited", true)
	h.RateLimitName = o.headerName("ratelimit_name", h.RateLimitName)
	h.PolicyName = o.headerName("policy_name", h.PolicyName)
	if h.RateLimitName == h.PolicyName {
		o.fail(o.n, o.at("policy_name"), "is the name of the other field too; choose two names")
	}
	o.done()
}

// headerName reads the name of a field that we send.
func (o *object) headerName(name, otherwise string) string {
	n := o.field(name)
	if n == nil {
		return otherwise
	}
	s := o.headerIn(name, otherwise)
	// Fields that mean something else to Envoy or to the caller.
	switch s {
	case "connection", "content-length", "content-type", "date", "host", "keep-alive", "retry-after", "server",
		"set-cookie", "te", "trailer", "transfer-encoding", "upgrade", "www-authenticate", "x-envoy-ratelimited",
		"x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset",
		"x-quota-limit", "x-quota-used", "x-quota-remaining", "x-quota-reset", "x-quota-decision":
		o.fail(n, o.at(name), "%q has a meaning of its own; choose another name", s)
		return otherwise
	}
	return s
}

func (o *object) refusal(f *Refusal) {
	f.Body = choose(o, "body", BodyFull,
		option[BodyForm]{"full", BodyFull}, option[BodyForm]{"short", BodyShort},
		option[BodyForm]{"envelope", BodyEnvelope}, option[BodyForm]{"openai", BodyOpenAI}, option[BodyForm]{"template", BodyTemplate})
	template, contentType := o.field("template"), o.field("content_type")
	if f.Body != BodyTemplate {
		for _, n := range []*node{template, contentType} {
			if n != nil {
				o.fail(n, o.path, "template and content_type belong to body: template; write that or leave them out")
			}
		}
		o.done()
		return
	}
	if template == nil {
		o.fail(o.n, o.at("template"), "is missing; write the body, or another word for body")
	} else if s, ok := o.paragraph(template, o.at("template")); ok {
		f.Template = s
		o.placeholders(template, o.at("template"), s)
	}
	if contentType != nil {
		s, ok := o.reader.text(contentType, o.at("content_type"))
		kind, _, slash := strings.Cut(s, "/")
		if ok && (kind == "" || !slash || strings.ContainsFunc(s, func(c rune) bool { return c > '~' })) {
			o.fail(contentType, o.at("content_type"), "%q is not a media type; write one such as text/plain", short(s))
		} else if ok {
			f.ContentType = s
		}
	}
	o.done()
}

func (o *object) placeholders(n *node, path, s string) {
	words := []string{
		"error", "code", "message", "limit", "node", "amount", "used", "remaining",
		"resets_at", "retry_after", "decision", "upgrade_url",
	}
	for {
		_, rest, found := strings.Cut(s, "${")
		if !found {
			return
		}
		word, after, closed := strings.Cut(rest, "}")
		switch {
		case !closed:
			o.fail(n, path, "${ is not closed; write ${%s}", words[0])
			return
		case !slices.Contains(words, word):
			o.fail(n, path, "${%s} is unknown; use %s", short(word), listed(words, "or"))
		}
		s = after
	}
}
