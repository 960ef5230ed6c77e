package store

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode/utf8"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/quota"
)

// Keys. Old processes read them during a rollout, so kinds may be added but never
// changed.
//
//	/mete/v1/KIND/NAME                               what somebody wants; of ratelimits, slashes of NAME stay
//	/mete/v1/effective/KIND/NAME                     what is enforced
//	/mete/v1/status/KIND/NAME                        why it is not what somebody wants
//	/mete/v1/epoch                                   random id of this store
//	/mete/v1/state/accounts/HH/TENANT/LIMIT/WINDOW   one mete.v1.Account
//	/mete/v1/state/used/APP                          the app has recorded usage
//	/mete/v1/state/versions/TENANT                   its revision voids older leases
//	/mete/v1/state/replicas/INCARNATION              presence
//	/mete/v1/state/liable/INCARNATION                may still hold units
//	/mete/v1/state/recalls/HH/TENANT/LIMIT/WINDOW    units are wanted back
//	/mete/v1/state/jobs/NAME                         whose turn it is, and where
//	/mete/v1/state/later/RULE                        what the rule of a domain is charged are bills
//	/mete/v1/state/tariffs/ID                        what requests cost that a rule of this or an earlier Routes admitted
//	/mete/v1/state/seals/ID                          a key that seals reservations
const (
	Prefix = "/mete/v1/"

	// EpochKey holds the random id of this store.
	EpochKey = Prefix + "epoch"
	// EffectivePrefix and StatusPrefix precede KIND/NAME.
	EffectivePrefix = Prefix + "effective/"
	StatusPrefix    = Prefix + "status/"
	// AccountsPrefix precedes HH/TENANT/LIMIT/WINDOW.
	AccountsPrefix = statePrefix + "accounts/"
	// ReplicasPrefix and LiablePrefix precede the incarnation.
	ReplicasPrefix = statePrefix + "replicas/"
	LiablePrefix   = statePrefix + "liable/"
	// RecallsPrefix precedes HH/TENANT/LIMIT/WINDOW, as AccountsPrefix does.
	RecallsPrefix = statePrefix + "recalls/"
	// JobsPrefix precedes the name of a job that replicas take turns at.
	JobsPrefix = statePrefix + "jobs/"
	// SweepKey tells which shards are swept next.
	SweepKey = JobsPrefix + "sweep"
	// SealsKey is put together with each new seal key: the replica that moves it makes one.
	SealsKey = JobsPrefix + "seals"
	// SealsPrefix precedes the id of a seal key, 8 lower-case hex digits. Its value is
	// JSON: key, the base64 of 16 bytes, which is a secret, and made, when that was by
	// the clock of who made it. Fields that a version does not know it ignores.
	SealsPrefix = statePrefix + "seals/"

	statePrefix = Prefix + "state/"
	usedPrefix  = statePrefix + "used/"
	// versionsPrefix precedes a tenant.
	versionsPrefix = statePrefix + "versions/"
	// LaterPrefix precedes the path of a rule of a rate limit domain whose charges tell of
	// use that happened. The value is empty.
	LaterPrefix = statePrefix + "later/"
	// TariffsPrefix precedes the id of a tariff, which its value says as documents do; see
	// [plan.Tariff].
	TariffsPrefix = statePrefix + "tariffs/"
	// stateEnd is the first key after all of state: '0' follows '/'.
	stateEnd = Prefix + "state0"
	// prefixEnd is the first key after all keys.
	prefixEnd = "/mete/v10"
)

// folder returns the key segment of a kind; "" for kinds that have none.
func folder(k plan.Kind) string {
	switch k {
	case plan.KindApp:
		return "apps"
	case plan.KindPlan:
		return "plans"
	case plan.KindRoutes:
		return "routes"
	case plan.KindTenant:
		return "tenants"
	case plan.KindCredential:
		return "credentials"
	case plan.KindWebhook:
		return "webhooks"
	case plan.KindRateLimits:
		return "ratelimits"
	}
	return ""
}

// Kinds returns all kinds of documents, in the order in which they depend on each
// other.
func Kinds() []plan.Kind {
	return []plan.Kind{
		plan.KindApp, plan.KindPlan, plan.KindRoutes,
		plan.KindTenant, plan.KindCredential, plan.KindWebhook, plan.KindRateLimits,
	}
}

// kindOf is the inverse of folder.
func kindOf(segment string) (plan.Kind, bool) {
	for _, k := range [...]plan.Kind{
		plan.KindTenant, plan.KindCredential, // by far the most
		plan.KindApp, plan.KindPlan, plan.KindRoutes, plan.KindWebhook, plan.KindRateLimits,
	} {
		if folder(k) == segment {
			return k, true
		}
	}
	return "", false
}

// DocumentPrefix returns what the keys of all documents of a kind begin with.
func DocumentPrefix(k plan.Kind) string { return Prefix + folder(k) + "/" }

// DocumentKey returns the key that people write the document to.
func DocumentKey(k plan.Kind, name string) string { return DocumentPrefix(k) + escapeName(k, name) }

// EffectiveKey returns the key of the document's last valid text.
func EffectiveKey(k plan.Kind, name string) string {
	return EffectivePrefix + folder(k) + "/" + escapeName(k, name)
}

// StatusKey returns the key that tells why the document's newest edit is rejected.
func StatusKey(k plan.Kind, name string) string {
	return StatusPrefix + folder(k) + "/" + escapeName(k, name)
}

// ParseDocumentKey is the inverse of DocumentKey. A key that DocumentKey cannot
// have made is not a document: plans/pro/notes is not the plan pro.
func ParseDocumentKey(key string) (plan.Kind, string, bool) { return parseUnder(Prefix, key) }

// parseUnder reads KIND/NAME after prefix.
func parseUnder(prefix, key string) (plan.Kind, string, bool) {
	rest, under := strings.CutPrefix(key, prefix)
	if !under {
		return "", "", false
	}
	segment, escaped, _ := strings.Cut(rest, "/")
	kind, known := kindOf(segment)
	name, canonical := unescapeName(kind, escaped)
	if !known || !canonical || name == "" {
		return "", "", false
	}
	return kind, name, true
}

// escapeName makes the name of a document the end of a key. Slashes in the names of
// domains, such as shop/eg/http, stay, so that people and gateways can type them.
func escapeName(k plan.Kind, name string) string {
	if k != plan.KindRateLimits || !strings.Contains(name, "/") {
		return escape(name)
	}
	segments := strings.Split(name, "/")
	for i := range segments {
		segments[i] = escape(segments[i])
	}
	return strings.Join(segments, "/")
}

// unescapeName is the inverse of escapeName; false if that cannot have made s.
func unescapeName(k plan.Kind, s string) (string, bool) {
	if k != plan.KindRateLimits {
		return unescape(s)
	}
	segments := strings.Split(s, "/")
	for i := range segments {
		name, canonical := unescape(segments[i])
		if !canonical || strings.Contains(name, "/") {
			return "", false
		}
		segments[i] = name
	}
	return strings.Join(segments, "/"), true
}

// AccountKey returns the key of an account.
func AccountKey(k quota.Key) string {
	return AccountPrefix(k.Root, k.Tenant) + escape(k.Limit) + "/" + escape(k.Window)
}

// SameAccount reports whether two keys name one account: trees in one shard share it.
func SameAccount(a, b quota.Key) bool { return AccountKey(a) == AccountKey(b) }

// AccountPrefix returns what the keys of all accounts of a tenant begin with.
func AccountPrefix(root, tenant string) string {
	return AccountsPrefix + shard(root) + "/" + escape(tenant) + "/"
}

// ParseAccountKey is the inverse of AccountKey, but for the root, of which a key
// holds only the shard.
func ParseAccountKey(key string) (quota.Key, bool) { return parseAccount(AccountsPrefix, key) }

// RecallKey returns the key that asks for the units of an account.
func RecallKey(k quota.Key) string {
	return RecallsPrefix + strings.TrimPrefix(AccountKey(k), AccountsPrefix)
}

// ParseRecallKey is the inverse of RecallKey, but for the root, of which a key holds
// only the shard.
func ParseRecallKey(key string) (quota.Key, bool) { return parseAccount(RecallsPrefix, key) }

// parseAccount reads HH/TENANT/LIMIT/WINDOW after prefix.
func parseAccount(prefix, key string) (quota.Key, bool) {
	rest, under := strings.CutPrefix(key, prefix)
	parts := strings.Split(rest, "/")
	if !under || len(parts) != 4 || len(parts[0]) != 2 {
		return quota.Key{}, false
	}
	var k quota.Key
	for i, to := range []*string{&k.Tenant, &k.Limit, &k.Window} {
		name, canonical := unescape(parts[i+1])
		if !canonical {
			return quota.Key{}, false
		}
		*to = name
	}
	return k, true
}

// UsedKey returns the key that exists once an app has recorded usage.
func UsedKey(app string) string { return usedPrefix + escape(app) }

func liableKey(incarnation string) string  { return LiablePrefix + escape(incarnation) }
func replicaKey(incarnation string) string { return ReplicasPrefix + escape(incarnation) }

// limitsInForce returns what the keys of all rate limits in force begin with.
func limitsInForce() string { return EffectivePrefix + folder(plan.KindRateLimits) + "/" }

// guardKey returns the key whose revision a guard is about: what is enforced of the
// published kinds, and the document itself of the others.
func guardKey(g quota.Guard) string {
	kind := plan.Kind(g.Kind)
	if Published(kind) {
		return EffectiveKey(kind, g.Name)
	}
	return DocumentKey(kind, g.Name)
}

// Published reports whether documents of a kind are enforced from their copy under
// effective/, rather than from the key that people write.
func Published(k plan.Kind) bool {
	return k == plan.KindApp || k == plan.KindPlan || k == plan.KindRoutes || k == plan.KindRateLimits
}

// shards is how many there are.
const shards = 256

// shardPrefix returns what the keys of all accounts of one shard begin with.
func shardPrefix(n int) string {
	return AccountsPrefix + hex.EncodeToString([]byte{byte(n % shards)}) + "/" //nolint:gosec // below 256
}

// shard returns two hex digits, so that a tree of tenants stays together and 256
// ranges of keys can be moved apart.
func shard(root string) string {
	sum := sha256.Sum256([]byte(root))
	return hex.EncodeToString(sum[:1])
}

const hexDigits = "0123456789ABCDEF"

// escape makes s one segment of a key. Different strings stay different, and
// printable text without '/', '%' and spaces stays as it is, so that people can
// type it.
func escape(s string) string {
	if isSimple(s) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if plain(r, n) {
			b.WriteString(s[i : i+n])
		} else {
			for _, c := range []byte(s[i : i+n]) {
				b.Write([]byte{'%', hexDigits[c>>4], hexDigits[c&15]})
			}
		}
		i += n
	}
	return b.String()
}

// isSimple reports whether s, like nearly all names, is its own escaped form: ASCII
// without anything to escape.
func isSimple(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf || !plain(rune(s[i]), 1) {
			return false
		}
	}
	return true
}

func plain(r rune, size int) bool {
	switch {
	case r == utf8.RuneError && size == 1: // not UTF-8
		return false
	case r <= ' ' || r == '/' || r == '%' || r == 0x7f:
		return false
	}
	return true
}

// unescape is the inverse of escape; false if escape cannot have made s.
func unescape(s string) (string, bool) {
	if isSimple(s) {
		return s, true
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b.WriteByte(s[i])
			continue
		}
		if i+2 >= len(s) {
			return "", false
		}
		c, err := hex.DecodeString(s[i+1 : i+3])
		if err != nil {
			return "", false
		}
		b.Write(c)
		i += 2
	}
	raw := b.String()
	return raw, escape(raw) == s
}
