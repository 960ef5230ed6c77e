package envoy

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/plan"
)

const (
	typeJSON    = "application/json"
	typeProblem = "application/problem+json"
)

// contentType is the type of the body that the app's refusals have.
func (a *answer) contentType(accept string) string {
	switch a.app.Refusal.Body {
	case plan.BodyFull:
		if wantsProblem(accept) {
			return typeProblem
		}
	case plan.BodyTemplate:
		if t := a.app.Refusal.ContentType; t != "" && clean(t) {
			return t
		}
	case plan.BodyShort, plan.BodyEnvelope, plan.BodyOpenAI:
	}
	return typeJSON
}

// body appends the body of a refusal. It is written without reflection, since it
// is written under attack.
func (a *answer) body(b []byte) []byte {
	switch a.app.Refusal.Body {
	case plan.BodyShort:
		return append(a.short(append(b, '{')), '}')
	case plan.BodyEnvelope:
		return append(a.envelope(append(b, '{')), '}')
	case plan.BodyOpenAI:
		return a.openAI(b)
	case plan.BodyTemplate:
		return a.template(b, a.app.Refusal.Template)
	case plan.BodyFull:
	}
	return a.full(b)
}

// short appends the members that documents 000 and 001 fix.
func (a *answer) short(b []byte) []byte {
	b = memberText(b, "error", a.d.Outcome.Word())
	if a.retry > 0 {
		b = memberInt(b, "retry_after", a.retry)
	}
	return b
}

// envelope appends the members of the envelope form (C46).
func (a *answer) envelope(b []byte) []byte {
	b = append(member(b, "success"), "false"...)
	b = memberText(b, "code", a.code())
	a.scratch = a.brief(a.scratch[:0])
	b = memberText(b, "message", text(a.scratch))
	return a.details(b)
}

// full appends one object for the readers of all documents and of RFC 9457.
func (a *answer) full(b []byte) []byte {
	b = append(b, '{')
	status := a.statuses().http
	kind, title := problem(a.d.Outcome)
	if a.d.Outcome == authz.NoApp {
		title = http.StatusText(int(status)) //nolint:gosec // three digits
	}
	if a.byRLS && status != http.StatusTooManyRequests {
		status, kind, title = http.StatusTooManyRequests, "about:blank", "Too Many Requests"
	}
	b = memberText(b, "type", kind)
	b = memberText(b, "title", title)
	b = memberInt(b, "status", int64(status)) //nolint:gosec // three digits
	a.scratch = a.sentence(a.scratch[:0])
	b = memberText(b, "detail", text(a.scratch))
	b = append(member(b, "instance"), `"urn:mete:decision:`...)
	b = append(a.d.ID.Append(b), '"')
	if len(a.refused) > 0 {
		b = a.violated(b)
	}
	b = a.short(b)
	b = a.envelope(b)
	if len(a.refused) > 0 {
		b = a.limits(b)
	}
	return append(b, '}')
}

func problem(o authz.Outcome) (kind, title string) {
	const registry = "https://iana.org/assignments/http-problem-types#"
	switch o {
	case authz.RateLimited, authz.QuotaExceeded, authz.RequestTooLarge:
		return registry + "quota-exceeded", "Request cannot be satisfied as assigned quota has been exceeded"
	case authz.Unavailable:
		return registry + "temporary-reduced-capacity", "Request cannot be satisfied due to temporary server capacity constraints"
	case authz.Unauthenticated:
		return "about:blank", "Unauthorized"
	case authz.HeadersTooLarge:
		return "about:blank", "Request Header Fields Too Large"
	case authz.TenantUnknown, authz.Undecided, authz.NoApp, authz.NotReady,
		authz.Allowed, authz.Exempt, authz.Grace, authz.CountedOver, authz.UnavailableAllowed:
	}
	return "about:blank", "Forbidden"
}

// code is the outcome in capitals.
func (a *answer) code() string {
	switch a.d.Outcome {
	case authz.RateLimited:
		return "RATE_LIMITED"
	case authz.QuotaExceeded:
		return "QUOTA_EXCEEDED"
	case authz.RequestTooLarge:
		return "REQUEST_TOO_LARGE"
	case authz.Unauthenticated:
		return "UNAUTHENTICATED"
	case authz.TenantUnknown:
		return "TENANT_UNKNOWN"
	case authz.Unavailable:
		return "QUOTA_UNAVAILABLE"
	case authz.HeadersTooLarge:
		return "HEADERS_TOO_LARGE"
	case authz.NoApp:
		return "APP_UNKNOWN"
	case authz.Undecided, authz.NotReady,
		authz.Allowed, authz.Exempt, authz.Grace, authz.CountedOver, authz.UnavailableAllowed:
	}
	return "REFUSED"
}

// violated appends the names of all limits that refused, each once.
func (a *answer) violated(b []byte) []byte {
	b = append(member(b, "violated-policies"), '[')
	for k, i := range a.refused {
		name, again := a.d.Limits[i].Limit.Name, false
		for _, j := range a.refused[:k] {
			again = again || a.d.Limits[j].Limit.Name == name
		}
		if again {
			continue
		}
		if k > 0 {
			b = append(b, ',')
		}
		b = jsonText(b, name)
	}
	return append(b, ']')
}

// details appends what the envelope form tells of the limit that refused (C46).
func (a *answer) details(b []byte) []byte {
	l := a.worst()
	if l == nil {
		return b
	}
	b = append(member(b, "details"), '{')
	if l.Limit.Kind == plan.Rate {
		b = memberText(b, "limitName", l.Limit.Name)
	} else {
		b = memberText(b, "quotaType", l.Limit.Name)
	}
	b = figures(b, l, false)
	if a.d.UpgradeURL != "" {
		b = memberText(b, "upgradeUrl", a.d.UpgradeURL)
	}
	if l.Limit.Kind != plan.Rate && !hidden(l) {
		b = append(member(b, "quota"), '{')
		b = memberText(b, "type", l.Limit.Name)
		b = append(figures(b, l, true), '}')
	}
	return append(b, '}')
}

func figures(b []byte, l *authz.LimitState, remaining bool) []byte {
	if !hidden(l) {
		b = memberInt(b, "limit", l.Limit.Amount)
		if l.Limit.Kind != plan.Rate {
			b = memberInt(b, "used", used(l))
		}
		if remaining {
			b = memberInt(b, "remaining", max(l.Left, 0))
		}
	}
	if !l.ResetsAt.IsZero() {
		b = append(member(b, "resetAt"), '"')
		b = append(instant(b, l.ResetsAt), '"')
	}
	return b
}

// limits appends each limit that refused, the one with the longest wait first.
func (a *answer) limits(b []byte) []byte {
	b = append(member(b, "limits"), '[')
	for k, i := range a.refused {
		if k > 0 {
			b = append(b, ',')
		}
		b = append(a.limit(append(b, '{'), &a.d.Limits[i]), '}')
	}
	return append(b, ']')
}

func (a *answer) limit(b []byte, l *authz.LimitState) []byte {
	b = memberText(b, "name", l.Limit.Name)
	b = memberText(b, "kind", kindName(l.Limit.Kind))
	b = memberText(b, "unit", l.Limit.Unit)
	b = memberText(b, "scope", l.Tenant)
	if !hidden(l) {
		b = memberInt(b, "limit", l.Limit.Amount)
		if l.Limit.Kind != plan.Rate { // used and reserved add up
			reserved := min(l.Reserved, max(0, used(l))) // more than is used, once a quota was cleared
			b = memberInt(b, "used", used(l)-reserved)
			b = memberInt(b, "reserved", reserved)
		}
		b = memberInt(b, "remaining", max(l.Left, 0))
	}
	b = memberInt(b, "asked", l.Asked)
	switch {
	case !l.ResetsAt.IsZero():
		b = memberInt(b, "resets_at_ms", wholeMilli(l.ResetsAt).UnixMilli())
	case l.Reset >= 0 && l.Limit.Kind == plan.Rate:
		b = memberInt(b, "resets_at_ms", wholeMilli(a.now.Add(l.Reset)).UnixMilli())
	}
	return b
}

func kindName(k plan.LimitKind) string {
	switch k {
	case plan.Rate:
		return "rate"
	case plan.Quota:
		return "quota"
	case plan.Allocation:
		return "allocation"
	}
	return "limit"
}

// template appends t with its placeholders filled in, as insides of JSON strings.
// An unknown placeholder stays as it is written.
func (a *answer) template(b []byte, t string) []byte {
	for {
		before, rest, found := strings.Cut(t, "${")
		b = append(b, valid(before)...)
		if !found {
			return b
		}
		name, after, closed := strings.Cut(rest, "}")
		if !closed {
			return append(append(b, "${"...), valid(rest)...)
		}
		var known bool
		if a.scratch2, known = a.placeholder(a.scratch2[:0], name); known {
			b = jsonEscaped(b, text(a.scratch2), true)
			t = after
			continue
		}
		b = append(b, "${"...)
		t = rest
	}
}

func (a *answer) placeholder(b []byte, name string) (value []byte, known bool) {
	switch name {
	case "error":
		return append(b, a.d.Outcome.Word()...), true
	case "code":
		return append(b, a.code()...), true
	case "message":
		return a.brief(b), true
	case "decision":
		return a.d.ID.Append(b), true
	case "upgrade_url":
		return append(b, a.d.UpgradeURL...), true
	case "retry_after":
		if a.retry > 0 {
			b = strconv.AppendInt(b, a.retry, 10)
		}
		return b, true
	case "limit", "node", "amount", "used", "remaining", "resets_at":
		if l := a.worst(); l != nil {
			return ofLimit(b, name, l), true
		}
		return b, true
	}
	return b, false
}

// ofLimit appends one fact about the limit that refused, or nothing.
func ofLimit(b []byte, name string, l *authz.LimitState) []byte {
	switch name {
	case "limit":
		return append(b, l.Limit.Name...)
	case "node":
		return append(b, l.Tenant...)
	case "resets_at":
		if !l.ResetsAt.IsZero() {
			return instant(b, l.ResetsAt)
		}
		return b
	}
	if hidden(l) {
		return b
	}
	switch name {
	case "amount":
		return strconv.AppendInt(b, l.Limit.Amount, 10)
	case "used":
		return strconv.AppendInt(b, used(l), 10)
	case "remaining":
		return strconv.AppendInt(b, max(l.Left, 0), 10)
	}
	return b
}
