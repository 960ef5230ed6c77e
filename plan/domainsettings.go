package plan

import (
	"errors"
	"fmt"
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

const (
	// longestRegex is how many bytes a regular expression may have.
	longestRegex = 1000
	// largestRegex is how many steps it may have once counted repetitions are written out, as
	// x{1000} is a thousand. Each byte of a value may cost a nanosecond or ten for each of them.
	largestRegex = 2000
	// largestRegexes is how many steps all of a document may have. Each takes some 50 bytes.
	largestRegexes = 1_000_000
)

// regex reads the regular expression of a rule. value is what is written in its place,
// or nil.
func (o *object) regex(rule *DescriptorRule, value *node) {
	n := o.optional("regex")
	if n == nil {
		return
	}
	rule.Regex = o.word(n, "regex") // names the rule in what is said of it
	switch s := rule.Regex; {
	case s == "":
		return
	case value != nil:
		o.fail(n, o.at("regex"), "beside value; a rule matches in one way, keep one")
		return
	case len(s) > longestRegex:
		o.fail(n, o.at("regex"), "has more than %d bytes; write a shorter one", longestRegex)
		return
	}
	tree, err := syntax.Parse(rule.Regex, syntax.Perl)
	if err == nil {
		if fault := o.tooLarge(tree); fault != "" {
			o.fail(n, o.at("regex"), "%s", fault)
			return
		}
		rule.regex, err = wholeRegex(tree)
	}
	if err != nil {
		o.fail(n, o.at("regex"), "%q is not a regular expression of RE2: %s; write one such as /v[0-9]+/.*", short(rule.Regex), regexFault(err))
	}
}

// wholeRegex compiles a regular expression to match nothing but a whole text. It was
// parsed by itself: of "a)|(b" alternatives would match a part, and "\Q" has no end.
func wholeRegex(tree *syntax.Regexp) (*regexp.Regexp, error) {
	return regexp.Compile(`\A(?:` + tree.String() + `)\z`)
}

// tooLarge says what to do about a regular expression that is too large, alone or with
// those before it in the document; "": nothing. Such a one is not compiled.
func (r *reader) tooLarge(tree *syntax.Regexp) string {
	size := regexSize(tree)
	if size > largestRegex {
		return fmt.Sprintf("has %d steps with its repetitions written out, and may have %d; write a simpler one, with smaller numbers in {} or with * or +", size, largestRegex)
	}
	if r.regexes+size > largestRegexes {
		return fmt.Sprintf("is too much with those before it: all of a document may have %d steps with their repetitions written out; divide the document", largestRegexes)
	}
	r.regexes += size
	return ""
}

// regexSize returns about how many steps a regular expression is compiled to.
func regexSize(tree *syntax.Regexp) int {
	size := 0
	for _, sub := range tree.Sub {
		size += regexSize(sub)
	}
	switch tree.Op { //nolint:exhaustive // all others are one step
	case syntax.OpLiteral:
		return len(tree.Rune)
	case syntax.OpConcat:
		return size
	case syntax.OpAlternate:
		return size + len(tree.Sub)
	case syntax.OpRepeat:
		if tree.Max < 0 { // the last one is a loop
			return size*tree.Min + size + 1
		}
		return size*tree.Min + (size+1)*(tree.Max-tree.Min)
	}
	return size + 1
}

// regexFault says what is wrong with a regular expression, without the expression.
func regexFault(err error) string {
	if e, ok := errors.AsType[*syntax.Error](err); ok {
		return string(e.Code)
	}
	return err.Error()
}
