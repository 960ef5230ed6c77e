package envoy

import (
	"encoding/base64"
	"strconv"
	"time"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/plan"
)

// The RateLimit fields follow draft-ietf-httpapi-ratelimit-headers-11. Clients
// ignore a malformed field altogether, so there is this one serialiser.

// advertised appends the headers that tell how much is left.
func (a *answer) advertised(b []byte, to headerList, refusal bool) []byte {
	h := &a.app.Headers
	if len(a.visible) > 0 && a.wanted(h.RateLimit, refusal) {
		b, o := openHeader(b, to, or(h.PolicyName, "ratelimit-policy"))
		b = shutHeader(a.policies(b), o)
		b, o = openHeader(b, to, or(h.RateLimitName, "ratelimit"))
		b = shutHeader(a.states(b), o)
		return a.older(b, to)
	}
	return a.older(b, to)
}

func or(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}

func (a *answer) wanted(when plan.Advertise, refusal bool) bool {
	switch when {
	case plan.Always:
		return true
	case plan.Near:
		return refusal || a.near()
	case plan.OnDenial:
		return refusal
	case plan.Never:
	}
	return false
}

// near reports whether some limit has less than a fifth left.
func (a *answer) near() bool {
	for _, i := range a.visible {
		if l := &a.d.Limits[i]; l.Left < (l.Limit.Amount+4)/5 {
			return true
		}
	}
	return false
}

// shown reports whether limit i is in the fields. Of several nodes' limits of one
// name the partition key tells which is which; without a secret to make keys
// with, only the one nearest to its end is shown.
func (a *answer) shown(i int) bool {
	l := &a.d.Limits[i]
	if !shownAlone(l) {
		return false
	}
	if a.pk != nil {
		return true
	}
	for j := range a.d.Limits {
		other := &a.d.Limits[j]
		if j == i || !shownAlone(other) || other.Limit.Name != l.Limit.Name {
			continue
		}
		if nearer(other, l) || !nearer(l, other) && j < i {
			return false
		}
	}
	return true
}

func shownAlone(l *authz.LimitState) bool {
	return l.Limit.Advertise && !l.Limit.Unlimited && !hidden(l) && l.Limit.Name != ""
}

// plain reports whether a name fits into a string of a structured field, and the field
// into a header beside others.
func plain(name string) bool {
	if len(name) > mostDescription {
		return false
	}
	for i := range len(name) {
		if name[i] < 0x20 || name[i] > 0x7e {
			return false
		}
	}
	return name != ""
}

// partitioned reports whether another node's limit of the same name is shown too.
func (a *answer) partitioned(i int) bool {
	if a.pk == nil {
		return false
	}
	for _, j := range a.visible {
		if j != i && a.d.Limits[j].Limit.Name == a.d.Limits[i].Limit.Name {
			return true
		}
	}
	return false
}

func (a *answer) policies(b []byte) []byte {
	first := true
	for _, i := range a.visible {
		l := &a.d.Limits[i]
		b = item(b, &first, l)
		b = param(b, ";q=", l.Limit.Amount)
		b = a.unit(b, l.Limit.Unit)
		if l.Limit.Kind != plan.Allocation && l.Window > 0 {
			b = param(b, ";w=", seconds(l.Window))
		}
		b = a.partition(b, i)
	}
	return b
}

func (a *answer) states(b []byte) []byte {
	first := true
	for _, i := range a.visible {
		l := &a.d.Limits[i]
		b = item(b, &first, l)
		b = param(b, ";r=", l.Left)
		if l.Limit.Kind != plan.Allocation && l.Reset >= 0 {
			b = param(b, ";t=", seconds(l.Reset))
		}
		if l.Left <= 0 && l.GraceLeft > 0 {
			b = param(b, ";mete-grace=", l.GraceLeft)
		}
		b = a.partition(b, i)
	}
	return b
}

func item(b []byte, first *bool, l *authz.LimitState) []byte {
	if !*first {
		b = append(b, ", "...)
	}
	*first = false
	return quotedName(b, l.Limit.Name)
}

// quotedName appends the name of a limit as a string of a structured field. Bytes that
// such a string cannot hold are written %XX, and what is too long is cut: the limit that
// refuses must be in the fields of its refusal.
func quotedName(b []byte, name string) []byte {
	if plain(name) {
		return quoted(b, name)
	}
	const hex = "0123456789ABCDEF"
	b = append(b, '"')
	for i, from := 0, len(b); i < len(name) && len(b)-from < mostDescription; i++ {
		switch c := name[i]; {
		case c < 0x20 || c > 0x7e:
			b = append(b, '%', hex[c>>4], hex[c&15])
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}

// param appends a whole number in the bounds of RFC 9651, and never below 0.
func param(b []byte, name string, n int64) []byte {
	return strconv.AppendInt(append(b, name...), min(max(n, 0), plan.MaxAmount), 10)
}

func quoted(b []byte, s string) []byte {
	b = append(b, '"')
	for i := range len(s) {
		if s[i] == '"' || s[i] == '\\' {
			b = append(b, '\\')
		}
		b = append(b, s[i])
	}
	return append(b, '"')
}

// unit appends the unit unless it is requests, which the draft takes for granted.
func (a *answer) unit(b []byte, unit string) []byte {
	for i := range a.app.Units {
		if u := &a.app.Units[i]; u.Name == unit && u.Registered != "" {
			unit = u.Registered
		}
	}
	if unit == "" || unit == plan.DefaultUnit || !plain(unit) {
		return b
	}
	return quoted(append(b, ";qu="...), unit)
}

func (a *answer) partition(b []byte, i int) []byte {
	if !a.partitioned(i) {
		return b
	}
	scope := a.d.Limits[i].Tenant
	if a.scopes != nil {
		scope = a.scopes[i]
	}
	key := a.pk(scope)
	b = base64.StdEncoding.AppendEncode(append(b, ";pk=:"...), key[:])
	return append(b, ':')
}

// nearer reports whether l is nearer to its end than m.
func nearer(l, m *authz.LimitState) bool {
	if l.Refused != m.Refused {
		return l.Refused
	}
	return share(l) < share(m)
}

func share(l *authz.LimitState) float64 {
	if l.Limit.Amount <= 0 {
		return 0
	}
	return float64(l.Left) / float64(l.Limit.Amount)
}

// nearest is the limit nearest to its end, or the one that refused with the
// longest wait; nil if there is none to show.
func (a *answer) nearest(quotas bool) *authz.LimitState {
	var best *authz.LimitState
	for _, i := range a.refused {
		if l := &a.d.Limits[i]; shownAlone(l) && (!quotas || l.Limit.Kind == plan.Quota) {
			return l
		}
	}
	for i := range a.d.Limits {
		l := &a.d.Limits[i]
		if !shownAlone(l) || quotas && l.Limit.Kind != plan.Quota {
			continue
		}
		if best == nil || nearer(l, best) {
			best = l
		}
	}
	return best
}

// older appends the X- headers, which tell of one limit only.
func (a *answer) older(b []byte, to headerList) []byte {
	if form := a.app.Headers.XRateLimit; form != plan.XOff {
		if l := a.nearest(false); l != nil {
			b = putInt(b, to, "x-ratelimit-limit", l.Limit.Amount)
			b = putInt(b, to, "x-ratelimit-remaining", max(l.Left, 0))
			if l.Reset >= 0 {
				b = putInt(b, to, "x-ratelimit-reset", a.xReset(form, l.Reset))
			}
		}
	}
	if !a.app.Headers.XQuota {
		return b
	}
	if l := a.nearest(true); l != nil {
		b = putInt(b, to, "x-quota-limit", l.Limit.Amount)
		b = putInt(b, to, "x-quota-used", l.Used)
		b = putInt(b, to, "x-quota-remaining", max(l.Left, 0))
		if !l.ResetsAt.IsZero() {
			b, o := openHeader(b, to, "x-quota-reset")
			return shutHeader(instant(b, l.ResetsAt), o)
		}
	}
	return b
}

func (a *answer) xReset(form plan.ResetForm, reset time.Duration) int64 {
	if form == plan.XDelta {
		return seconds(reset)
	}
	at := a.now.Add(reset)
	if at.Nanosecond() > 0 {
		return at.Unix() + 1
	}
	return at.Unix()
}

// wholeMilli rounds up: a reset is never shown before it happens.
func wholeMilli(t time.Time) time.Time {
	if r := t.Truncate(time.Millisecond); r.Before(t) {
		return r.Add(time.Millisecond)
	}
	return t
}

// instant appends t as RFC 3339 in UTC with milliseconds.
func instant(b []byte, t time.Time) []byte {
	return wholeMilli(t).UTC().AppendFormat(b, "2006-01-02T15:04:05.000Z")
}
