package envoy

import (
	"strconv"
	"time"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/plan"
)

// sentence appends what a person should read about a refusal: which limit, whose,
// how much, until when. It says nothing of a caller who is not verified.
func (a *answer) sentence(b []byte) []byte {
	l := a.worst()
	switch a.d.Outcome {
	case authz.Unauthenticated:
		return a.nobody(b)
	case authz.Unavailable:
		return a.unavailable(b, l)
	case authz.RequestTooLarge:
		if l != nil {
			return tooLarge(b, l)
		}
		return append(b, "The request asks for more than a whole limit."...)
	case authz.RateLimited, authz.QuotaExceeded:
		if l != nil {
			return a.reached(b, l)
		}
		return append(b, "A limit is reached."...)
	case authz.HeadersTooLarge:
		return append(b, "The request has too many headers, or too large ones."...)
	case authz.NoApp:
		return append(b, "No API is known at this host."...)
	case authz.TenantUnknown, authz.Undecided, authz.NotReady,
		authz.Allowed, authz.Exempt, authz.Grace, authz.CountedOver, authz.UnavailableAllowed:
	}
	return append(b, "The caller may not use this API."...)
}

// nobody says what was looked for and where, and what was wrong with it. That is not secret:
// the values are, and none of them is said.
func (a *answer) nobody(b []byte) []byte {
	if a.d.Why == "" {
		return append(b, "The request carries no valid credential."...)
	}
	from := len(b)
	b = append(append(b, a.d.Why...), '.')
	if c := b[from]; 'a' <= c && c <= 'z' {
		b[from] = c - 'a' + 'A'
	}
	return b
}

func (a *answer) unavailable(b []byte, l *authz.LimitState) []byte {
	if l == nil {
		return append(b, "The quota cannot be checked at the moment."...)
	}
	b = whose(append(b, "The "...), l)
	return append(b, " cannot be checked at the moment."...)
}

func tooLarge(b []byte, l *authz.LimitState) []byte {
	if hidden(l) {
		return append(whose(append(b, "The request asks for more than the whole "...), l), '.')
	}
	b = thousands(append(b, "The request asks for "...), l.Asked)
	b = append(append(b, ' '), l.Limit.Unit...)
	b = whose(append(b, ", more than the whole "...), l)
	b = thousands(append(b, ": "...), most(l))
	return append(b, '.')
}

// most is the most that one request may ask for.
func most(l *authz.LimitState) int64 {
	if l.Limit.Kind == plan.Rate {
		return max(l.Limit.Burst, l.Limit.Amount)
	}
	return l.Limit.Amount
}

// whose appends «monthly quota of org:acme».
func whose(b []byte, l *authz.LimitState) []byte {
	b = append(b, l.Limit.Name...)
	switch l.Limit.Kind {
	case plan.Rate:
		b = append(b, " rate limit of "...)
	case plan.Quota:
		b = append(b, " quota of "...)
	case plan.Allocation:
		b = append(b, " allocation of "...)
	default:
		b = append(b, " limit of "...)
	}
	return append(b, l.Tenant...)
}

func (a *answer) reached(b []byte, l *authz.LimitState) []byte {
	b = whose(append(b, "The "...), l)
	switch {
	case hidden(l) && l.Limit.Kind == plan.Rate:
		b = append(b, " is reached."...)
	case hidden(l):
		b = append(b, " is used up."...)
	case l.Limit.Kind == plan.Rate:
		b = thousands(append(b, " is reached: "...), l.Limit.Amount)
		b = append(append(b, ' '), l.Limit.Unit...)
		b = append(span(append(b, " in "...), l.Window), '.')
	case l.Returns > 0:
		return a.reserved(b, l)
	case l.Left > 0:
		b = thousands(append(b, " has "...), l.Left)
		b = thousands(append(b, " of "...), l.Limit.Amount)
		b = append(append(b, ' '), l.Limit.Unit...)
		b = thousands(append(b, " left, and the request asks for "...), l.Asked)
		b = append(b, '.')
	default:
		b = thousands(append(b, " is used up: "...), used(l))
		b = thousands(append(b, " of "...), l.Limit.Amount)
		b = append(append(b, ' '), l.Limit.Unit...)
		b = append(b, '.')
	}
	return a.until(b, l)
}

// reserved says that a request waits only for what others, which run, have reserved.
func (a *answer) reserved(b []byte, l *authz.LimitState) []byte {
	b = thousands(append(b, " has "...), l.Left)
	b = thousands(append(b, " of "...), l.Limit.Amount)
	b = append(append(b, ' '), l.Limit.Unit...)
	b = thousands(append(b, " left while running requests have reserved "...), l.Reserved)
	b = thousands(append(b, ", and the request asks for "...), l.Asked)
	b = append(b, '.')
	return a.again(b)
}

// used is what is used of a limit that counts use.
func used(l *authz.LimitState) int64 {
	if l.Used == 0 && l.Limit.Kind != plan.Quota {
		return max(l.Limit.Amount-l.Left, 0)
	}
	return l.Used
}

// until appends when the limit has room again.
func (a *answer) until(b []byte, l *authz.LimitState) []byte {
	if l.Limit.Kind == plan.Quota && !l.ResetsAt.IsZero() {
		at := wholeSecond(l.ResetsAt).In(zone(l))
		b = at.AppendFormat(append(b, " It resets on "...), "2 January 2006 at 15:04")
		if at.Second() != 0 {
			b = at.AppendFormat(b, ":05")
		}
		b = append(append(b, " ("...), at.Location().String()...)
		return append(b, ")."...)
	}
	return a.again(b)
}

// again appends when to try again.
func (a *answer) again(b []byte) []byte {
	if a.retry > 0 {
		b = span(append(b, " Try again in "...), time.Duration(a.retry)*time.Second)
		return append(b, '.')
	}
	return b
}

func zone(l *authz.LimitState) *time.Location {
	if l.Limit.Zone == nil {
		return time.UTC
	}
	return l.Limit.Zone
}

// wholeSecond rounds up: a reset is never shown before it happens.
func wholeSecond(t time.Time) time.Time {
	if r := t.Truncate(time.Second); r.Before(t) {
		return r.Add(time.Second)
	}
	return t
}

// brief appends the one-line form that command line tools print (C49).
func (a *answer) brief(b []byte) []byte {
	l := a.worst()
	if l == nil || a.d.Outcome != authz.RateLimited && a.d.Outcome != authz.QuotaExceeded {
		return a.sentence(b)
	}
	b = append(b, l.Limit.Name...)
	if l.Limit.Kind == plan.Rate {
		b = append(b, " rate limit exceeded"...)
	} else {
		b = append(b, kindWords(l.Limit.Kind)...)
		b = append(b, " reached"...)
		if !hidden(l) {
			b = thousands(append(b, " ("...), used(l))
			b = thousands(append(b, '/'), l.Limit.Amount)
			b = append(b, ')')
		}
	}
	switch {
	case l.Limit.Kind == plan.Quota && !l.ResetsAt.IsZero() && l.Returns == 0:
		return wholeSecond(l.ResetsAt).In(zone(l)).AppendFormat(append(b, "; resets "...), time.DateOnly)
	case a.retry > 0:
		return append(strconv.AppendInt(append(b, "; retry in "...), a.retry, 10), 's')
	}
	return b
}

func kindWords(k plan.LimitKind) string {
	switch k {
	case plan.Quota:
		return " quota"
	case plan.Allocation:
		return " allocation"
	case plan.Rate:
		return " rate limit"
	}
	return " limit"
}

// thousands appends n with commas between groups of three digits.
func thousands(b []byte, n int64) []byte {
	var digits [20]byte
	d := strconv.AppendInt(digits[:0], n, 10)
	if n < 0 {
		b, d = append(b, '-'), d[1:]
	}
	for i, ch := range d {
		if i > 0 && (len(d)-i)%3 == 0 {
			b = append(b, ',')
		}
		b = append(b, ch)
	}
	return b
}

// span appends a length of time in the largest unit that needs no fraction.
func span(b []byte, d time.Duration) []byte {
	type unit struct {
		name string
		size time.Duration
	}
	for _, u := range [...]unit{
		{"day", 24 * time.Hour}, {"hour", time.Hour}, {"minute", time.Minute}, {"second", time.Second}, {"millisecond", time.Millisecond},
	} {
		if d < u.size || d%u.size != 0 {
			continue
		}
		b = append(append(thousands(b, int64(d/u.size)), ' '), u.name...)
		if d != u.size {
			b = append(b, 's')
		}
		return b
	}
	return append(b, d.String()...)
}
