package plan

import (
	"net/http"
	"slices"
	"strings"
)

// Count tells which requests cost once it is known how they ended. Those that do not
// give everything back. Decoding fills in the default, the preset "answered".
type Count struct {
	// Statuses are the HTTP statuses that cost, of responses that are not gRPC's:
	// 2xx, 3xx but 304, and 101 unless written.
	Statuses StatusSet
	// GRPCStatuses are the gRPC statuses that cost, a bit each: OK unless written.
	GRPCStatuses uint32
	// GRPCStatus is the place in Envoy's metadata of the gRPC status of answers that have
	// none in their trailers and headers, as those to gRPC-Web; nil: there is none.
	GRPCStatus *Source
	// Aborted says that a request which the caller left before a response began
	// costs if the upstream had seen it (A12). False unless written (A11).
	Aborted bool
	// Unfinished says that a response which began and broke off costs by its
	// status. True unless written; the preset "completed" has false (C15).
	Unfinished bool
	// Replays says that an answer which the upstream marks as a replay costs like
	// any other. False unless written (C16).
	Replays bool
	// ReplayHeader is the response header that marks a replay if its value is
	// "true", in lower case: "idempotency-replayed" unless written.
	ReplayHeader string
}

// A StatusSet is a set of HTTP statuses from 100 to 599.
type StatusSet [10]uint64

// Has reports whether status is in s.
func (s *StatusSet) Has(status int) bool {
	return status >= 100 && status <= 599 && s[status>>6]&(1<<(status&63)) != 0
}

// Add puts status, from 100 to 599, into s.
func (s *StatusSet) Add(status int) { s[status>>6] |= 1 << (status & 63) }

// HasGRPC reports whether a gRPC status costs.
func (c *Count) HasGRPC(status int) bool {
	return status >= 0 && status < 32 && c.GRPCStatuses&(1<<status) != 0
}

// DefaultCount returns what costs in an App that does not say it: the preset
// "answered". 4xx and 5xx are free, and what nobody waited for.
func DefaultCount() Count {
	c := Count{GRPCStatuses: 1, Unfinished: true, ReplayHeader: "idempotency-replayed"}
	c.Statuses.Add(http.StatusSwitchingProtocols)
	c.Statuses.addClass(2)
	c.Statuses.addClass(3)
	return c
}

// completedCount returns the preset "completed": what was delivered in full.
func completedCount() Count {
	c := Count{GRPCStatuses: 1, ReplayHeader: "idempotency-replayed"}
	c.Statuses.addClass(2)
	return c
}

// addClass adds the statuses that begin with a digit from 1 to 5, but 304: nothing
// was sent that the caller did not have, so that costs only if it is written.
func (s *StatusSet) addClass(first int) {
	for status := 100 * first; status < 100*first+100; status++ {
		if status != http.StatusNotModified {
			s.Add(status)
		}
	}
}

// count reads which requests cost. What is written goes before the preset.
func (o *object) count() Count {
	c := choose(o, "preset", DefaultCount(),
		option[Count]{"answered", DefaultCount()}, option[Count]{"completed", completedCount()})
	if n := o.field("statuses"); n != nil {
		c.Statuses = o.statuses(n, o.at("statuses"))
	}
	if n := o.field("grpc_statuses"); n != nil {
		c.GRPCStatuses = o.grpcStatuses(n, o.at("grpc_statuses"))
	}
	if n := o.field("grpc_status"); n != nil {
		c.GRPCStatus = o.object(n, o.at("grpc_status")).grpcStatus()
	}
	c.Aborted = o.bool("aborted", c.Aborted)
	c.Unfinished = o.bool("unfinished", c.Unfinished)
	c.Replays = o.bool("replays", c.Replays)
	c.ReplayHeader = o.headerIn("replay_header", c.ReplayHeader)
	o.done()
	return c
}

// grpcStatus reads where a gRPC status is, beside trailers and headers.
func (o *object) grpcStatus() *Source {
	var s *Source
	if n := o.require("metadata", "where in Envoy's metadata the status is"); n != nil {
		if text, ok := o.reader.text(n, o.at("metadata")); ok {
			s = &Source{Kind: SourceMetadata}
			s.Name, s.Path = o.inMetadata(n, o.at("metadata"), text)
		}
	}
	o.done()
	return s
}

// statuses reads 2xx, "204" and 204.
func (r *reader) statuses(n *node, path string) StatusSet {
	var all StatusSet
	var before []string
	r.some(n, path, func(item *node, path string) {
		s := item.text
		class := strings.HasSuffix(s, "xx")
		switch {
		case item.kind != stringNode && item.kind != numberNode,
			len(s) != 3, s[0] < '1', s[0] > '5', !class && strings.Trim(s, "0123456789") != "":
			r.fail(item, path, "%s is not a status; write one such as 2xx or 204", item.shown())
		case slices.Contains(before, s):
			r.fail(item, path, "%s is listed twice; keep one", s)
		case class:
			all.addClass(int(s[0] - '0'))
		default:
			all.Add(int(s[0]-'0')*100 + int(s[1]-'0')*10 + int(s[2]-'0'))
		}
		before = append(before, s)
	})
	return all
}

// grpcStatuses reads the names or numbers of gRPC statuses, a bit each.
func (r *reader) grpcStatuses(n *node, path string) (all uint32) {
	names := []string{
		"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED",
		"RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS",
		"UNAUTHENTICATED",
	}
	r.some(n, path, func(item *node, path string) {
		status := slices.Index(names, item.text)
		if item.kind == numberNode {
			v, ok := r.whole(item, path, 0, int64(len(names)-1))
			if !ok {
				return
			}
			status = int(v)
		} else if near := nearest(item.text, names); item.kind != stringNode || status < 0 && near == "" {
			r.fail(item, path, "%s is no gRPC status; write its name, such as OK or NOT_FOUND", item.shown())
			return
		} else if status < 0 {
			r.fail(item, path, "%s is no gRPC status; did you mean %s?", item.shown(), near)
			return
		}
		if all&(1<<status) != 0 {
			r.fail(item, path, "%s is listed twice; keep one", item.text)
		}
		all |= 1 << status
	})
	return all
}
