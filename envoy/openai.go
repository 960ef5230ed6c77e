package envoy

import (
	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/plan"
)

// openAI appends a body whose error is an object, as the SDKs of OpenAI and of servers
// that speak its protocol read it: they show the message, and tell by type and code what
// can be tried again. The decision is beside it, where they do not look.
func (a *answer) openAI(b []byte) []byte {
	kind, code := a.openAIKind()
	b = append(member(append(b, '{'), "error"), '{')
	a.scratch = a.sentence(a.scratch[:0])
	b = memberText(b, "message", text(a.scratch))
	b = memberText(b, "type", kind)
	b = append(member(b, "param"), "null"...)
	b = append(memberText(b, "code", code), '}')
	b = append(member(b, "instance"), `"urn:mete:decision:`...)
	return append(a.d.ID.Append(b), '"', '}')
}

// openAIKind returns the words of OpenAI for why a request is refused.
func (a *answer) openAIKind() (kind, code string) {
	switch a.d.Outcome {
	case authz.RateLimited:
		unit := plan.DefaultUnit
		if l := a.worst(); l != nil {
			unit = l.Limit.Unit
		}
		return unit, "rate_limit_exceeded" // requests or tokens
	case authz.QuotaExceeded:
		return "insufficient_quota", "insufficient_quota"
	case authz.RequestTooLarge:
		return "invalid_request_error", "request_too_large"
	case authz.Unauthenticated:
		return "invalid_request_error", "invalid_api_key"
	case authz.Unavailable:
		return "server_error", "quota_unavailable"
	case authz.TenantUnknown, authz.HeadersTooLarge, authz.NoApp, authz.Undecided, authz.NotReady,
		authz.Allowed, authz.Exempt, authz.Grace, authz.CountedOver, authz.UnavailableAllowed:
	}
	return "invalid_request_error", a.d.Outcome.Word()
}
