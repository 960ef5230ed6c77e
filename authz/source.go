package authz

import (
	"strings"
	"unsafe"

	"github.com/meteproject/mete/plan"
)

// jwtNamespace is where Envoy's jwt_authn filter leaves verified claims.
const jwtNamespace = "envoy.filters.http.jwt_authn"

// jwtPayload is the payload_in_metadata name that claims are looked for under; a
// claim is also found at the top of the namespace.
const jwtPayload = "payload"

// Found tells what there is where a value is looked for.
type Found int

// What there may be. Nothing is the zero value.
const (
	Nothing Found = iota
	// Null: it says that there is none, as null does, which identity providers write for
	// a user without an organisation.
	Null
	// Other is anything that is not a value: a list, a map, a number that is not whole or too
	// large to be told from its neighbours, several lines of a header.
	Other
	Value
)

// fault tells why what was found for a source makes no caller.
func (f Found) fault(s *plan.Source) string {
	switch {
	case f == Null:
		return "the " + what(s) + " says that there is none, and a request header must not say otherwise"
	case s.Kind == plan.SourceAPIKey:
		return "the " + what(s) + " comes in several lines"
	case s.Kind == plan.SourceRequestHeader:
		return "the " + what(s) + " holds no name, or several"
	}
	return "the " + what(s) + " is not a name"
}

// firstOf returns the index of the first of sources that decides, with what req has for
// it; -1 if none does. Null decides only before a request header, which anybody can send;
// before other sources it is as if nothing were there. So is what is empty (case C028).
func firstOf(sources []plan.Source, req *Request) (i int, value string, found Found) {
	null := -1
	for i := range sources {
		s := &sources[i]
		if null >= 0 && s.Kind == plan.SourceRequestHeader {
			return null, "", Null
		}
		value, found := lookup(s, req)
		if found == Value && value == "" {
			found = Nothing
			if s.Kind == plan.SourceJWTClaim || s.Kind == plan.SourceMetadata {
				found = Null
			}
		}
		switch {
		case found == Null && null < 0:
			null = i
		case found == Value, found == Other:
			return i, value, found
		}
	}
	return -1, "", Nothing
}

// lookup returns what req has for a source.
func lookup(s *plan.Source, req *Request) (string, Found) {
	switch s.Kind {
	case plan.SourceAPIKey:
		return apiKey(s.Name, req)
	case plan.SourceRequestHeader:
		return req.identity(s.Name)
	case plan.SourceJWTClaim:
		return claim(req, s)
	case plan.SourceMetadata:
		return req.find(s.Name, s.Path)
	case plan.SourcePeerSPIFFE:
		if req.Peer == "" || !matchPeer(s, req.Peer) {
			return "", Nothing
		}
		return req.Peer, Value
	case plan.SourceContextExtension:
		return ifThere(req.Extension(s.Name))
	case plan.SourceClientAddress:
		name := s.Address.Append(req.address[:0], req.Address)
		return unsafe.String(unsafe.SliceData(name), len(name)), Value
	case plan.SourceNone, plan.SourceResponseHeader, plan.SourceResponseTrailer, plan.SourceReport:
	}
	return "", Nothing
}

func ifThere(value string, there bool) (string, Found) {
	if !there {
		return "", Nothing
	}
	return value, Value
}

func matchPeer(s *plan.Source, peer string) bool {
	if s.Peer.HasGroups() {
		var groups plan.Groups
		return s.Peer.Match(peer, &groups)
	}
	return plan.MatchPattern(s.Name, peer)
}

// shaped returns the name that a source's value makes. It may point into req, until the
// next tenant is looked for.
func shaped(s *plan.Source, req *Request, value string) string {
	if s.As.IsZero() && s.Kind != plan.SourceClientAddress {
		return value
	}
	name := appendShaped(req.name[:0], s, value)
	return unsafe.String(unsafe.SliceData(name), len(name))
}

func appendShaped(dst []byte, s *plan.Source, value string) []byte {
	if s.As.IsZero() {
		return append(dst, value...)
	}
	var groups plan.Groups
	if s.Peer.HasGroups() {
		s.Peer.Match(value, &groups)
	}
	return s.As.Append(dst, value, &groups)
}

// apiKey returns the key in a header; in Authorization, the Bearer token (RFC
// 6750). Another scheme there is no API key.
func apiKey(header string, req *Request) (string, Found) {
	value, found := req.identity(header)
	if found != Value || header != "authorization" {
		return value, found
	}
	const scheme = "bearer "
	if len(value) < len(scheme) || !strings.EqualFold(value[:len(scheme)], scheme) {
		return "", Nothing
	}
	return strings.TrimSpace(value[len(scheme):]), Value
}

// claim returns a verified claim: from the payload, or from the top of the
// namespace for filters that put single claims there. Of a name with dots, such as
// https://example.com/org, it is first the claim that is called so, then what the dots
// lead to.
func claim(req *Request, s *plan.Source) (string, Found) {
	if len(s.Path) > 1 {
		req.claim[1] = s.Name
		if value, found := payload(req, req.claim[1:2]); found != Nothing {
			return value, found
		}
	}
	return payload(req, s.Path)
}

// payload returns what the payload has at path, or else the namespace.
func payload(req *Request, path []string) (string, Found) {
	under := append(append(req.claim[:0], jwtPayload), path...)
	if value, found := req.find(jwtNamespace, under); found != Nothing {
		return value, found
	}
	return req.find(jwtNamespace, path)
}

// hasClaim reports whether there is a verified claim, be it a list or a map, such as the
// "act" of RFC 8693.
func hasClaim(req *Request, path []string) bool {
	_, found := payload(req, path)
	return found == Other || found == Value
}

// what names what a source looks for, and where.
func what(s *plan.Source) string {
	switch s.Kind {
	case plan.SourceAPIKey:
		return "API key in " + s.Name
	case plan.SourceRequestHeader:
		return "header " + s.Name
	case plan.SourceJWTClaim:
		return "claim " + s.Name + " in the metadata of " + jwtNamespace
	case plan.SourceMetadata:
		return "value " + strings.Join(s.Path, ".") + " in the metadata of " + s.Name
	case plan.SourcePeerSPIFFE:
		return "client certificate of " + s.Name
	case plan.SourceContextExtension:
		return "context extension " + s.Name
	case plan.SourceClientAddress:
		return "client address"
	case plan.SourceNone, plan.SourceResponseHeader, plan.SourceResponseTrailer, plan.SourceReport:
	}
	return "value"
}

// lookedFor tells what a request without an identity has none of, and of which filters
// Envoy has sent nothing at all.
func lookedFor(sources []plan.Source, req *Request) string {
	var b strings.Builder
	b.WriteString("the request carries no identity")
	for i := range sources {
		s := &sources[i]
		sep := ", no "
		if i == 0 {
			sep = ": no "
		}
		b.WriteString(sep)
		b.WriteString(what(s))
		if namespace := namespaceOf(s); namespace != "" {
			if _, found := req.find(namespace, nil); found == Nothing {
				b.WriteString(", of which Envoy has sent nothing")
			}
		}
	}
	return b.String()
}

// namespaceOf returns the metadata namespace that a source looks into; "": none.
func namespaceOf(s *plan.Source) string {
	switch s.Kind { //nolint:exhaustive // all others look elsewhere
	case plan.SourceJWTClaim:
		return jwtNamespace
	case plan.SourceMetadata:
		return s.Name
	}
	return ""
}
