package main

import (
	"slices"
	"strings"
	"testing"
)

// arrowsOf reads arrows such as "a>b b>c".
func arrowsOf(text string) map[string]map[string]bool {
	arrows := map[string]map[string]bool{}
	for _, arrow := range strings.Fields(text) {
		from, to, _ := strings.Cut(arrow, ">")
		if arrows[from] == nil {
			arrows[from] = map[string]bool{}
		}
		arrows[from][to] = true
	}
	return arrows
}

// The largest set of files that reach each other is found, whatever leads to or from it.
func TestKnot(t *testing.T) {
	t.Parallel()
	for arrows, want := range map[string]string{
		"":                                  "",
		"a>b b>c":                           "",
		"a>b b>a":                           "a b",
		"a>b b>c c>a":                       "a b c",
		"x>a a>b b>c c>a c>y":               "a b c",
		"a>b b>a b>c c>d d>e e>c":           "c d e",
		"a>b b>a b>c c>b":                   "a b c",
		"a>b a>c b>d c>d":                   "",
		"a>b b>c c>d d>b d>e e>f f>e":       "b c d",
		"d>c c>b b>a a>d x>y y>x":           "a b c d",
		"a>b b>c c>a d>e e>f f>g g>d a>d":   "d e f g",
		"a>b b>a c>d d>c d>b b>x x>y y>z":   "a b|c d",
		"a>b b>c c>b c>a a>d d>e e>d e>f":   "a b c",
		"m>n n>o o>p p>m o>n p>n q>m r>q":   "m n o p",
		"k>l l>k l>m m>n n>l z>k k>z a>z":   "k l m n z",
		"one>two two>three three>one a>one": "one three two",
	} {
		got := strings.Join(knot(arrowsOf(arrows)), " ")
		if !slices.Contains(strings.Split(want, "|"), got) {
			t.Errorf("%s: %q, want %q", arrows, got, want)
		}
	}
}

// A bound that is exceeded is named with the package and the place; one that is met, or not
// set, is not.
func TestJudge(t *testing.T) {
	t.Parallel()
	r := &room{
		path: "m/p", knot: []string{"a.go", "b.go"}, unused: []string{"X"},
		file: largest{"a.go", 401}, function: largest{"run", 61}, fields: largest{"config", 26},
	}
	if above := judge([]*room{r}, bounds{}); len(above) > 0 {
		t.Errorf("without bounds: %q", above)
	}
	if above := judge([]*room{r}, bounds{knot: 2, unused: 1, function: 61, fields: 26, file: 401}); len(above) > 0 {
		t.Errorf("at the bounds: %q", above)
	}
	want := []string{
		"m/p: 2 files reach each other in a circle, at most 1 are allowed: a.go, b.go",
		"m/p: 401 lines, at most 400 are allowed: a.go",
		"m/p: 61 lines, at most 60 are allowed: func run",
		"m/p: 26 fields, at most 25 are allowed: struct config",
	}
	if above := judge([]*room{r}, bounds{knot: 1, unused: 1, function: 60, fields: 25, file: 400}); !slices.Equal(above, want) {
		t.Errorf("%q, want %q", above, want)
	}
}

// This package has no knot, and what it exports is found.
func TestMeasure(t *testing.T) {
	t.Parallel()
	rooms, err := measure([]string{"github.com/meteproject/mete/tools/house", "github.com/meteproject/mete/ratelimit"})
	if err != nil {
		t.Fatal(err)
	}
	if len(rooms) != 2 || rooms[0].path != "github.com/meteproject/mete/ratelimit" {
		t.Fatalf("measured %d packages", len(rooms))
	}
	limits, house := rooms[0], rooms[1]
	if limits.exported == 0 || len(limits.unused) > 0 || limits.function.name == "" || limits.fields.lines == 0 {
		t.Errorf("ratelimit: %+v", limits)
	}
	if len(house.files) != 3 || house.exported != 0 || len(house.knot) > 0 || house.lines < 200 {
		t.Errorf("house: %+v", house)
	}
}
