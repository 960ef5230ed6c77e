package plan

import (
	"fmt"
	"strconv"
	"strings"
)

// Effective returns the limit with everything filled in that a limit of a plan has. The
// name is the one that is written, else the unit's: "per_minute", "per_6_hour". An
// unlimited one has no effective limit; nil.
func (l *DescriptorLimit) Effective(s *DomainSettings) *EffectiveLimit {
	if l.Unlimited {
		return nil
	}
	e := &EffectiveLimit{
		Limit: Limit{
			Name: l.Name, Amount: l.Amount, Unit: DefaultUnit, Advertise: true, Disclose: DiscloseUsage,
			OnUnavailable: s.OnUnavailable, Replicas: s.Replicas, Burst: l.Amount,
		},
		Zone: s.TimeZone, Charged: true, Source: "descriptor",
	}
	if e.Name == "" {
		e.Name = l.window()
	}
	if window, ok := l.Bucket(); ok {
		e.Kind, e.Window = Rate, window
		return e
	}
	e.Kind = Quota
	e.Reset = Reset{Kind: l.Unit.calendar(), Times: int(l.Multiplier)}
	e.Lease = defaultLease()
	return e
}

// Account names what a limit counts in beside the counter: limits with windows of one
// length share it, as an edit of the amount must not set anything back. No limit of a
// plan has such a name.
func (l *DescriptorLimit) Account() string { return accountPrefix + l.window() }

// accountPrefix is what the accounts of all descriptors begin with, and no limit's name does.
const accountPrefix = "ratelimit:"

// OfDescriptors reports whether an account is one of descriptors, also of a kind that this
// version does not know.
func OfDescriptors(account string) bool { return strings.HasPrefix(account, accountPrefix) }

func (l *DescriptorLimit) window() string {
	if l.Multiplier > 1 {
		return fmt.Sprintf("per_%d_%s", l.Multiplier, l.Unit)
	}
	return "per_" + l.Unit.String()
}

// Override names a limit that Envoy has sent along, among those of one counter (C051).
func (l *DescriptorLimit) Override() string {
	return l.Account() + "=" + strconv.FormatInt(l.Amount, 10)
}

func (u DescriptorUnit) calendar() ResetKind {
	switch u {
	case UnitHour:
		return CalendarHour
	case UnitDay:
		return CalendarDay
	case UnitWeek:
		return CalendarWeek
	case UnitMonth:
		return CalendarMonth
	case UnitYear:
		return CalendarYear
	case UnitSecond, UnitMinute:
	}
	return 0
}
