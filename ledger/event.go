package ledger

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// head is what every line begins with.
const head = `{"specversion":"1.0","type":"mete.usage.v1",`

const stamp = "2006-01-02T15:04:05.000Z07:00"

// A scribe makes the lines of one process.
type scribe struct {
	head     []byte // of this process's lines, up to the number in the id
	sequence uint64 // of the last line
	recorded []byte // when the lines of this flush were made
}

func newScribe(source string, process uint64) scribe {
	b := append([]byte(head), `"source":`...)
	b = appendText(b, source)
	return scribe{head: fmt.Appendf(b, `,"id":"%016x-`, process)}
}

// at says when the next lines are made.
func (s *scribe) at(now time.Time) { s.recorded = now.UTC().AppendFormat(s.recorded[:0], stamp) }

// line appends the event for what a group had, under the next id.
func (s *scribe) line(dst []byte, t *taken) []byte {
	s.sequence++
	dst = append(dst, s.head...)
	dst = strconv.AppendUint(dst, s.sequence, 10)
	dst = append(dst, `",`...)
	dst = appendField(dst, "subject", t.key.tenant)
	dst = append(dst, `"time":"`...)
	dst = time.Unix(0, t.latest).UTC().AppendFormat(dst, stamp)
	dst = append(dst, `","recordedtime":"`...)
	dst = append(dst, s.recorded...)
	dst = append(dst, `","datacontenttype":"application/json","data":{`...)
	dst = appendData(dst, t)
	return append(dst, '}', '}', '\n')
}

func appendData(dst []byte, t *taken) []byte {
	k := t.key
	dst = appendField(dst, "app", k.app)
	dst = appendField(dst, "limit", k.limit)
	dst = appendField(dst, "unit", k.unit)
	dst = appendField(dst, "window", k.window)
	dst = appendField(dst, "class", k.class)
	dst = appendField(dst, "principal", escapeBytes(k.principal))
	dst = appendField(dst, "route", escapeBytes(k.route))
	dst = appendField(dst, "attribution", escapeBytes(k.attribution))
	if k.merged {
		dst = append(dst, `"merged":true,`...)
	}
	dst = appendField(dst, "outcome", k.outcome.Word())
	dst = append(dst, `"quantity":`...)
	return strconv.AppendInt(dst, t.units, 10)
}

// appendField appends a member of an object that is not its last one; none if it is empty.
func appendField(dst []byte, name, value string) []byte {
	if value == "" {
		return dst
	}
	dst = append(append(append(dst, '"'), name...), '"', ':')
	return append(appendText(dst, value), ',')
}

// appendText appends s as JSON. Bytes that are not UTF-8, which only texts that callers
// choose have, are escaped by [escapeBytes].
func appendText(dst []byte, s string) []byte {
	if !utf8.ValidString(s) {
		s = escapeBytes(s)
	}
	if !plain(s) {
		b, _ := json.Marshal(s) // it cannot fail for a string
		return append(dst, b...)
	}
	return append(append(append(dst, '"'), s...), '"')
}

// escapeBytes returns s with bytes that are not UTF-8 as %80 to %FF, and with %25 for a
// percent sign that would read as the begin of one of these, or of %25. So no two texts
// become one.
func escapeBytes(s string) string {
	if utf8.ValidString(s) && !strings.Contains(s, "%") {
		return s
	}
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if c := s[i]; ambiguous(s[i:]) || r == utf8.RuneError && n == 1 {
			b.Write([]byte{'%', digits[c>>4], digits[c&15]})
		} else {
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	return b.String()
}

// ambiguous reports whether s begins as an escape of [escapeBytes] does.
func ambiguous(s string) bool {
	if len(s) < 3 || s[0] != '%' {
		return false
	}
	high, low := s[1], s[2]
	return high == '2' && low == '5' ||
		(high == '8' || high == '9' || 'A' <= high && high <= 'F') && ('0' <= low && low <= '9' || 'A' <= low && low <= 'F')
}

func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}
