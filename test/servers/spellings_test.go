package servers_test

import (
	"math/rand/v2"
	"strings"
)

// Pieces of which spellings of paths are made.
const (
	// Goals are paths of every route, and of none.
	goals = "/v1/render /v1/chat /exports/9 /events/1 /events /health /public/a /public/ /tree/x /tree/ /other"
	// Leads are where a path may pretend to go, and climbs how it may leave there.
	leads  = "/public /public/a /health /tree"
	climbs = `/.. //.. /../ /%2e%2e /.%2e /%2E. /..; /..;x /;/.. /x/..%2f.. %2f.. %2f..%2f /..%2F%2e%2e %5c..%5c /..%5c /..%2f. \.. /..%00 ` +
		`/..%20 /.../.. /%252e%252e /..%252f /x//../.. /./.. /%2e/.. /x;/../.. /;x/.. /.;/.. /..;/..; /..%3b /%2e%2e%3bx /..%09 /%2e%2e%2f%2e%2e ` +
		`/..# /..?/ /x/%2e%2e//.. %2f%2e%2e%2f%2e%2e /..%5c..%5c /..%c0%af /%c0%ae%c0%ae /..%ff %3b/.. /x%2f..%2f..`
	// Ends go behind a path.
	ends = `/ // /// /. /.. /%2e /;x ;x ; %3bx %2f %2F %5c \ %00 %20 %09 %0a %0d %a0 %c2%a0 %ff %25 %2525 ? ?x ?/../ # #x %23 %3f . .. .json , ~ + * : ' " | ^ { } < > %zz % %2`
	// Tokens are for paths without a plan.
	tokens = `/ / / // . .. %2e %2E %2f %5c ; ;x x a public v1 render V1 Render exports 9 events health tree %252e %252f %72 %3b %20 \ ? # %00 %41`
)

// controls go into paths too; a field of the constants above cannot hold them.
func controls() []string {
	return []string{"\x01", "\x0b", "\x0c", "\t", " ", "\x7f", "\x80", "\x85", "\xa0", "\xc2\xa0", "\xe2\x80\xa8", "\xef\xbb\xbf", "\xff", "\xc0\xaf", "\xc0\xae", "\xef\xbc\x8f"}
}

// ways are how one path may be spelled throughout.
func ways() []func(string) string {
	between := func(separator string) func(string) string {
		return func(s string) string { return "/" + strings.ReplaceAll(s[1:], "/", separator) }
	}
	ways := []func(string) string{
		func(s string) string { return s },
		strings.ToUpper,
		func(s string) string { return "/" + s },
		func(s string) string { return strings.ReplaceAll(s, "e", "%65") },
		func(s string) string { return strings.ReplaceAll(s, "e", "%2565") },
		func(s string) string { return "http://h" + s },
		func(s string) string { return "http://h/public/../" + s },
		func(s string) string { return "//h" + s },
		func(s string) string { return s[1:] },
	}
	for _, separator := range []string{
		"//", "/./", "/%2e/", "%2f", "%2F", "%5c", "%252f", `\`, "/x/../", "/x/%2e%2e/", "/x%2f../", "/x/..%2f", "/x/..;/", "/x;/../", ";x/", "/;/", "/;x/", "%3b/", "%2f/", "/%2f",
	} {
		ways = append(ways, between(separator))
	}
	return ways
}

// spellings are request targets, each once, the same in every run.
func spellings() []string {
	var all []string
	known := map[string]bool{}
	add := func(s string) {
		if !known[s] {
			known[s] = true
			all = append(all, s)
		}
	}
	every := strings.Fields(goals)
	for _, way := range ways() {
		for _, goal := range every {
			add(way(goal))
		}
	}
	for _, end := range append(strings.Fields(ends), controls()...) {
		for i, goal := range every {
			add(goal + end)
			if i%3 == 0 {
				add(goal[:1] + end + goal[1:])
			}
		}
	}
	for _, lead := range strings.Fields(leads) {
		for i, climb := range strings.Fields(climbs) {
			for j, goal := range every[:2] {
				add(lead + climb + goal)
				add(lead + climb + ways()[(i+7*j)%len(ways())](every[(i+j)%len(every)]))
			}
		}
	}
	r, pieces := rand.New(rand.NewPCG(1, 2)), append(strings.Fields(tokens), controls()[5:9]...)
	for range 400 {
		s := "/"
		for range 3 + r.IntN(9) {
			s += pieces[r.IntN(len(pieces))]
		}
		add(s)
	}
	return all
}
