package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/meteproject/mete/test/rig"
)

// tightAmount is the amount of the tenants whose quota is used up, and what a request
// for /fill takes of it.
const tightAmount = 100

// outcomesDocuments are the documents that all cells of an app share. Count is the
// app's, "" for the default.
func outcomesDocuments(app, count string) map[string]string {
	quota := func(name, unit, amount, more string) (key, text string) {
		return "plans/" + name, document("Plan", name, fmt.Sprintf("  limits:\n    monthly: {kind: quota, amount: %s, unit: %s, reset: {calendar: year}%s}", amount, unit, more))
	}
	docs := map[string]string{}
	for _, plan := range [][4]string{
		{"roomy", "requests", "1000000", ""},
		{"roomy-credits", "credits", "1000000", ""},
		{"tight", "requests", "100", ""},
		{"tight-credits", "credits", "100", ""},
		{"grace", "requests", "100", ", when_used_up: {grace: 100%}"},
		{"edge-full", "requests", "0", ""},
	} {
		key, text := quota(plan[0], plan[1], plan[2], plan[3])
		docs[key] = text
	}
	rules := "    - {name: fill, match: {path: /fill}, weight: 100, units: {credits: {reserve: 100}}}\n"
	for _, c := range columns {
		if c.rule != "" {
			rules += fmt.Sprintf("    - {name: %s, match: {path_prefix: /%s}, %s}\n    - {name: %s_calls, match: {grpc_method: %s.Outcomes/Call}, %s}\n",
				c.name, c.name, c.rule, c.name, c.name, c.rule)
		}
	}
	if count != "" {
		count = "\n  count: " + count
	}
	docs["apps/"+app] = document("App", app, "  time_zone: UTC\n  envoy: {hosts: ["+app+".outcomes.test]}\n  units: {credits: {title: credits}}\n"+
		"  identity: {tenant: [{api_key: x-api-key}]}"+count)
	docs["routes/"+app] = document("Routes", app, "  app: "+app+"\n  rules:\n"+rules)
	return docs
}

// edgeDocuments are those of the app that Envoy's rate limit filter asks for.
func edgeDocuments() map[string]string {
	return map[string]string{
		"apps/edge":                document("App", "edge", "  time_zone: UTC\n  envoy: {domain: outcomes-edge, hosts: [edge.test]}\n  identity: {tenant: [{request_header: x-tenant}]}"),
		"tenants/edge:full":        document("Tenant", "edge:full", "  plan: edge-full\n  app: edge"),
		"tenants/edge:open":        document("Tenant", "edge:open", "  plan: roomy\n  app: edge"),
		"tenants/edge:open-failed": document("Tenant", "edge:open-failed", "  plan: roomy\n  app: edge"),
	}
}

// tenantOf are the documents of a tenant of its own.
func tenantOf(docs map[string]string, app, tenant, key, plan string) {
	docs["tenants/"+tenant] = document("Tenant", tenant, "  app: "+app+"\n  plan: "+plan)
	docs["credentials/"+hash(key)] = document("Credential", hash(key), "  tenant: "+tenant)
}

// publish writes documents, what others name first, and returns once all replicas have
// them in force: they are read in the order in which they were written.
func (s *stage) publish(ctx context.Context, app string, docs map[string]string) error {
	lastKey := "mk_last_" + app
	docs["tenants/last:"+app] = document("Tenant", "last:"+app, "  app: "+app) // without a plan: its requests are not counted
	docs["credentials/"+hash(lastKey)] = document("Credential", hash(lastKey), "  tenant: last:"+app)
	var ops []clientv3.Op
	for _, kind := range []string{"apps/", "plans/", "routes/", "tenants/", "credentials/"} {
		for key, text := range docs {
			if strings.HasPrefix(key, kind) && key != "credentials/"+hash(lastKey) {
				ops = append(ops, clientv3.OpPut("/mete/v1/"+key, text))
			}
		}
	}
	ops = append(ops, clientv3.OpPut("/mete/v1/credentials/"+hash(lastKey), docs["credentials/"+hash(lastKey)]))
	for batch := range slices.Chunk(ops, 100) {
		if _, err := s.etcd.Txn(ctx).Then(batch...).Commit(); err != nil {
			return err
		}
	}
	var errs []error
	for _, m := range s.replicas {
		errs = append(errs, awaitKey(ctx, m, app+".outcomes.test", lastKey))
	}
	rejected, err := s.etcd.Get(ctx, "/mete/v1/status/", clientv3.WithPrefix())
	if err != nil {
		return err
	}
	for _, kv := range rejected.Kvs {
		errs = append(errs, fmt.Errorf("%s: %s", kv.Key, kv.Value))
	}
	return errors.Join(errs...)
}

// awaitKey returns once a replica lets a key on.
func awaitKey(ctx context.Context, m *rig.Mete, host, key string) error {
	conn, err := grpc.NewClient(m.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	for ; ; time.Sleep(10 * time.Millisecond) {
		r, err := authv3.NewAuthorizationClient(conn).Check(ctx, &authv3.CheckRequest{Attributes: &authv3.AttributeContext{
			Request: &authv3.AttributeContext_Request{Http: &authv3.AttributeContext_HttpRequest{
				Method: http.MethodGet, Host: host, Path: "/await", Headers: map[string]string{"x-api-key": key},
			}},
		}})
		if err == nil && r.GetOkResponse() != nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("documents are not in force: %v: %w", r.GetDeniedResponse(), errors.Join(err, ctx.Err()))
		}
	}
}
