package differential_test

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// An expectation is a file beside a configuration that says how a service with it behaves, line by line:
//
//	load: yes
//	load: no; THE ERROR NAMES THIS; AND THIS
//	also rejected: A DOCUMENT IN ONE LINE; THE ERROR NAMES THIS
//	also loads: A DOCUMENT IN ONE LINE, \n FOR MORE
//
// and paragraphs, each of which begins with fresh counters at midnight of 2000-01-01, a Saturday:
//
//	at 2027-02-28T23:58:00Z
//	after 90s
//	REQUEST xN -> 4 OK, 1 OVER_LIMIT; WHAT THE LAST ANSWER SAYS; ...
//	rule NAME total=10 within=2 near=0 over=8 shadow=8
//	series at most N after 1000 requests REQUEST      each % of it another number
//
// A REQUEST is a descriptor, or several in braces, and may begin with "hits 3" of its own:
//
//	[(org,a),(route,"b\xff")] hits=3 negative limit=5/hour
//	{[(org,a)] hits=0; [(ip,1)]}
//
// Of the last answer, with a comma between descriptors: remaining 2,-; reset 30,-; limit 5/hour,-; name a,-; status OK,OVER_LIMIT.
// "-" is nothing, "all" what an unlimited rule has. A line that begins with # tells why.
type expectation struct {
	name     string
	loads    bool
	names    []string // what the error names
	rejected [][]string
	loading  []string
	parts    [][]string // lines of a paragraph
}

func readExpectation(t *testing.T, name string) expectation {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	e := expectation{name: name}
	said := false
	for paragraph := range strings.SplitSeq(string(text), "\n\n") {
		var lines []string
		for line := range strings.SplitSeq(paragraph, "\n") {
			word, rest, _ := strings.Cut(line, ": ")
			rest = strings.ReplaceAll(rest, `\n`, "\n")
			parts := strings.Split(rest, "; ")
			switch {
			case line == "" || strings.HasPrefix(line, "#"):
			case word == "load":
				said, e.loads, e.names = true, parts[0] == "yes", parts[1:]
			case word == "also rejected":
				e.rejected = append(e.rejected, parts)
			case word == "also loads":
				e.loading = append(e.loading, rest)
			default:
				lines = append(lines, line)
			}
		}
		if len(lines) > 0 {
			e.parts = append(e.parts, lines)
		}
	}
	if !said || e.loads == (len(e.parts) == 0) {
		t.Fatalf("%s does not say whether it loads, or how it behaves then", name)
	}
	return e
}

// A line is one request of an expectation.
type line struct {
	request request
	times   int
	answers []bool // of each time: over
	says    map[string][]string
}

var (
	requestLine    = regexp.MustCompile(`^(?:hits (\d+) )?(\{.*\}|\[[^{]*?)(?: x(\d+))? +-> (.*)$`)
	descriptorText = regexp.MustCompile(`^\[(.*)\]((?: \S+)*)$`)
	pairText       = regexp.MustCompile(`^\(((?:"(?:[^"\\]|\\.)*"|[^,)])*),((?:"(?:[^"\\]|\\.)*"|[^)])*)\),?`)
	countText      = regexp.MustCompile(`^(?:(\d+|all) )?(OK|OVER_LIMIT)$`)
)

func parseLine(t *testing.T, domain, text string) line {
	t.Helper()
	m := requestLine.FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("no request: %s", text)
	}
	l := line{request: parseRequest(t, m[2]), times: 1, says: map[string][]string{}}
	l.request.domain = domain
	if m[1] != "" {
		l.request.hits = uint32(number(t, m[1]))
	}
	if m[3] != "" {
		l.times = int(number(t, m[3]))
	}
	parts := strings.Split(m[4], "; ")
	for outcome := range strings.SplitSeq(parts[0], ", ") {
		o := countText.FindStringSubmatch(outcome)
		if o == nil {
			t.Fatalf("no outcome: %q of %s", outcome, text)
		}
		n := 1
		switch o[1] {
		case "":
		case "all":
			n = l.times
		default:
			n = int(number(t, o[1]))
		}
		for range n {
			l.answers = append(l.answers, o[2] == "OVER_LIMIT")
		}
	}
	if len(l.answers) != l.times {
		t.Fatalf("%d outcomes of %d requests: %s", len(l.answers), l.times, text)
	}
	for _, p := range parts[1:] {
		what, values, _ := strings.Cut(p, " ")
		l.says[what] = strings.Split(values, ",")
	}
	return l
}

func parseRequest(t *testing.T, text string) request {
	t.Helper()
	var r request
	inner, several := strings.CutPrefix(strings.TrimSuffix(text, "}"), "{")
	parts := []string{inner}
	if several {
		parts = strings.Split(inner, "; ")
	}
	for _, p := range parts {
		r.descriptors = append(r.descriptors, parseDescriptor(t, p))
	}
	return r
}

func parseDescriptor(t *testing.T, text string) descriptor {
	t.Helper()
	m := descriptorText.FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("no descriptor: %s", text)
	}
	var d descriptor
	for rest := m[1]; rest != ""; {
		p := pairText.FindStringSubmatch(rest)
		if p == nil {
			t.Fatalf("no key and value: %s", rest)
		}
		d.entries = append(d.entries, entry{unquote(t, p[1]), unquote(t, p[2])})
		rest = rest[len(p[0]):]
	}
	for attribute := range strings.FieldsSeq(m[2]) {
		switch what, value, _ := strings.Cut(attribute, "="); what {
		case "hits":
			n := number(t, value)
			d.hits = &n
		case "negative":
			d.negative = true
		case "limit":
			n, u, _ := strings.Cut(value, "/")
			d.override = &override{uint32(number(t, n)), unit(u)}
		default:
			t.Fatalf("no attribute of a descriptor: %s", attribute)
		}
	}
	return d
}

func unquote(t *testing.T, s string) string {
	t.Helper()
	if !strings.HasPrefix(s, `"`) {
		return s
	}
	out, err := strconv.Unquote(s)
	if err != nil {
		t.Fatalf("%s: %v", s, err)
	}
	return out
}

func number(t *testing.T, s string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// tells says in the words of an expectation what a descriptor's status is.
func (s status) tells(what string) string {
	switch {
	case what == "status" && s.over:
		return "OVER_LIMIT"
	case what == "status":
		return "OK"
	case what == "remaining" && !s.limited && s.remaining > 0:
		return "all"
	case !s.limited:
		return "-"
	case what == "remaining":
		return fmt.Sprint(s.remaining)
	case what == "reset" && s.reset >= 0:
		return fmt.Sprint(s.reset)
	case what == "limit":
		return fmt.Sprintf("%d/%s", s.perUnit, s.unit)
	case what == "name" && s.name != "":
		return s.name
	}
	return "-"
}

// wait lets the time of a line pass; false: it is no such line.
func wait(t *testing.T, text string) bool {
	t.Helper()
	if moment, ok := strings.CutPrefix(text, "at "); ok {
		at(t, moment)
		return true
	}
	if span, ok := strings.CutPrefix(text, "after "); ok {
		d, err := time.ParseDuration(span)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(d)
		return true
	}
	return false
}
