package authz

import (
	"strconv"
	"strings"
	"time"

	"github.com/meteproject/mete/plan"
)

// A Measured is what a request has used of each charge of its reservation, in the
// order of the charges.
type Measured struct {
	// Used are the units, 0 or more. Below 0: the app may report them, or has, to
	// the process that decided; see Decider.Report.
	Used []int64
	Free bool // it does not cost
	Long bool // it took longer than leases are liable for (A48)
	// Replayed says that the upstream has answered from memory what it had done before
	// (C16).
	Replayed bool
}

// unreported stands in Measured.Used for a number that only a report can tell.
const unreported = -1

// longestLiable is how long a request may take before its replica's leases may be
// settled without it.
const longestLiable = 29 * time.Minute

// Measure finds out what a request has used, by how it ended: nothing if it does not
// cost by the app's count; else, of each unit, what the route's sources tell, or what
// was reserved. The documents decide as they were when it was admitted, see
// [plan.Snapshot.Tariff].
func (d *Decider) Measure(r *Reservation, e *Ending, m *Measured) {
	*m = Measured{Used: m.Used[:0], Long: e.Duration > longestLiable}
	d.usual.note(r.App, plan.RouteName(r.Route), e.Duration)
	tariff := d.tariffToMeasure(r)
	if tariff == nil {
		for i := range r.Charges {
			m.Used = append(m.Used, r.Charges[i].Units)
		}
		return
	}
	m.Replayed = replayed(&tariff.Count, e.Response)
	m.Free = !billable(&tariff.Count, e, m.Replayed)
	for i := range r.Charges {
		m.Used = append(m.Used, d.used(tariff, r, &r.Charges[i], e, m.Free))
	}
}

// tariffOf returns what r's request costs; nil where that is not known and its app is gone.
func (d *Decider) tariffOf(r *Reservation) *plan.Tariff {
	tariff, _ := d.tariffKnown(r)
	return tariff
}

func (d *Decider) tariffKnown(r *Reservation) (t *plan.Tariff, known bool) {
	snap := d.current.Load().snapshot
	if snap == nil {
		return nil, false
	}
	return snap.Tariff(r.App, r.Route)
}

// tariffToMeasure is tariffOf, and counts what is not known.
func (d *Decider) tariffToMeasure(r *Reservation) *plan.Tariff {
	tariff, known := d.tariffKnown(r)
	if !known {
		d.stats.unknownTariffs.Add(1)
	}
	return tariff
}

// billable reports whether a request costs (A8, A9, A11, A12, C14, C15, C16).
func billable(c *plan.Count, e *Ending, replayed bool) bool {
	status, unfinished := e.GRPC, e.Unfinished
	if told, ok := toldGRPC(c, e); ok {
		status, unfinished = told, false // the status is the last thing of a gRPC response
	}
	switch {
	case e.Followed:
		return false // no request costs twice
	case e.Status == 0:
		return c.Aborted && e.Reached
	case !c.Replays && replayed:
		return false
	case unfinished && !c.Unfinished:
		return false
	case status >= 0:
		return c.HasGRPC(status)
	}
	return c.Statuses.Has(e.Status)
}

// toldGRPC returns the gRPC status that a filter of Envoy has left of a response which has
// none in trailers and headers.
func toldGRPC(c *plan.Count, e *Ending) (status int, ok bool) {
	if c.GRPCStatus == nil || e.GRPC >= 0 || e.Response == nil {
		return 0, false
	}
	text, ok := e.Response.Lookup(c.GRPCStatus.Name, c.GRPCStatus.Path)
	return GRPCStatus(text), ok
}

func replayed(c *plan.Count, response Response) bool {
	if response == nil || c.ReplayHeader == "" {
		return false
	}
	value, _ := response.Header(c.ReplayHeader)
	return strings.EqualFold(strings.TrimSpace(value), "true")
}

// used returns what a request used of one charge.
func (d *Decider) used(tariff *plan.Tariff, r *Reservation, c *Charged, e *Ending, free bool) int64 {
	res := tariff.Unit(c.Unit)
	if free {
		if reported(res) {
			return unreported
		}
		return 0
	}
	if res == nil {
		return c.Units
	}
	for i := range res.Use {
		if n, ok := d.number(&res.Use[i], e.Response); ok {
			if res.Max > 0 && n > res.Max {
				d.stats.aboveMax.Add(1)
			}
			return n
		}
	}
	if reported(res) {
		return unreported
	}
	return assumed(tariff, res, r, c)
}

// reported reports whether the app may report what was used.
func reported(res *plan.Reserve) bool {
	return res != nil && len(res.Use) > 0 && res.Use[len(res.Use)-1].Kind == plan.SourceReport
}

// assumed returns what counts as used where nobody has told.
func assumed(tariff *plan.Tariff, res *plan.Reserve, r *Reservation, c *Charged) int64 {
	switch res.Unreported {
	case plan.UnreportedZero:
		return 0
	case plan.UnreportedWeight:
		return times(tariff.Weight, max(1, r.Hits))
	case plan.UnreportedReserve:
	}
	return c.Units
}

// number returns the number that a source tells, if it tells one: decimal digits, a plus
// before them or not. What is not a whole number from 0 up is none (cases C090 and C171), and
// is counted.
func (d *Decider) number(s *plan.Source, response Response) (int64, bool) {
	if response == nil {
		return 0, false
	}
	var text string
	var ok bool
	switch s.Kind {
	case plan.SourceResponseHeader:
		text, ok = response.Header(s.Name)
	case plan.SourceResponseTrailer:
		text, ok = response.Trailer(s.Name)
	case plan.SourceMetadata:
		text, ok = response.Lookup(s.Name, s.Path)
	case plan.SourceNone, plan.SourceAPIKey, plan.SourceRequestHeader, plan.SourceJWTClaim,
		plan.SourcePeerSPIFFE, plan.SourceContextExtension, plan.SourceClientAddress, plan.SourceReport:
	}
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(strings.TrimPrefix(strings.TrimSpace(text), "+"), 10, 64)
	if err != nil || n > maxUnits {
		d.stats.badUnits.Add(1)
		return 0, false
	}
	return int64(n), true
}

// MeasureUnits is Measure where a number of units is all that is known of the end: they
// are what was used of unit, or what of it is given back. An empty unit is the one that
// the route measures, or else requests. It returns SettledMalformed if the request was
// charged nothing of that unit, or the number is below 0 or larger than any amount; else 0.
// Units that the app may report are left for it to report.
func (d *Decider) MeasureUnits(r *Reservation, unit string, n int64, giveBack bool, m *Measured) Settled {
	*m = Measured{Used: m.Used[:0]}
	tariff := d.tariffToMeasure(r)
	if unit == "" {
		unit = measuredUnit(tariff)
	}
	if n < 0 || n > maxUnits {
		d.stats.badUnits.Add(1)
		return SettledMalformed
	}
	found := false
	for i := range r.Charges {
		c := &r.Charges[i]
		used := c.Units
		switch {
		case c.Unit != unit:
			if reported(tariff.Unit(c.Unit)) {
				used = unreported
			}
		case giveBack:
			found, used = true, max(0, c.Units-n)
		default:
			found, used = true, n
		}
		m.Used = append(m.Used, used)
	}
	if !found {
		d.stats.badUnits.Add(1)
		return SettledMalformed
	}
	return 0
}

// measuredUnit returns the one unit that a tariff measures, the first by its name, or
// requests.
func measuredUnit(tariff *plan.Tariff) string {
	if tariff != nil && len(tariff.Units) > 0 {
		return tariff.Units[0].Unit
	}
	return plan.DefaultUnit
}
