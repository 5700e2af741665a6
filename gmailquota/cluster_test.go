package gmailquota_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gmailsync/gmailsync/gmailquota"
	"github.com/gmailsync/gmailsync/gmailquota/quotatest"
)

func clusterClient(t *testing.T, c *quotatest.Cluster) *redis.ClusterClient {
	t.Helper()
	opts, err := gmailquota.RedisOptions(c.URL(), 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	rdb, ok := redis.NewUniversalClient(opts).(*redis.ClusterClient)
	if !ok {
		t.Fatalf("%s makes no client of a cluster", c.URL())
	}
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

func clusterGuard(t *testing.T, c *quotatest.Cluster, change ...func(*gmailquota.Config)) *gmailquota.Guard {
	t.Helper()
	g, err := gmailquota.New(clusterClient(t, c), testConfig(change...))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// PostHog/posthog#60838, redis/go-redis#3228
func TestOnAClusterAllKeysOfAProjectShareASlot(t *testing.T) {
	t.Parallel()
	cluster := quotatest.StartCluster(t, 3)
	rdb := clusterClient(t, cluster)
	ctx := context.Background()
	owners := map[int]bool{}
	for _, project := range []string{"example.com:mail-1", "gmailsync", "p2", "p3", "p4", "p5", "p6", "p7"} {
		g := clusterGuard(t, cluster, func(c *gmailquota.Config) { c.Project = project })
		_, projectKey := g.Keys("")
		slot := rdb.ClusterKeySlot(ctx, projectKey).Val()
		owners[cluster.Owner(slot)] = true
		accounts := []string{"a{b}c", "}{", "ü", "a b\n", "ann@example.com"}
		for i := range 1000 {
			accounts = append(accounts, fmt.Sprint("account-", i))
		}
		for _, account := range accounts {
			key, _ := g.Keys(account)
			if got, err := rdb.ClusterKeySlot(ctx, key).Result(); err != nil || got != slot {
				t.Fatalf("%s is in slot %d (%v), the project in %d", key, got, err, slot)
			}
		}
		for _, account := range accounts[:10] {
			mustAdmit(t, g, account).Release()
		}
		if err := g.Close(ctx); err != nil { // ten users' releases in one script
			t.Fatal(err)
		}
		if s, err := g.Snapshot(ctx, accounts[0]); err != nil || s.InFlight != 0 {
			t.Errorf("%d calls under way, %v", s.InFlight, err)
		}
		if err := rdb.ForEachMaster(ctx, func(ctx context.Context, n *redis.Client) error { return n.ScriptFlush(ctx).Err() }); err != nil {
			t.Fatal(err)
		}
		mustAdmit(t, g, "after the flush")
	}
	if len(owners) < 2 {
		t.Error("all projects are on one node; this test proves little")
	}
}

// While the keys of a project move to another node, a decision is made there, or here, or not at all: a user whose keys
// are not together gets no answer (TRYAGAIN), which is no grant and keeps the others from nothing.
func TestReshardingGrantsNothingTwice(t *testing.T) {
	t.Parallel()
	cluster := quotatest.StartCluster(t, 3)
	const users = 8
	change := func(c *gmailquota.Config) { c.UserLimit, c.ProjectLimit, c.InFlight = 6000, 30_000, 1000 }
	workers := []*gmailquota.Guard{clusterGuard(t, cluster, change), clusterGuard(t, cluster, change)}
	rdb := clusterClient(t, cluster)
	_, projectKey := workers[0].Keys("")
	slot := rdb.ClusterKeySlot(t.Context(), projectKey).Val()

	traffic := startTraffic(t, workers, users)
	for range 4 {
		from := cluster.Owner(slot)
		cluster.Reshard(slot, from, (from+1)%len(cluster.Nodes), func() { traffic.goesOn(32) })
		for user := range users {
			traffic.served(user)
		}
		here, there := cluster.Nodes[cluster.Owner(slot)].Do("CLUSTER", "COUNTKEYSINSLOT", slot), cluster.Nodes[from].Do("CLUSTER", "COUNTKEYSINSLOT", slot)
		if here != int64(users+1) || there != int64(0) {
			t.Errorf("%v keys on the new node and %v on the old one; want all of the %d users and the project", here, there, users)
		}
	}
	traffic.stop()
	traffic.check(0)
	if n := traffic.unavailable.Load(); n == 0 {
		t.Error("no decision met keys that are apart; this test proves nothing")
	} else {
		t.Logf("%d grants, %d decisions without an answer", traffic.grants.Load(), n)
	}
}

// A node that answers that keys are moving is well: the others' calls are not kept away. Nothing is granted.
func TestMovingKeysOpenNoBreaker(t *testing.T) {
	for _, text := range []string{
		"TRYAGAIN Multiple keys request during rehashing of slot", "MOVED 1234 127.0.0.1:1", "ASK 1234 127.0.0.1:1",
	} {
		t.Run(strings.Fields(text)[0], func(t *testing.T) {
			o := newOutage(t)
			o.proxy.Fail(text)
			before := o.proxy.Commands()
			for range 5 {
				mustBeUnavailable(t, o.guard)
			}
			if n := o.proxy.Commands() - before; n != 5 {
				t.Errorf("Redis was asked %d times for 5 calls; want every time", n)
			}
			o.proxy.Pass()
			mustAdmit(t, o.guard, "a")
		})
	}
}

// A node that dies and comes back is asked again, by clients that nobody restarts.
func TestAClusterNodeMayDie(t *testing.T) {
	t.Parallel()
	cluster := quotatest.StartCluster(t, 3)
	g := clusterGuard(t, cluster)
	mustAdmit(t, g, "a").Release()
	rdb := clusterClient(t, cluster)
	_, key := g.Keys("")
	node := cluster.Nodes[cluster.Owner(rdb.ClusterKeySlot(t.Context(), key).Val())]
	node.Kill()
	mustBeUnavailable(t, g)
	node.Restart()
	if _, err := g.Wait(t.Context(), request("a"), time.Minute); err != nil {
		t.Errorf("after the node's return: %v", err)
	}
}
