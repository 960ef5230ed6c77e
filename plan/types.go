package plan

import "time"

// APIVersion is the only document version that this package reads.
const APIVersion = "mete/v1"

// MaxAmount is the largest amount a document may hold: RFC 9651 Integers, which
// the RateLimit fields are made of, stop there. Everything up to it is exact.
const MaxAmount = 999_999_999_999_999

// MaxDepth is how many nodes a path may have, the tenant and its root included.
const MaxDepth = 8

// A Kind tells what a document is. Kinds are spelled as in documents.
type Kind string

// The kinds of documents.
const (
	KindApp        Kind = "App"
	KindPlan       Kind = "Plan"
	KindRoutes     Kind = "Routes"
	KindTenant     Kind = "Tenant"
	KindCredential Kind = "Credential"
	KindWebhook    Kind = "Webhook"
	// KindRateLimits is a document of rate limit descriptors. It does not say its kind.
	KindRateLimits Kind = "RateLimits"
)

// A Document is one decoded document. Exactly one of the pointers is set, the
// one that Kind names. A Document is never changed once decoded.
type Document struct {
	Kind        Kind
	Name        string
	Labels      map[string]string
	Annotations map[string]string

	App        *App
	Plan       *Plan
	Routes     *Routes
	Tenant     *Tenant
	Credential *Credential
	Webhook    *Webhook
	RateLimits *RateLimits

	// Text is the document as it was written, comments included.
	Text []byte

	file  string
	root  *node // nil once it is in a Catalog, of kinds that are many
	lines int   // of its file before it
}

// An App is one API behind Envoy.
type App struct {
	Name     string
	TimeZone *time.Location

	// NeverValid tells why no version of the App is in force ("app api has never been
	// valid"). Then it only stands in for one: it has no limits and no identity, and
	// Defaults.OnUnavailable decides.
	NeverValid string

	// Domain is the rate limit domain whose descriptors run this app's
	// decision; Hosts are the authorities that belong to the app, exact or
	// with a leading "*."; AllOtherHosts stands for those that no app lists.
	Domain string
	Hosts  []string

	Units    []Unit // units beside "requests"
	Identity Identity
	Count    Count
	// Attribution is a request header, in lower case, whose value usage is
	// attributed to besides the tenant, such as a pipeline's id (C59); "": none.
	Attribution string
	Paths       Paths
	Defaults    Defaults
	Headers     Headers
	Refusal     Refusal
}

// DefaultUnit is the unit of a limit that names none.
const DefaultUnit = "requests"

// A Unit is something that limits count beside requests.
type Unit struct {
	Name  string
	Title string
	// Registered is the name in the RateLimit unit registry, if it has one:
	// "requests", "content-bytes" or "concurrent-requests".
	Registered string
}

// Identity tells how an app learns who calls.
type Identity struct {
	// Tenant and Principal are tried in order; the first source that is
	// present in the request decides, valid or not.
	Tenant    []Source
	Principal []Source
	// WithoutTenant decides for requests with no identity and for tenants
	// that nobody declared and no default plan covers. Deny is the default.
	WithoutTenant Choice
	Classes       []Class // first match wins
	SignedHeaders []SignedHeader
}

// A SignedHeader is a request header by which a service tells that it calls on behalf
// of a user whose own call was counted already: a token that it has signed (C8, C9).
type SignedHeader struct {
	Name    string // in lower case
	Callers []SigningCaller
}

// A SigningCaller is a service whose tokens are honoured.
type SigningCaller struct {
	Name string // the token's "iss"
	// Keys are the Ed25519 public keys that its tokens may be signed with, so that
	// one can be replaced by another.
	Keys [][]byte
	// PeerSPIFFE must match the principal of the connection's client certificate;
	// "": no condition.
	PeerSPIFFE string
}

// A SourceKind tells where a value comes from.
type SourceKind int

// The sources of an identity, and after them those of a number of used units.
const (
	SourceNone             SourceKind = iota
	SourceAPIKey                      // a request header that holds an API key; for "authorization" the Bearer token
	SourceRequestHeader               // a request header that the app trusts
	SourceJWTClaim                    // a claim in the metadata of Envoy's jwt_authn filter
	SourceMetadata                    // "namespace:path" in Envoy's request metadata
	SourcePeerSPIFFE                  // the principal of the client certificate, matched by a pattern
	SourceContextExtension            // a context extension of the Envoy route
	SourceClientAddress               // the address that Envoy says the client has

	SourceResponseHeader  // a header of the response
	SourceResponseTrailer // a trailer of the response
	SourceReport          // what the app reports by QuotaService.Settle
)

// A Source is one place that a value may come from.
type Source struct {
	Kind SourceKind
	// Name is the header (lower case), claim or extension; for SourceMetadata
	// the namespace; for SourcePeerSPIFFE the pattern ("*" stands for any run
	// of characters, unless Peer has groups).
	Name string
	// Path leads to the value inside a claim or metadata: the parts of the
	// written name between dots.
	Path []string

	Peer    PeerPattern   // of a SourcePeerSPIFFE with groups
	Address AddressPrefix // of a SourceClientAddress
	As      Shape         // how the value becomes a name
}

// A Class groups credentials: people, automation, services.
type Class struct {
	Name string
	// The conditions, all of which must hold; a class with none matches always.
	CredentialPrefix []string
	JWTClaimPresent  []string // path of the claim; nil: no condition
	PeerSPIFFE       string   // pattern; "": no condition
	SignedHeader     string   // a SignedHeader's name whose token must hold; "": no condition

	// StillSpends are units that requests of this class spend, and are refused for,
	// although it is free (C11).
	StillSpends []string

	Meter  bool // false: its requests cost nothing
	Check  bool // false: its requests are never refused
	Reason string
}

// A Choice is what happens where no decision is possible.
type Choice int

// The choices. ChoiceUnset takes the next wider default.
const (
	ChoiceUnset Choice = iota
	Allow
	Deny
)

// An AllowCap bounds what each replica lets on of one tenant's limit while etcd is
// away. The zero AllowCap bounds nothing.
type AllowCap struct {
	Units int64         // 0: any number
	For   time.Duration // 0: for ever
}

// A Spread tells what a rate limit means on several replicas.
type Spread int

// The spreads. SpreadUnset takes the app's default.
const (
	SpreadUnset Spread = iota
	Full               // each replica enforces the whole limit
	Split              // each replica enforces limit / live replicas, rounded up, at least 1
)

// Defaults hold where a tenant or limit says nothing.
type Defaults struct {
	Plan          string // plan of tenants that have none; "": none
	OnUnavailable Choice // never ChoiceUnset after decoding: Allow unless written
	Replicas      Spread // never SpreadUnset after decoding: Full unless written
}

// An Advertise tells when the RateLimit fields are sent.
type Advertise int

// When RateLimit and RateLimit-Policy are sent.
const (
	Always Advertise = iota
	Near             // once a limit has less than a fifth left, and on refusals
	OnDenial
	Never
)

// A ResetForm tells how X-RateLimit-Reset is written.
type ResetForm int

// The forms of X-RateLimit-Reset; XOff sends no X-RateLimit fields.
const (
	XOff   ResetForm = iota
	XEpoch           // seconds since 1970
	XDelta           // seconds to go
)

// Headers tells which response headers an app sends.
type Headers struct {
	RateLimit  Advertise
	XRateLimit ResetForm
	XQuota     bool
	// RateLimitName and PolicyName are the names of the two draft fields, in
	// lower case: "ratelimit" and "ratelimit-policy" unless written.
	RateLimitName, PolicyName string
	// RetryJitter is the most that is added to Retry-After, at random.
	RetryJitter time.Duration
	// RetryMost is the most that Retry-After ever says; 0: what is true.
	RetryMost time.Duration
	// XEnvoyRateLimited adds x-envoy-ratelimited to refusals, which stops
	// Envoys downstream from retrying. True unless written.
	XEnvoyRateLimited bool
}

// A BodyForm is the shape of a refusal's body.
type BodyForm int

// The shapes of a refusal's body.
const (
	BodyFull     BodyForm = iota // the superset object; problem+json where Accept asks for it
	BodyShort                    // {"error":..., "retry_after":...}
	BodyEnvelope                 // {"success":false,"code":...,"message":...,"details":{...}}
	BodyTemplate                 // Refusal.Template
	BodyOpenAI                   // {"error":{"message":...,"type":...,"param":null,"code":...}}
)

// Refusal tells what a refused HTTP caller reads. Status and headers stay.
type Refusal struct {
	Body        BodyForm
	Template    string // placeholders ${error}, ${code}, ${message}, ${limit}, ${node}, ${amount}, ${used}, ${remaining}, ${resets_at}, ${retry_after}, ${decision}, ${upgrade_url}
	ContentType string // of the template; "application/json" unless written
}

// A Tenant is a node of the tree of those who pay.
type Tenant struct {
	Name          string
	Parent        string // "": a root
	App           string // "": any
	Plan          string // "": the parent's, else the app's default
	PoolRoot      bool   // usage counts at the root of the path alone
	TimeZone      *time.Location
	BillingAnchor int // 0: the limit's own
	Overrides     []Override
	Limits        []Limit
	Created       string
	Payment       string
}

// An Override changes one limit.
type Override struct {
	Limit  string
	Amount *int64
	Burst  *int64
	Remove bool
	// Unlimited: written "amount: unlimited"; then Amount is nil.
	Unlimited bool
	Until     time.Time // zero: for ever
	Reason    string
	Ticket    string
}

// A Hash is the SHA-256 of an API key.
type Hash [32]byte

// A Credential is an API key as the store knows it: by its hash alone.
type Credential struct {
	Hash      Hash
	Tenant    string
	Principal string
	Class     string    // "": by the app's class rules
	Prefix    string    // the first characters of the key, up to its last "_", for class rules
	Expires   time.Time // zero: never
	Disabled  bool
}

// A Webhook is where notices go.
type Webhook struct {
	Name       string
	URL        string
	Events     []string
	SecretFile string
	SecretEnv  string
	Disabled   bool
}
