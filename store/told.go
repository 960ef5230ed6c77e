package store

import (
	"strings"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/quota"
)

// told returns what errors and logs say of an account: its key, but of a descriptor's
// counter no values, for those are what Envoy has read from requests, API keys maybe.
func told(k quota.Key) string { return toldOf(AccountKey(k)) }

// toldOf is told of the key of an account or a recall.
func toldOf(key string) string {
	for _, parse := range []func(string) (quota.Key, bool){ParseAccountKey, ParseRecallKey} {
		k, ok := parse(key)
		if _, counter := plan.ParseAccount(k.Limit); ok && counter {
			domain, _, _ := strings.Cut(k.Tenant, "?")
			return strings.Replace(key, "/"+escape(k.Tenant)+"/", "/"+escape(domain)+"?.../", 1)
		}
	}
	return key
}
