package quota

// A Cause is one way in which a tenant can use more than its quota. The list is
// closed (A50): there is no other way, and each has its own count.
type Cause string

// The causes of overshoot.
const (
	// UnderReserved: a request used more than it had reserved (A43).
	UnderReserved Cause = "under_reserved"
	// TermsChange: a lease from before a change of terms was still spent from (A44).
	TermsChange Cause = "terms_change"
	// ReplicaLost: a replica died with use that it had not reported, whose
	// units were lent again (A45, A46).
	ReplicaLost Cause = "replica_lost"
	// LongRequest: a request outlived the lease that it was admitted under (A48).
	LongRequest Cause = "long_request"
	// UnavailableStore: etcd did not answer and the limit says allow (A49).
	UnavailableStore Cause = "unavailable"
	// QueuedLease: so many asked for leases at once that etcd was not asked in time,
	// and the limit says allow.
	QueuedLease Cause = "queued"
)

// Causes returns the closed list.
func Causes() []Cause {
	return []Cause{UnderReserved, TermsChange, ReplicaLost, LongRequest, UnavailableStore, QueuedLease}
}
