package authz_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store/storetest"
)

// movingDesk is a desk of a tenant below org:a, whose trees share accounts or do not.
func movingDesk(t *testing.T, m *storetest.Memory, holder string) *desk {
	t.Helper()
	return movingDeskOf(t, m, holder, "amount: 10000")
}

// movingDeskOf is movingDesk with a limit of the tenant's own.
func movingDeskOf(t *testing.T, m *storetest.Memory, holder, limit string) *desk {
	t.Helper()
	docs := app("units: {tokens: {title: tokens}}\n") +
		planDoc("user", "tokens: {kind: quota, "+limit+", unit: tokens, reset: {calendar: month}}") +
		planDoc("org", "tokens: {kind: quota, amount: 50000, unit: tokens, cascade: true, reset: {calendar: month}}") +
		tenantDoc("org:old", "{plan: org}") + tenantDoc("org:new", "{plan: org}") +
		tenantDoc("user:u", `{plan: user, parent: "org:old"}`) + routesDoc(settleDocs)
	return newDeskOf(t, m, holder, docs, authz.Config{Process: uint64(holder[1])}, quota.KeeperConfig{
		SameAccount: func(quota.Key, quota.Key) bool { return !m.Trees },
	}).seals()
}

func (k *desk) move(to string) {
	k.t.Helper()
	k.put(tenantDoc("user:u", `{plan: user, parent: "`+to+`"}`))
}

// accounts returns what is used of each account, by root and tenant, once all is reported.
func (k *desk) accountsByRoot() map[string]int64 {
	k.t.Helper()
	time.Sleep(5 * time.Minute)
	synctest.Wait()
	all := map[string]int64{}
	for _, key := range k.memory.Accounts() {
		a := k.memory.Account(key)
		all[key.Root+" "+key.Tenant] = a.Used()
		if a.Leased() != 0 {
			k.t.Errorf("%v: %d are leased still", key, a.Leased())
		}
	}
	return all
}

func userChat() authz.Request {
	r := from("user:u")
	r.Path = "/chat"
	return r
}

// A settlement finds the account that was charged, whichever tree its tenant is in since,
// with requests after the move or without, and back again.
func TestSettle_A26_ATenantThatMoves(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		trees   bool // in different shards
		after   bool // a request comes after the move
		back    bool // and the tenant goes back
		another bool // the log reaches another replica, which settles in place of the first
		want    string
	}{
		"no request after":   {trees: true, want: "map[org:old org:old:7 org:old user:u:7]"},
		"a request after":    {trees: true, after: true, want: "map[org:new org:new:5 org:new user:u:5 org:old org:old:7 org:old user:u:7]"},
		"and back":           {trees: true, after: true, back: true, want: "map[org:new org:new:5 org:new user:u:5 org:old org:old:10 org:old user:u:10]"},
		"another replica":    {trees: true, after: true, another: true, want: "map[org:new org:new:5 org:new user:u:5 org:old org:old:7 org:old user:u:7]"},
		"in the same shard":  {after: true, want: "map[ org:new:5  org:old:7  user:u:12]"},
		"there and back":     {after: true, back: true, want: "map[ org:new:5  org:old:10  user:u:15]"},
		"in it, elsewhere":   {after: true, another: true, want: "map[ org:new:5  org:old:7  user:u:12]"},
		"in it, and no more": {want: "map[ org:old:7  user:u:7]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := &storetest.Memory{Trees: c.trees}
				k := movingDesk(t, m, "r1")
				settles := k
				first, failed := k.token(k.must(userChat(), authz.Allowed)), k.token(k.must(userChat(), authz.Allowed))
				k.move("org:new")
				if c.after {
					k.end(k.token(k.must(userChat(), authz.Allowed)), tells(200, "x-usage", "2"))
					time.Sleep(time.Minute)
					k.end(k.token(k.must(userChat(), authz.Allowed)), tells(200, "x-usage", "3"))
				}
				if c.another {
					settles = movingDesk(t, m, "r2")
					settles.move("org:new")
					settles.end(settles.token(settles.must(userChat(), authz.Allowed)), tells(500, "", ""))
				}
				if got := settles.end(first, tells(200, "x-usage", "7")); got != authz.SettledLess {
					t.Errorf("settled %q", got.Word())
				}
				if got := settles.end(failed, tells(500, "", "")); got != authz.SettledFree {
					t.Errorf("what failed is settled %q", got.Word())
				}
				if c.back {
					k.move("org:old")
					for range 3 {
						k.end(k.token(k.must(userChat(), authz.Allowed)), tells(200, "x-usage", "1"))
						time.Sleep(20 * time.Second)
					}
				}
				if got := fmt.Sprint(k.accountsByRoot()); got != c.want {
					t.Errorf("used %s, want %s", got, c.want)
				}
			})
		})
	}
}

// What is settled late, before the first request that comes after the move, does not take
// the requests along to the tree that was left, though nothing makes them wait.
func TestSettle_A26_BeforeTheFirstRequestAfterAMove(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{Trees: true}
		k := movingDeskOf(t, m, "r1", "amount: 10000, when_used_up: count")
		first := k.token(k.must(userChat(), authz.Allowed))
		time.Sleep(time.Minute)
		other := movingDeskOf(t, m, "r2", "amount: 10000, when_used_up: count")
		other.move("org:new")
		other.end(first, tells(200, "x-usage", "7"))
		other.end(other.token(other.must(userChat(), authz.Allowed)), tells(200, "x-usage", "5"))
		k.move("org:new")
		want := "map[org:new org:new:5 org:new user:u:5 org:old org:old:7 org:old user:u:7]"
		if got := fmt.Sprint(other.accountsByRoot()); got != want {
			t.Errorf("used %s, want %s", got, want)
		}
	})
}
