package e2e_test

// An outcome is one way for a request to end, and what that costs. The tables of
// outcomes are what docs/what-a-request-costs.md says.
type outcome struct {
	name     string
	happened string
	saw      string // what the caller gets
	costs    costs
	why      string

	// log is what Envoy must log of it, or it is another outcome: the status, the
	// flags, and how the details begin.
	log   string
	blind bool // Envoy's log does not tell which decision it belongs to
	full  bool // the tenant's quota is used up before
	// followed: Envoy logs one more end, of a response that it followed itself.
	followed bool
	how      script // to make it happen
}

// costs is what an outcome costs in each of the columns.
type costs [7]int64

// What outcomes cost, whatever they are.
var (
	counted = costs{1, 5, 7, 25, 0, 1, 1}   // what was used, as the response tells
	untold  = costs{1, 5, 100, 10, 0, 1, 1} // it counts, and nothing tells how much was used: what was reserved
	free    = costs{}
	twice   = costs{2, 10, 14, 50, 0, 2, 2} // two requests
	refused = costs{0, 0, 0, 0, 0, 1, 0}    // the routes that refuse nobody serve it
)

// A column is one way for a route or a plan to treat requests.
type column struct {
	name  string // of the first segment of paths and of gRPC services, too
	title string
	use   string // how many units the API says were used; "": nothing
	plan  string // of its tenants
	tight string // of its tenants whose quota is used up
	fills int    // requests for /fill that take the quota to its end
	rule  string // of its requests, without name and match; "": none

	grace  bool // its tenants have used all but the grace
	exempt bool // it does not even ask who calls
	serves bool // its requests are never refused
}

const useUnits = "use: [{response_header: x-usage-units}, {response_trailer: x-usage-units}]"

var columns = [7]column{
	{name: "plain", title: "plain", plan: "roomy", tight: "tight", fills: 1},
	{name: "heavy", title: "weight 5", plan: "roomy", tight: "tight", fills: 1, rule: "weight: 5"},
	{name: "less", title: "reserve 100, use 7", use: "7", plan: "roomy-credits", tight: "tight-credits", fills: 1, rule: "units: {credits: {reserve: 100, " + useUnits + "}}"},
	{name: "more", title: "reserve 10, use 25", use: "25", plan: "roomy-credits", tight: "tight-credits", fills: 1, rule: "units: {credits: {reserve: 10, " + useUnits + "}}"},
	{name: "exempt", title: "exempt", plan: "roomy", tight: "tight", fills: 1, exempt: true, serves: true, rule: "meter: false, check: false, reason: the matrix wants an exempt route"},
	{name: "metered", title: "meter-only", plan: "roomy", tight: "tight", fills: 1, serves: true, rule: "check: false, reason: the matrix wants a route that refuses nobody"},
	{name: "grace", title: "in grace", plan: "grace", tight: "grace", fills: 2, grace: true},
}

// A section is a table of outcomes of one kind.
type section struct {
	title string
	about string
	rows  []outcome
}

// sections are all outcomes.
func sections() []section {
	return []section{
		answered(), failed(), timedOut(), left(), retried(), calls(), long(), denied(), unasked(), local(),
	}
}
