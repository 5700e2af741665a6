package gmailquota

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// CheckRedis says what about a Redis would make a Guard work badly or not at all, one sentence each with the remedy; none
// if all is well. What it is not allowed to read it calls unknown. It is for a program's start: the Guard itself asks
// nothing of this.
func CheckRedis(ctx context.Context, rdb redis.UniversalClient) []string {
	cluster, ok := rdb.(*redis.ClusterClient)
	if !ok {
		return checkServer(ctx, rdb, false)
	}
	var mu sync.Mutex
	var found []string
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		all := checkServer(ctx, node, true)
		mu.Lock()
		defer mu.Unlock()
		found = append(found, all...)
		return nil
	})
	if err != nil {
		return []string{unreachable(err)}
	}
	slices.Sort(found) // what is wrong with all nodes is said once
	return slices.Compact(found)
}

func unreachable(err error) string {
	return fmt.Sprintf("Redis could not be asked whether it suits the guard (%v): see that it runs and that its URL, user and password are right", err)
}

func checkServer(ctx context.Context, rdb redis.Cmdable, clusterClient bool) []string {
	text, err := rdb.Info(ctx).Result()
	if err != nil && !forbidden(err) {
		return []string{unreachable(err)}
	}
	info := parseInfo(text)
	var found []string
	switch version := info["redis_version"]; {
	case version == "":
		found = append(found, "Redis' version is unknown: make sure that it is 5.0 or later, whose scripts may read the time and write")
	case major(version) < 5:
		found = append(found, fmt.Sprintf("Redis %s is too old, its scripts may not read the time and write: update it to 5.0 or later", version))
	}
	policy, limited := info["maxmemory_policy"], info["maxmemory"] != "0"
	switch {
	case policy == "":
		found = append(found, "Redis' maxmemory-policy is unknown: make sure that it is noeviction, or buckets are lost when memory is short")
	case policy != "noeviction" && limited: // the volatile- ones too, for all keys of the guard expire
		found = append(found, fmt.Sprintf("Redis' maxmemory-policy %s drops buckets when memory is short, and calls wait until they have filled anew: "+
			"set it to noeviction, or give the guard a Redis of its own", policy))
	}
	if info["role"] == "slave" {
		found = append(found, "this Redis is a replica and takes no writes: name the primary, or the sentinels with master_name=")
	}
	if info["cluster_enabled"] == "1" && !clusterClient {
		found = append(found, "this Redis is a node of a cluster: name its other nodes with addr= in the URL, so that the client follows keys that move")
	}
	return found
}

// forbidden tells a Redis that keeps INFO from this user, or from all.
func forbidden(err error) bool {
	return redis.IsPermissionError(err) || strings.HasPrefix(err.Error(), "ERR unknown command")
}

// parseInfo reads the answer of INFO: lines of name:value, and headings.
func parseInfo(text string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			out[name] = value
		}
	}
	return out
}

func major(version string) int {
	first, _, _ := strings.Cut(version, ".")
	n, _ := strconv.Atoi(first)
	return n
}
