package envoy

import (
	"encoding/base64"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/plan"
)

const (
	// mostPushback is the longest wait that a gRPC client is told to retry after by
	// itself; after a longer one it must not retry at all.
	mostPushback = 5 * time.Second
	// Some gRPC peers take 8 KiB of metadata and no more. The details are base64 in
	// it, beside a message and the other headers.
	mostViolations  = 5
	mostDescription = 200
	mostViolated    = 3 << 10 // of the status, with its violations
	mostStatus      = 9 << 9  // of the status with everything
)

// grpcHeaders appends what makes Envoy's reply to a gRPC caller a proper status:
// without grpc-status Envoy would send UNAVAILABLE, which clients retry. The code
// in the details is the same, or grpc-go would report INTERNAL.
func (a *answer) grpcHeaders(b []byte, to headerList, st statuses) []byte {
	b = putInt(b, to, "grpc-status", int64(st.grpc))
	a.scratch2 = a.grpcStatus(a.scratch2[:0], st)
	b, o := openHeader(b, to, "grpc-status-details-bin")
	b = base64.RawStdEncoding.AppendEncode(b, a.scratch2)
	b = shutHeader(b, o)
	b, o = openHeader(b, to, "grpc-retry-pushback-ms")
	if a.wait > 0 && a.wait <= mostPushback {
		b = strconv.AppendInt(b, int64((a.wait+time.Millisecond-1)/time.Millisecond), 10)
	} else {
		b = append(b, "-1"...)
	}
	return shutHeader(b, o)
}

// grpcMessage appends the message of a refusal as a header, percent-encoded.
func (a *answer) grpcMessage(b []byte, to headerList) []byte {
	const hex = "0123456789ABCDEF"
	a.scratch = a.sentence(a.scratch[:0])
	b, o := openHeader(b, to, "grpc-message")
	for _, c := range []byte(cutText(text(a.scratch))) {
		if c < ' ' || c > '~' || c == '%' {
			b = append(b, '%', hex[c>>4], hex[c&15])
		} else {
			b = append(b, c)
		}
	}
	return shutHeader(b, o)
}

// grpcStatus appends a google.rpc.Status with its details.
func (a *answer) grpcStatus(b []byte, st statuses) []byte {
	b = putNumber(b, 1, st.grpc)
	a.scratch = a.sentence(a.scratch[:0])
	b = putText(b, 2, cutText(text(a.scratch)))
	b = a.errorInfo(b)
	if len(a.refused) > 0 {
		b = a.quotaFailure(b)
	}
	if a.retry > 0 {
		b, m := openDetail(b, "google.rpc.RetryInfo")
		b, d := open(b, 1)
		b = putNumber(b, 1, uint64(a.retry))
		b = shut(b, d)
		return a.help(shutDetail(b, m))
	}
	return a.help(b)
}

type detailMark struct{ detail, value int }

func openDetail(b []byte, name string) ([]byte, detailMark) {
	var m detailMark
	b, m.detail = open(b, 3)
	b = putText(b, 1, "type.googleapis.com/"+name)
	b, m.value = open(b, 2)
	return b, m
}

func shutDetail(b []byte, m detailMark) []byte { return shut(shut(b, m.value), m.detail) }

func (a *answer) errorInfo(b []byte) []byte {
	b, m := openDetail(b, "google.rpc.ErrorInfo")
	b = putText(b, 1, a.code())
	b = putText(b, 2, a.host())
	a.scratch = a.d.ID.Append(a.scratch[:0])
	b = putEntry(b, 3, "decision", text(a.scratch))
	if l := a.worst(); l != nil {
		b = putEntry(b, 3, "policy", cutText(l.Limit.Name))
		b = putEntry(b, 3, "scope", cutText(l.Tenant))
		if !hidden(l) {
			a.scratch = strconv.AppendInt(a.scratch[:0], l.Limit.Amount, 10)
			b = putEntry(b, 3, "limit", text(a.scratch))
		}
		if !hidden(l) && l.Limit.Kind != plan.Rate {
			a.scratch = strconv.AppendInt(a.scratch[:0], used(l), 10)
			b = putEntry(b, 3, "used", text(a.scratch))
		}
		if !l.ResetsAt.IsZero() {
			a.scratch = instant(a.scratch[:0], l.ResetsAt)
			b = putEntry(b, 3, "resets_at", text(a.scratch))
		}
	}
	return shutDetail(b, m)
}

// host is the name that the errors of the app belong to.
func (a *answer) host() string {
	for _, h := range a.app.Hosts {
		if !strings.HasPrefix(h, "*") {
			return h
		}
	}
	return or(a.app.Name, "mete")
}

// quotaFailure appends the violations, as many as there is room for.
func (a *answer) quotaFailure(b []byte) []byte {
	b, m := openDetail(b, "google.rpc.QuotaFailure")
	for _, i := range a.refused[:min(len(a.refused), mostViolations)] {
		before := len(b)
		if b = a.violation(b, &a.d.Limits[i]); len(b) > mostViolated {
			b = b[:before]
			break
		}
	}
	return shutDetail(b, m)
}

func (a *answer) violation(b []byte, l *authz.LimitState) []byte {
	b, v := open(b, 1)
	b = putText(b, 1, cutText(l.Tenant))
	a.scratch = a.aboutOne(a.scratch[:0], l)
	b = putText(b, 2, cutText(text(a.scratch)))
	b = putText(b, 3, valid(a.app.Name))
	b = putText(b, 4, valid(l.Limit.Unit))
	b = putText(b, 5, cutText(l.Limit.Name))
	b = putEntry(b, 6, "scope", cutText(l.Tenant))
	if l.Plan != "" {
		b = putEntry(b, 6, "plan", valid(l.Plan))
	}
	if !hidden(l) {
		b = putNumber(b, 7, uint64(min(l.Limit.Amount, math.MaxInt64)))
	}
	return shut(b, v)
}

// aboutOne appends the sentence about one limit.
func (a *answer) aboutOne(b []byte, l *authz.LimitState) []byte {
	if a.d.Outcome == authz.RequestTooLarge {
		return tooLarge(b, l)
	}
	if a.d.Outcome == authz.Unavailable {
		return a.unavailable(b, l)
	}
	return a.reached(b, l)
}

func (a *answer) help(b []byte) []byte {
	if a.d.UpgradeURL == "" {
		return b
	}
	before := len(b)
	b, m := openDetail(b, "google.rpc.Help")
	b, l := open(b, 1)
	b = putText(b, 1, "Raise the limit")
	b = putText(b, 2, valid(a.d.UpgradeURL))
	b = shut(b, l)
	if b = shutDetail(b, m); len(b) > mostStatus {
		return b[:before]
	}
	return b
}

// valid returns s with what is not UTF-8 replaced: protobuf's texts must be UTF-8,
// or Envoy refuses the whole answer.
func valid(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// cutText cuts s to what fits, between characters.
func cutText(s string) string {
	s = valid(s)
	if len(s) <= mostDescription {
		return s
	}
	n := mostDescription
	for !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
