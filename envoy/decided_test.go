package envoy_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/protobuf/proto"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/plan"
	accounts "github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store/storetest"
)

const decidedDocuments = `
apiVersion: mete/v1
kind: App
metadata: {name: api}
spec: {time_zone: Europe/Berlin, identity: {tenant: [{api_key: x-api-key}]}}
---
apiVersion: mete/v1
kind: Plan
metadata: {name: free}
spec:
  limits:
    per_second: {kind: rate, amount: 900000000000000, window: 1s}
    per_minute: {kind: rate, amount: 900000000000000, window: 1m}
    monthly: {kind: quota, amount: 900000000000000, reset: {calendar: month}}
---
{apiVersion: mete/v1, kind: Tenant, metadata: {name: "org:acme"}, spec: {plan: free}}
---
{apiVersion: mete/v1, kind: Credential, metadata: {name: "HASH"}, spec: {tenant: "org:acme"}}
`

// BenchmarkCheckDecided is all that mete does for an ext_authz call but HTTP/2:
// decode, decide by two buckets and a purse, encode.
func BenchmarkCheckDecided(b *testing.B) {
	const apiKey = "mk_0123456789abcdefghijklmnopqrstuv"
	keeper := accounts.NewKeeper(accounts.KeeperConfig{Store: storetest.Unguarded(&storetest.Memory{}), Now: time.Now}, "r1")
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = keeper.Run(ctx) }()
	b.Cleanup(func() { cancel(); <-done })

	hash := sha256.Sum256([]byte(apiKey))
	catalog := plan.NewCatalog()
	text := strings.ReplaceAll(decidedDocuments, "HASH", hex.EncodeToString(hash[:]))
	docs, problems := plan.Decode("bench.yaml", []byte(text))
	if plan.Refused(problems) {
		b.Fatal(problems)
	}
	for _, doc := range docs {
		catalog.Put(doc, 1)
	}
	d := authz.New(authz.Config{Keeper: keeper, Now: time.Now})
	d.SetSnapshot(catalog.Snapshot())
	d.SetSeals(authz.SealKey{ID: 1}, nil)

	var m authv3.CheckRequest
	if err := proto.Unmarshal(typicalCheck(b), &m); err != nil {
		b.Fatal(err)
	}
	m.GetAttributes().ContextExtensions = map[string]string{"mete-app": "api"}
	m.GetAttributes().GetRequest().GetHttp().GetHeaders()["x-api-key"] = apiKey
	benchmarkCall(b, d, "check", mustMarshal(b, &m))
}
