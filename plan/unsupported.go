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
	appCount
	partitionKey
	signedHeader
	leaseSettleAfter
	unitsMax
	unitsUse
	unitsUnreported
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
	case appCount:
		return "counting by status is not enforced" + not + "leave count out, every admitted request counts"
	case partitionKey:
		return "partition keys are not sent" + not + "write off or leave it out"
	case signedHeader:
		return "signed headers are not verified" + not + "use credential_prefix, jwt_claim_present or peer_spiffe_id"
	case leaseSettleAfter:
		return "any other settle_after than 30m is not enforced" + not + "write 30m or leave it out"
	case unitsMax:
		return "max is not enforced" + not + "reserve the most that one request can use"
	case unitsUse:
		return "use is not read" + not + "reserve what a request uses"
	case unitsUnreported:
		return "unreported is not enforced" + not + "leave it out, what was reserved is what is used"
	}
	return "is not enforced" + not + "leave it out"
}
