package plan

import "time"

// Terms are what holds for one tenant in one app at one moment: its effective
// limits and those of its ancestors.
type Terms struct {
	Tenant string
	App    *App
	Root   string // of the tenant's tree: the tenant itself if it has no parent
	Known  bool   // the tenant has a document
	// Foreign says that the tenant's document names another app.
	Foreign bool
	// Broken says why the terms cannot be known ("plan free has never been
	// valid"); then the app's OnUnavailable decides and Nodes is empty.
	Broken string
	// Nodes are the nodes of the path that have limits to charge, the root
	// first and the tenant last.
	Nodes []NodeTerms
	// Version is the quota version: the highest etcd revision among the
	// documents that the terms were computed from.
	Version int64
	// Until is when the next override ends: the terms hold before it. Zero:
	// until a document changes.
	Until time.Time

	// cascades is what held for limits that do not say it.
	cascades bool
	// tenants are the documents that the path was found by, and the plans of
	// nodes that have nothing to charge now, for Holds.
	tenants []Guard
}

// NodeTerms are the effective limits of one node of a path.
type NodeTerms struct {
	Tenant     string
	Plan       string // "": none
	UpgradeURL string
	// Limits in the order of the plan, the node's own ones after them.
	Limits []EffectiveLimit
	// Guards are the documents that the limits were computed from.
	Guards []Guard
	// Version is the quota version of the node: the highest revision among its
	// guards and Void. Void is the revision of the node's state/versions key,
	// raised to void leases; 0 without one.
	Version, Void int64
}

// An EffectiveLimit is a limit after plan, pattern overrides, the node's own
// limits and overrides, with every default filled in: OnUnavailable, Replicas,
// Unit, Burst and Disclose are never unset.
type EffectiveLimit struct {
	Limit
	// Zone is where the quota's calendar is read: the limit's, else the
	// tenant's, else the app's.
	Zone *time.Location
	// Source tells where the amount comes from: "plan free", "tenant org:acme",
	// "override of plan free", "override of org:acme".
	Source string
	// Charged reports whether a request of the leaf is charged here: always on
	// the leaf, and on an ancestor if this limit cascades.
	Charged bool
}

// A Guard is a document at the revision that was read. Revision 0: the document
// does not exist.
type Guard struct {
	Kind     Kind
	Name     string
	Revision int64
}
