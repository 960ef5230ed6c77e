package authz_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/quota"
)

var testSeal = authz.SealKey{ID: 7, Key: [16]byte{1, 2, 3}}

// seals makes k seal and believe reservations.
func (k *desk) seals() *desk {
	k.d.SetSeals(testSeal, []authz.SealKey{testSeal})
	return k
}

// token seals a decision.
func (k *desk) token(dec *authz.Decision) string {
	k.t.Helper()
	token := string(k.d.Seal(nil, time.Now(), dec, nil))
	if token == "" {
		k.t.Fatalf("nothing is sealed of %s", show(dec))
	}
	return token
}

// end settles a token by how its request ended.
func (k *desk) end(token string, e authz.Ending) authz.Settled {
	k.t.Helper()
	var r authz.Reservation
	var m authz.Measured
	if bad := k.d.Open(token, &r); bad != 0 {
		return bad
	}
	k.d.Measure(&r, &e, &m)
	return k.d.Settle(time.Now(), &r, &m)
}

// answered is the ending of a request that got a whole answer.
func answered(status int) authz.Ending {
	return authz.Ending{Status: status, GRPC: -1, Reached: true, Response: answer{}}
}

// tells is an answer with a number of units in a header.
func tells(status int, name, value string) authz.Ending {
	e := answered(status)
	e.Response = answer{header: map[string]string{name: value}}
	return e
}

// An answer is what an upstream answered.
type answer struct{ header, trailer, metadata map[string]string }

func (a answer) Header(name string) (string, bool)  { v, ok := a.header[name]; return v, ok }
func (a answer) Trailer(name string) (string, bool) { v, ok := a.trailer[name]; return v, ok }
func (a answer) Lookup(namespace string, path []string) (string, bool) {
	v, ok := a.metadata[namespace+":"+strings.Join(path, ".")]
	return v, ok
}

// used returns what the account of org:a's limit says once all is reported.
func (k *desk) used(limit string) int64 {
	k.t.Helper()
	time.Sleep(3 * time.Minute)
	synctest.Wait()
	return k.accountOf("org:a", limit).Used()
}

func (k *desk) accountOf(tenant, limit string) quota.Account {
	for _, key := range k.memory.Accounts() {
		if key.Tenant == tenant && key.Limit == limit {
			return k.memory.Account(key)
		}
	}
	return quota.Account{}
}

func routesDoc(rules string) string {
	return "\n---\napiVersion: mete/v1\nkind: Routes\nmetadata: {name: api}\nspec:\n  app: api\n  rules:\n" + indent(indent(rules))
}

const settleDocs = `
- {name: heavy, match: {path: /heavy}, weight: 5}
- name: chat
  match: {path: /chat}
  units: {tokens: {reserve: 100, max: 1000, use: [{response_header: x-usage}, {response_trailer: x-usage}, {metadata: "usage:total"}]}}
- name: guess
  match: {path: /guess}
  weight: 3
  units: {tokens: {reserve: 100, use: [{response_header: x-usage}], unreported: weight}}
- name: silent
  match: {path: /silent}
  units: {tokens: {reserve: 100, use: [{response_header: x-usage}], unreported: zero}}
- name: job
  match: {path: /job}
  units: {tokens: {reserve: 100, use: [{response_header: x-usage}, {report: true}]}}
- {name: second, match: {path: /second}, units: {tokens: {reserve: 5}, requests: {reserve: 1, use: [{response_header: x-usage}]}}}
- {name: ingest, match: {path: /ingest}, check: false, reason: telemetry can not be sent again}
- {name: free, match: {path: /free}, meter: false, check: false, reason: costs nothing at all}
`

func settleDesk(t *testing.T, more string) *desk {
	t.Helper()
	return newDesk(t, app("units: {tokens: {title: tokens}}\n"+more)+
		planDoc("free", monthly("1000", "")+"\ntokens: {kind: quota, amount: 10000, unit: tokens, reset: {calendar: month}}")+
		tenantDoc("org:a", "{plan: free}")+routesDoc(settleDocs)).seals()
}

func at(path string) authz.Request {
	r := from("org:a")
	r.Path = path
	return r
}

// tokensDesk is a desk with the routes of settleDocs, whose plan has one limit.
func tokensDesk(t *testing.T, limit string) *desk {
	t.Helper()
	return newDesk(t, app("units: {tokens: {title: tokens}}")+
		planDoc("free", limit)+tenantDoc("org:a", "{plan: free}")+routesDoc(settleDocs)).seals()
}
