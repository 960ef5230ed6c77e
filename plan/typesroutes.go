package plan

// Routes tells what the requests of an app cost.
type Routes struct {
	Name  string
	App   string
	Rules []Rule // first match wins
}

// A Rule is one entry of Routes.
type Rule struct {
	Name       string
	Hosts      []string // nil: all; exact or with a leading "*."
	Methods    []string // nil: all
	Path       string   // exact, "{name}" segments match one segment
	PathPrefix string   // whole segments
	GRPCMethod string   // "package.Service/Method"

	Weight int64 // requests; 1 unless written
	Meter  bool  // false: costs nothing
	Check  bool  // false: never refused
	Reason string
	Units  []Reserve

	// Of a rule in a snapshot. A rule that is made of several, for a path that may be read
	// in several ways, has the tariffs of several, see routeTable.
	tariff     string // "ID" or "ID,UNIT=ID,..."
	settlement string // NAME,tariff
}

// A Reserve is what a route takes of a unit before the request runs, and how it is
// found out how many were used.
type Reserve struct {
	Unit   string
	Amount int64 // of requests at least the route's weight
	// Max is the most that one request is expected to use; 0: unknown. More counts
	// in full and is counted as under-reserved (A40, A42).
	Max int64
	// Use are the places where the number of used units is looked for; the first
	// that has one wins. Nil: what was reserved is what is used.
	Use []Source
	// Unreported is what a request that costs has used if no place tells.
	Unreported Unreported
}

// Unreported is what counts as used where Use finds no number.
type Unreported int

// The ways to count what nobody has reported.
const (
	UnreportedReserve Unreported = iota // what was reserved
	UnreportedWeight                    // the route's weight
	UnreportedZero
)
