package envoy

import (
	"time"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/plan"
)

// windowOf returns Envoy's unit for the window of the k-th descriptor that the domain's
// rules counted, and how many units long it is, as the document or Envoy wrote it.
func (c *limitCall) windowOf(k int) (unit uint64, times int64) {
	it, ask := &c.count.Items[k], &c.asks[k]
	switch {
	case ask.HasOverride:
		return unitTo(ask.Override.Unit), ask.Override.Multiplier
	case it.Match != nil && it.Match.Rule.Limit != nil:
		return unitTo(it.Match.Rule.Limit.Unit), it.Match.Rule.Limit.Multiplier
	}
	return unitOf(&it.State)
}

// unitOf returns Envoy's unit for a limit's window, and how many units long it is; unit
// 0 (UNKNOWN) where none fits.
func unitOf(l *authz.LimitState) (unit uint64, times int64) {
	if l.Limit.Kind == plan.Quota {
		return quotaWindow(l)
	}
	return lasting(l.Window), 1
}

func quotaWindow(l *authz.LimitState) (unit uint64, times int64) {
	times = int64(max(l.Limit.Reset.Times, 1))
	switch l.Limit.Reset.Kind {
	case plan.CalendarHour:
		return unitHour, times
	case plan.CalendarDay:
		return unitDay, times
	case plan.CalendarWeek:
		return unitWeek, times
	case plan.CalendarMonth:
		return unitMonth, times
	case plan.CalendarYear:
		return unitYear, times
	case plan.CalendarBilling, plan.Cron:
		return 0, 1
	case plan.Every, plan.AfterFirstUse:
	}
	return lasting(l.Window), 1
}

// lasting returns the unit that always lasts so long; 0: none does.
func lasting(window time.Duration) uint64 {
	if window%time.Second != 0 {
		return 0
	}
	switch int64(window / time.Second) {
	case 1:
		return unitSecond
	case 60:
		return unitMinute
	case 3600:
		return unitHour
	case 86400:
		return unitDay
	case 604800:
		return unitWeek
	}
	return 0
}
