package envoy

import (
	"fmt"

	"github.com/meteproject/mete/plan"
)

// An override is a limit that Envoy sends along with a descriptor. It is checked only
// where overrides count: elsewhere a wrong one must not void the limits that do.
type override struct {
	given      bool
	amount     uint32
	unit       int32
	multiplier uint32 // 0 is as good as 1
}

// read reads a RateLimitDescriptor.RateLimitOverride.
func (o *override) read(b []byte) error {
	o.given = true
	s := scan("descriptors.limit", b)
	for s.next() {
		switch s.num {
		case 1:
			o.amount = uint32(s.number("requests_per_unit")) //nolint:gosec // the field has 32 bits
		case 2:
			o.unit = int32(s.number("unit")) //nolint:gosec // so has this
		case 3:
			n, err := wrapped("descriptors.limit.unit_multiplier", s.bytes("unit_multiplier"), uint64(o.multiplier))
			o.multiplier = uint32(n) //nolint:gosec // and this
			s.try(err)
		}
	}
	return s.err
}

// limit returns the limit that the override of descriptor i is.
func (o *override) limit(i int) (plan.DescriptorLimit, error) {
	l := plan.DescriptorLimit{Amount: int64(o.amount), Unit: unitFrom(o.unit), Multiplier: int64(max(o.multiplier, 1))}
	if l.Unit == 0 {
		return l, &wireError{
			fmt.Sprintf("descriptors[%d].limit.unit", i),
			fmt.Sprintf("%d is not a unit; send SECOND (1), MINUTE (2), HOUR (3), DAY (4), MONTH (5), YEAR (6) or WEEK (7)", o.unit),
		}
	}
	if most := l.Unit.LongestMultiplier(); l.Multiplier > most {
		return l, &wireError{
			fmt.Sprintf("descriptors[%d].limit.unit_multiplier", i),
			fmt.Sprintf("%d makes too long a window; of the unit %s send %d at most", o.multiplier, l.Unit, most),
		}
	}
	return l, nil
}

// Envoy's units, of an override and of an answer. Only answers have a week by the API.
const (
	unitSecond = 1
	unitMinute = 2
	unitHour   = 3
	unitDay    = 4
	unitMonth  = 5
	unitYear   = 6
	unitWeek   = 7
)

// unitFrom returns ours for a unit of Envoy's; 0: it has none.
func unitFrom(unit int32) plan.DescriptorUnit {
	switch unit {
	case unitSecond:
		return plan.UnitSecond
	case unitMinute:
		return plan.UnitMinute
	case unitHour:
		return plan.UnitHour
	case unitDay:
		return plan.UnitDay
	case unitMonth:
		return plan.UnitMonth
	case unitYear:
		return plan.UnitYear
	case unitWeek:
		return plan.UnitWeek
	}
	return 0
}

// unitTo returns Envoy's for a unit of ours.
func unitTo(unit plan.DescriptorUnit) uint64 {
	switch unit {
	case plan.UnitSecond:
		return unitSecond
	case plan.UnitMinute:
		return unitMinute
	case plan.UnitHour:
		return unitHour
	case plan.UnitDay:
		return unitDay
	case plan.UnitWeek:
		return unitWeek
	case plan.UnitMonth:
		return unitMonth
	case plan.UnitYear:
		return unitYear
	}
	return 0
}
