package envoy

import (
	"math"
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
//     the limit that refused, or else of the one nearest to its end.
//
// Without any of it there is no metadata.
func (c *limitCall) describe(b []byte, now time.Time, refusal *authz.Decision, s *Server) []byte {
	before := len(b)
	b, m := open(b, metadataOfLimit)
	if refusal == nil {
		b = c.reserved(b, now, s)
	}
	if c.described() {
		b = c.rulesMetadata(b, now, s)
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

// described tells whether a rule that matched has metadata.
func (c *limitCall) described() bool {
	for i := range c.count.Items {
		if m := c.count.Items[i].Match; m != nil && m.Rule.Metadata != nil {
			return true
		}
	}
	return false
}

func (c *limitCall) rulesMetadata(b []byte, now time.Time, s *Server) []byte {
	b = metaText(b, "domain", c.count.Domain.Name)
	b, f := openField(b, "descriptors")
	b, list := open(b, 6)
	for i := range c.count.Items {
		if m := c.count.Items[i].Match; m != nil && m.Rule.Metadata != nil {
			var item int
			b, item = open(b, 1)
			b = shut(putValue(b, m.Rule.Metadata), item)
		}
	}
	b = shutField(shut(b, list), f)
	c.prepareTold(now, s)
	if l := c.tightest(); l != nil {
		b = metaText(b, "limit", l.Limit.Name)
		b, f = openField(b, "remaining")
		b = shutField(putValue(b, float64(max(l.Left, 0))), f)
	}
	return b
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
