package plan

// A feature is something that documents may say and this version does not
// enforce. It is read and checked in full and then refused, so that nobody
// relies on a rule that does nothing. A version that learns one drops its line
// here and the call that reports it.
type feature int

const (
	resetCron feature = iota
	resetEvery
	resetAfterFirstUse
	kindAllocation
	planNotices
	planIncreases
	kindWebhook
	partitionKey
	leaseSettleAfter
)

func (f feature) message() string {
	const not = " by this version; "
	switch f {
	case resetCron:
		return "quota resets by cron are not enforced" + not + "use calendar"
	case resetEvery:
		return "quota resets every so often are not enforced" + not + "use calendar"
	case resetAfterFirstUse:
		return "quota resets after first use are not enforced" + not + "use calendar"
	case kindAllocation:
		return "allocations are not enforced" + not + "use rate or quota"
	case planNotices:
		return "notices are not sent" + not + "leave them out"
	case planIncreases:
		return "increases are not handled" + not + "raise a limit by an override of the tenant"
	case kindWebhook:
		return "webhooks are not called" + not + "leave the document out"
	case partitionKey:
		return "partition keys are not sent" + not + "write off or leave it out"
	case leaseSettleAfter:
		return "any other settle_after than 30m is not enforced" + not + "write 30m or leave it out"
	}
	return "is not enforced" + not + "leave it out"
}
