package plan

import (
	"errors"
	"regexp"
	"regexp/syntax"
	"time"
)

// DomainSettings are what mete can do for a rate limit domain and envoyproxy/ratelimit
// cannot. They are written under "mete" in one document of the domain.
type DomainSettings struct {
	// TimeZone is where the calendar of hours and longer units is read; UTC unless
	// written.
	TimeZone *time.Location
	// Replicas tells what limits a second and a minute mean on several replicas; never
	// SpreadUnset.
	Replicas Spread
	// OnUnavailable decides for hours and longer units while etcd is away; never
	// ChoiceUnset. Deny answers with an error, so that Envoy's failure mode decides.
	OnUnavailable Choice
	// Overrides: limits that Envoy sends along hold in place of the written ones (S31).
	// False ignores them.
	Overrides bool
	// Refunds: negative hits give units back. False ignores them.
	Refunds bool
	// ChargeRefused: what is refused is counted all the same, as envoyproxy/ratelimit
	// does, and on every descriptor of the request.
	ChargeRefused bool
	// ShadowMode: nothing of the domain is refused (P2).
	ShadowMode bool
	Headers    Headers
	Refusal    Refusal
}

// DefaultDomainSettings returns what holds for a domain that says nothing. It makes the
// files of envoyproxy/ratelimit mean what they mean there, but that refused requests are
// not counted.
func DefaultDomainSettings() DomainSettings {
	return DomainSettings{
		TimeZone: time.UTC, Replicas: Full, OnUnavailable: Allow, Overrides: true, Refunds: true,
		Headers: Headers{RateLimitName: "ratelimit", PolicyName: "ratelimit-policy", XEnvoyRateLimited: true},
		Refusal: Refusal{ContentType: "application/json"},
	}
}

func (o *object) domainSettings() *DomainSettings {
	s := DefaultDomainSettings()
	if n := o.field("time_zone"); n != nil {
		s.TimeZone = o.zone(n, o.at("time_zone"))
	}
	s.Replicas = o.spread("replicas", Full)
	s.OnUnavailable = o.choice("on_unavailable", Allow)
	s.Overrides = choose(o, "overrides", true, option[bool]{"allow", true}, option[bool]{"ignore", false})
	s.Refunds = choose(o, "refunds", true, option[bool]{"allow", true}, option[bool]{"ignore", false})
	s.ChargeRefused = choose(o, "refused_hits", false, option[bool]{"free", false}, option[bool]{"charged", true})
	s.ShadowMode = o.bool("shadow_mode", false)
	if n := o.field("headers"); n != nil {
		o.object(n, o.at("headers")).headers(&s.Headers)
	}
	if n := o.field("refusal"); n != nil {
		o.object(n, o.at("refusal")).refusal(&s.Refusal)
	}
	o.done()
	return &s
}

// longestRegex is how many bytes a regular expression may have.
const longestRegex = 1000

// regex reads the regular expression of a rule. value is what is written in its place,
// or nil.
func (o *object) regex(rule *DescriptorRule, value *node) {
	n := o.optional("regex")
	if n == nil {
		return
	}
	rule.Regex = o.word(n, "regex") // names the rule in what is said of it
	compiled, err := wholeRegex(rule.Regex)
	switch s := rule.Regex; {
	case s == "":
	case value != nil:
		o.fail(n, o.at("regex"), "beside value; a rule matches in one way, keep one")
	case len(s) > longestRegex:
		o.fail(n, o.at("regex"), "has more than %d bytes; write a shorter one", longestRegex)
	case err != nil:
		o.fail(n, o.at("regex"), "%q is no regular expression of RE2: %s; write one such as /v[0-9]+/.*", short(s), regexFault(err))
	default:
		rule.regex = compiled
	}
}

// wholeRegex compiles a regular expression to match nothing but a whole text. It must
// be one by itself: of "a)|(b" alternatives would match a part, and "\Q" has no end.
func wholeRegex(s string) (*regexp.Regexp, error) {
	tree, err := syntax.Parse(s, syntax.Perl)
	if err != nil {
		return nil, err
	}
	return regexp.Compile(`\A(?:` + tree.String() + `)\z`)
}

// regexFault says what is wrong with a regular expression, without the expression.
func regexFault(err error) string {
	if e, ok := errors.AsType[*syntax.Error](err); ok {
		return string(e.Code)
	}
	return err.Error()
}
