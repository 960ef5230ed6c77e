package plan

import "time"

// A Plan is a named set of limits.
type Plan struct {
	Name       string
	Title      string
	UpgradeURL string
	Limits     []Limit // in the order written
	Overrides  []PatternOverride
	Notices    Notices
	Increases  []Increase
}

// A PatternOverride changes limits for the tenants whose names match, before
// anything that the tenant's own document says. The first match wins.
type PatternOverride struct {
	Tenants []string // patterns; "*" stands for any run of characters
	Limits  []Override
	Reason  string
}

// Notices tells when and where to notify.
type Notices struct {
	At   []int64 // in hundredths of a percent
	Send []string
}

// An Increase is a rule for raising limits on request.
type Increase struct {
	Limits    []string
	Approvers []string
	// UpTo is an absolute amount, UpToTimes (in hundredths) a factor; at most
	// one is set.
	UpTo, UpToTimes int64
	MinAccountAge   time.Duration
	Payment         string
	Times           int64
	Per             time.Duration
}

// A LimitKind is one of the three kinds of limit.
type LimitKind int

// The kinds of limit.
const (
	Rate LimitKind = iota + 1
	Quota
	Allocation
)

// A Limit is one named rule.
type Limit struct {
	Name        string
	Kind        LimitKind
	Amount      int64 // units; meaningless when Unlimited
	Unlimited   bool  // written "amount: unlimited": counted, never refused, not advertised
	Unit        string
	Description string
	Classes     []string // nil: every class spends it
	Cascade     Cascade
	// OnUnavailable is ChoiceUnset when the app's default holds.
	OnUnavailable Choice
	AllowCap      AllowCap // where OnUnavailable is Allow
	Advertise     bool     // true unless written
	Disclose      Disclose

	// Rate.
	Window   time.Duration
	Burst    int64 // Amount unless written
	Replicas Spread

	// Quota.
	Reset      Reset
	WhenUsedUp UsedUp
	Lease      LeaseRule

	// Allocation.
	Hold time.Duration
}

// A Disclose tells what refusals say of a node.
type Disclose int

// What refusals say. DiscloseUnset is usage inside the caller's own tree.
const (
	DiscloseUnset Disclose = iota
	DiscloseNames
	DiscloseUsage
)

// A ResetKind is one way for a quota to start again.
type ResetKind int

// The ways to start again.
const (
	CalendarHour ResetKind = iota + 1
	CalendarDay
	CalendarWeek // starts on Monday (ISO 8601)
	CalendarMonth
	CalendarYear
	CalendarBilling // months that start on the anchor day
	Cron
	Every
	AfterFirstUse
)

// A Reset tells when a quota starts again.
type Reset struct {
	Kind ResetKind
	// Anchor is the day of the month, 1 to 31, that a billing window starts
	// on; in shorter months their last day.
	Anchor int
	// Zone is the zone written in the limit; nil: the tenant's, else the app's.
	Zone     *time.Location
	Schedule string        // Cron
	Length   time.Duration // Every, AfterFirstUse
	From     time.Time     // Every
	// Times is how many units of the calendar a window lasts; 0 is 1. Of rate limit
	// descriptors alone.
	Times int
}

// UsedUp tells what happens when a quota's units run out.
type UsedUp struct {
	// Count lets everything on and keeps counting.
	Count bool
	// Grace is how far past the amount requests are let on, in hundredths of
	// a percent of the amount. 0: not at all.
	Grace int64
}

// A LeaseRule tunes the leases of a quota. Decoding fills in the defaults.
type LeaseRule struct {
	First       int64         // 10
	MaxShare    int64         // hundredths of a percent of the amount: 1000
	Demand      time.Duration // 10 s
	RenewAtUsed int64         // hundredths of a percent of the lease: 7000
	RenewAfter  time.Duration // 45 s
	UsableFor   time.Duration // 60 s
	ReportEvery time.Duration // 0: with the renewals
	// Wait is how long a request may wait for a lease; 0: the replica's lease-wait.
	Wait time.Duration
	// ExactBelow is the share of the amount, in hundredths of a percent, that is
	// lent at its end only as it is spent.
	ExactBelow int64
}
