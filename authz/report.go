package authz

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/quota"
)

// The errors of Report and Extend.
var (
	ErrUnknownDecision = errors.New("no open reservation of this decision: it was never made here, it is more than a day old, others of its tenant came after it when too many were open, or its route does not list report among its sources")
	ErrReported        = errors.New("reported before")
	ErrUnits           = errors.New("units cannot be counted")
	ErrExhausted       = errors.New("nothing left")
	ErrUnavailable     = errors.New("quotas cannot be reached")
)

// A RefusedError tells which limit has not as much left as Extend asked for. It is
// ErrExhausted.
type RefusedError struct {
	Limit, Node string
	RetryAfter  time.Duration // 0: waiting cannot help
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("limit %s of %s has not as much left: nothing was reserved", e.Limit, e.Node)
}

// Is makes a RefusedError ErrExhausted.
func (e *RefusedError) Is(target error) bool { return target == ErrExhausted }

// Report settles units of a request by what the app says it has used, in place of what
// was reserved, whatever the response's status. Where an earlier source of the route
// told a number, that stays. The same report again changes nothing and returns the same;
// another number for a unit is ErrReported. It returns what counts now of each unit that
// was named. Only the process that decided can take it. It does no I/O and is safe for
// concurrent use.
func (d *Decider) Report(_ context.Context, now time.Time, id ID, units map[string]int64) (map[string]int64, error) {
	o := d.open.find(id)
	if o == nil {
		return nil, ErrUnknownDecision
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.void {
		return nil, ErrUnknownDecision
	}
	if err := o.check(units); err != nil {
		return nil, err
	}
	for unit, n := range units {
		if before, told := o.reported[unit]; told && before != n {
			return nil, fmt.Errorf("%w: %d %s", ErrReported, before, unit)
		}
	}
	d.numbers.reported(o.r.Number)
	for unit, n := range units {
		if _, told := o.reported[unit]; told {
			continue
		}
		if !o.ended {
			d.released(now, &o.r, o.r.Charges, func(of string) bool { return of == unit })
		}
		o.reported[unit] = n
		if !o.told[unit] {
			d.correctUnit(now, o, unit, n)
		}
	}
	return o.counts(units), nil
}

// Extend reserves more units for a request whose use is not known yet, all of them or
// none. A repeat reserves more again. It waits for a lease as Decide does. Once the number
// of a unit is known, by a report or by an earlier source of the route, it is ErrReported.
// It returns what is reserved now of each unit that was named.
func (d *Decider) Extend(ctx context.Context, now time.Time, id ID, units map[string]int64) (map[string]int64, error) {
	o := d.open.find(id)
	if o == nil {
		return nil, ErrUnknownDecision
	}
	o.mu.Lock()
	err := o.extensible(units)
	o.mu.Unlock()
	if err != nil {
		return nil, err
	}
	dec := Decision{ID: id, Worst: -1}
	d.extend(ctx, now, o, units, &dec)
	if err := refusal(ctx, &dec); err != nil {
		return nil, err
	}
	return d.extended(now, o, units, &dec)
}

// extended adds what dec was charged to what o has reserved.
func (d *Decider) extended(now time.Time, o *openReservation, units map[string]int64, dec *Decision) (map[string]int64, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.extensible(units); err != nil { // it was told meanwhile
		d.undo(now, dec)
		return nil, err
	}
	o.extended = true
	d.numbers.reported(o.r.Number)
	for i := range dec.charges {
		if o.ended {
			d.endOne(now, &dec.charges[i], o.r.Decision)
		}
		c := dec.charges[i].charged()
		o.add(&c)
		d.tellCorrection(&o.r, &c, c.Units)
	}
	return o.counts(units), nil
}

// extensible reports whether more units may be reserved. The caller holds o's lock.
func (o *openReservation) extensible(units map[string]int64) error {
	if o.void {
		return ErrUnknownDecision
	}
	if err := o.check(units); err != nil {
		return err
	}
	reserved := o.counts(units)
	for unit, more := range units {
		n, reported := o.reported[unit]
		switch {
		case reported:
			return fmt.Errorf("%w: %d %s", ErrReported, n, unit)
		case o.told[unit]:
			return fmt.Errorf("%w: %d %s", ErrReported, reserved[unit], unit)
		case reserved[unit]+more > maxUnits:
			return fmt.Errorf("%w: %s: %d are reserved, and %d more are past %d", ErrUnits, unit, reserved[unit], more, int64(maxUnits))
		}
	}
	return nil
}

// extend decides on more units for o's request, under its own terms and windows.
func (d *Decider) extend(ctx context.Context, now time.Time, o *openReservation, units map[string]int64, dec *Decision) {
	patience := patience{keeper: d.keeper, since: now}
	for {
		cur := d.current.Load()
		var app *plan.App
		if cur.snapshot != nil {
			app = cur.snapshot.App(o.r.App)
		}
		if app == nil {
			dec.Outcome = NotReady
			break
		}
		at := d.keeper.Instant(now)
		leaf := d.active.node(o.leaf, at)
		path := d.path(cur, app, leaf, now, at)
		if path.terms.Broken != "" { // never "no limit" (case C004)
			dec.Outcome = Unavailable
			break
		}
		a := attempt{
			d: d, cost: cost{class: o.r.Class, hits: 1, meter: true, check: o.checks, only: o.only}, path: path, leaf: leaf,
			moment: moment{now, at, o.minute}, leasing: leasing{impatient: patience.over, waited: now.Sub(patience.since)}, extend: units,
		}
		if a.run(dec) {
			break
		}
		dec.Reset()
		dec.ID = o.id
		if a.short != nil {
			patience.wait(ctx, now, a.short, a.wait)
		}
		if errors.Is(ctx.Err(), context.Canceled) {
			break
		}
		now = d.now()
	}
	if patience.timer != nil {
		patience.timer.Stop()
	}
}

// refusal returns the error of a decision that does not admit.
func refusal(ctx context.Context, dec *Decision) error {
	switch {
	case dec.Outcome.Admits():
		return nil
	case dec.Worst >= 0:
		worst := &dec.Limits[dec.Worst]
		return &RefusedError{Limit: worst.Limit.Name, Node: worst.Tenant, RetryAfter: dec.RetryAfter}
	case dec.Outcome == Undecided && ctx.Err() != nil:
		return fmt.Errorf("extend a reservation: %w", ctx.Err())
	}
	return ErrUnavailable
}

// check reports whether the app may report, or ask for, units.
func (o *openReservation) check(units map[string]int64) error {
	if len(units) == 0 {
		return fmt.Errorf("%w: none are named; name at least one of %s", ErrUnits, strings.Join(o.units, ", "))
	}
	for _, unit := range slices.Sorted(maps.Keys(units)) {
		n := units[unit]
		switch {
		case !slices.Contains(o.units, unit):
			return fmt.Errorf("%w: the route takes no reports of %q; it takes %s", ErrUnits, unit, strings.Join(o.units, ", "))
		case n < 0 || n > maxUnits:
			return fmt.Errorf("%w: %s: %d is not from 0 to %d", ErrUnits, unit, n, int64(maxUnits))
		}
	}
	return nil
}

// counts returns what counts now of each unit.
func (o *openReservation) counts(units map[string]int64) map[string]int64 {
	all := make(map[string]int64, len(units))
	for unit := range units {
		all[unit] = 0
		for i := range o.r.Charges {
			if c := &o.r.Charges[i]; c.Unit == unit {
				all[unit] = max(all[unit], c.Units)
			}
		}
	}
	return all
}

// settleOpen settles what the log tells of a request that the app may report on, whose
// token says r.
func (d *Decider) settleOpen(now time.Time, o *openReservation, r *Reservation, m *Measured) (reserved, used int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	d.released(now, &o.r, o.r.Charges, func(unit string) bool { _, told := o.reported[unit]; return !told })
	o.ended = true
	for i := range o.r.Charges {
		c := &o.r.Charges[i]
		n := d.toldOf(o, r, m, i)
		if n == unreported {
			n = o.expects(c.Unit, d.unreported(&o.r, c, m.Free))
		} else {
			o.told[c.Unit] = !m.Free
		}
		before := c.Units
		if d.correctTo(now, o, c, n, m.Long) {
			reserved, used = reserved+before, used+n
		}
	}
	return reserved, used
}

// toldOf returns what the log tells of o's charge i, or unreported.
func (d *Decider) toldOf(o *openReservation, r *Reservation, m *Measured, i int) int64 {
	unit := o.r.Charges[i].Unit
	if i >= len(r.Charges) { // o was extended by it
		i = slices.IndexFunc(r.Charges, func(c Charged) bool { return c.Unit == unit })
		if i < 0 {
			return unreported
		}
	}
	n := m.Used[i]
	if n == r.Charges[i].Units && slices.Contains(o.units, unit) && !d.measures(r, unit) {
		return unreported // the documents have changed, and nobody has looked for a number
	}
	return n
}

// measures reports whether r's tariff says where to find what the request used.
func (d *Decider) measures(r *Reservation, unit string) bool {
	return d.tariffOf(r).Unit(unit) != nil
}

// expects returns what was reported of a unit, or else what is assumed until it is.
func (o *openReservation) expects(unit string, assumed int64) int64 {
	if n, told := o.reported[unit]; told {
		return n
	}
	return assumed
}

// correctUnit makes n count of a unit, on every account that was charged for it. The
// caller holds o's lock.
func (d *Decider) correctUnit(now time.Time, o *openReservation, unit string, n int64) {
	for i := range o.r.Charges {
		if c := &o.r.Charges[i]; c.Unit == unit {
			d.correctTo(now, o, c, n, false)
		}
	}
}

// correctTo makes n count of a charge, as correct does. The caller holds o's lock.
func (d *Decider) correctTo(now time.Time, o *openReservation, c *Charged, n int64, long bool) bool {
	uncovered, ok := d.correct(now, &o.r, c, quota.Settlement{Charged: c.Units, Uncovered: c.Uncovered, Used: n, Long: long})
	if ok {
		c.Units, c.Uncovered = n, uncovered
	}
	return ok
}
