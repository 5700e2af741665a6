package gmailquota_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/gmailsync/gmailsync/gmailquota"
	"github.com/gmailsync/gmailsync/gmailquota/quotatest"
)

// wantFindings wants exactly those that contain the given texts, in this order, each with a remedy.
func wantFindings(t *testing.T, rdb redis.UniversalClient, texts ...string) {
	t.Helper()
	found := gmailquota.CheckRedis(context.Background(), rdb)
	ok := slices.EqualFunc(found, texts, func(f, text string) bool { return strings.Contains(f, text) && strings.Contains(f, ": ") })
	if !ok {
		t.Errorf("found %q; want %q", found, texts)
	}
}

// getsentry/sentry#122038, redis/redis#15093
func TestWhatMayDropTheGuardsKeysIsFound(t *testing.T) {
	t.Parallel()
	server := quotatest.StartServer(t)
	rdb := quotatest.Client(t, server.Addr)
	wantFindings(t, rdb)
	for policy, text := range map[string]string{
		"allkeys-lru": "maxmemory-policy allkeys-lru drops buckets", "volatile-ttl": "maxmemory-policy volatile-ttl drops buckets",
	} {
		server.Do("CONFIG", "SET", "maxmemory", 0, "maxmemory-policy", policy)
		wantFindings(t, rdb) // nothing is ever dropped without a bound
		server.Do("CONFIG", "SET", "maxmemory", "100mb")
		wantFindings(t, rdb, text)
	}
	server.Do("CONFIG", "SET", "maxmemory-policy", "noeviction")
	wantFindings(t, rdb)
	server.Do("REPLICAOF", "127.0.0.1", 1)
	wantFindings(t, rdb, "is a replica")
	server.Do("REPLICAOF", "NO", "ONE")

	server.Do("ACL", "SETUSER", "default", "-info", "-config")
	wantFindings(t, rdb, "version is unknown", "maxmemory-policy is unknown")
	server.Kill()
	wantFindings(t, rdb, "could not be asked")
}

// An old server is a stub here: what it says of itself is all that counts.
func TestAnOldRedisIsFound(t *testing.T) {
	for version, texts := range map[string][]string{
		"4.0.14": {"Redis 4.0.14 is too old"}, "5.0.0": nil, "8.2.1": nil, "255.255.255": nil,
	} {
		rdb := redis.NewClient(&redis.Options{Addr: "not asked"})
		rdb.AddHook(infoOfVersion(version))
		wantFindings(t, rdb, texts...)
		_ = rdb.Close()
	}
}

// infoOfVersion is a hook that answers INFO as a server of the version does.
type infoOfVersion string

func (v infoOfVersion) DialHook(next redis.DialHook) redis.DialHook { return next }

func (v infoOfVersion) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (v infoOfVersion) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		cmd.(*redis.StringCmd).SetVal("# Server\r\nredis_version:" + string(v) + "\r\n# Memory\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n")
		return nil
	}
}

func TestARedisThatSaysLittleIsUnknown(t *testing.T) {
	wantFindings(t, quotatest.Client(t, miniredis.RunT(t).Addr()), "version is unknown", "maxmemory-policy is unknown")
}

func TestAClusterIsCheckedNodeByNode(t *testing.T) {
	t.Parallel()
	cluster := quotatest.StartCluster(t, 3)
	rdb := clusterClient(t, cluster)
	wantFindings(t, rdb)
	for _, node := range cluster.Nodes[1:] {
		node.Do("CONFIG", "SET", "maxmemory", "100mb", "maxmemory-policy", "allkeys-lru")
	}
	wantFindings(t, rdb, "allkeys-lru") // of two nodes, said once
	wantFindings(t, quotatest.Client(t, cluster.Nodes[0].Addr), "a node of a cluster")
}
