package envoy

import (
	"math"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/meteproject/mete/authz"
)

// metadataOfLimit is RateLimitResponse.dynamic_metadata.
const metadataOfLimit = 6

// describe appends the dynamic metadata, of what has any (P15):
//
//   - of an admission by the app, the fields of its first decision, with a reservation of
//     what all were charged. A refusal has none: it would come back with the end of the
//     refused request;
//   - where rules of the domain that matched have metadata: "domain"; "descriptors", a
//     list of that metadata in the order of the descriptors; "limit" and "remaining" of
//     the limit that refused, or else of the one nearest to its end;
//   - where rules that matched are in quota mode (P5): "domain", "limit" and "remaining";
//     "quotaModeEnabled", and "quotaModeViolations", the indices of the descriptors of the
//     request whose quota mode limits have no room, as envoyproxy/ratelimit names them.
//
// Without any of it there is no metadata.
func (c *limitCall) describe(b []byte, now time.Time, refusal *authz.Decision, s *Server) []byte {
	before := len(b)
	b, m := open(b, metadataOfLimit)
	if refusal == nil {
		b = c.reserved(b, now, s)
	}
	if metadata, quotas := c.described(); metadata || quotas {
		b = c.rulesMetadata(b, now, s, metadata, quotas)
	}
	if len(b) == m {
		return b[:before]
	}
	return shut(b, m)
}

func (c *limitCall) reserved(b []byte, now time.Time, s *Server) []byte {
	for k := range c.decs {
		if c.decs[k].App != nil {
			c.prepare(now, &c.decs[k], s.pk)
			return c.decided(b, s.decider, c.decs[k+1:])
		}
	}
	return b
}

// described reports whether a rule that matched has metadata, and whether one is in quota
// mode.
func (c *limitCall) described() (metadata, quotas bool) {
	for i := range c.count.Items {
		if m := c.count.Items[i].Match; m != nil {
			metadata, quotas = metadata || m.Rule.Metadata != nil, quotas || m.Rule.QuotaMode
		}
	}
	return metadata, quotas
}

func (c *limitCall) rulesMetadata(b []byte, now time.Time, s *Server, metadata, quotas bool) []byte {
	b = metaText(b, "domain", c.count.Domain.Name)
	if metadata {
		b = c.listed(b, "descriptors", func(_ int, it *authz.Counted) any {
			if it.Match.Rule.Metadata == nil {
				return nil
			}
			return it.Match.Rule.Metadata
		})
	}
	if quotas {
		var f fieldMark
		b, f = openField(b, "quotaModeEnabled")
		b = shutField(putValue(b, true), f)
		b = c.listed(b, "quotaModeViolations", func(i int, it *authz.Counted) any {
			if it.Match.Rule.QuotaMode && it.Full {
				return float64(c.indexOf(i))
			}
			return nil
		})
	}
	c.prepareTold(now, s)
	if l := c.tightest(); l != nil {
		b = metaText(b, "limit", l.Limit.Name)
		var f fieldMark
		b, f = openField(b, "remaining")
		b = shutField(putValue(b, float64(max(l.Left, 0))), f)
	}
	return b
}

// listed appends a list of what each descriptor that a rule matched says, but for nil.
// Nothing is appended where that is empty.
func (c *limitCall) listed(b []byte, name string, says func(i int, it *authz.Counted) any) []byte {
	before := len(b)
	b, f := openField(b, name)
	b, list := open(b, 6)
	found := false
	for i := range c.count.Items {
		it := &c.count.Items[i]
		if it.Match == nil {
			continue
		}
		if v := says(i, it); v != nil {
			var item int
			b, item = open(b, 1)
			b = shut(putValue(b, v), item)
			found = true
		}
	}
	if !found {
		return b[:before]
	}
	return shutField(shut(b, list), f)
}

// A fieldMark is a field of a Struct whose value is being appended.
type fieldMark struct{ field, value int }

func openField(b []byte, key string) ([]byte, fieldMark) {
	var f fieldMark
	b, f.field = open(b, 1)
	b = putText(b, 1, key)
	b, f.value = open(b, 2)
	return b, f
}

func shutField(b []byte, f fieldMark) []byte { return shut(shut(b, f.value), f.field) }

// putValue appends the fields of a google.protobuf.Value.
func putValue(b []byte, v any) []byte {
	var m int
	switch v := v.(type) {
	case bool:
		return putNumber(b, 4, uint64(btoi(v))) //nolint:gosec // 0 or 1
	case float64:
		return protowire.AppendFixed64(protowire.AppendTag(b, 2, protowire.Fixed64Type), math.Float64bits(v))
	case string:
		return putText(b, 3, valid(v))
	case []any:
		b, m = open(b, 6)
		for _, one := range v {
			var item int
			b, item = open(b, 1)
			b = shut(putValue(b, one), item)
		}
		return shut(b, m)
	case map[string]any:
		b, m = open(b, 5)
		for key, one := range v {
			var f fieldMark
			b, f = openField(b, valid(key))
			b = shutField(putValue(b, one), f)
		}
		return shut(b, m)
	}
	return putNumber(b, 1, 0) // null
}

// indexOf returns the index in the request of the descriptor that was counted as the k-th.
func (c *limitCall) indexOf(k int) int {
	return slices.IndexFunc(c.items, func(d descriptor) bool { return d.to == toRules && d.at == k })
}
