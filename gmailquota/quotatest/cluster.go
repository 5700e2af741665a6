package quotatest

import (
	"fmt"
	"net"
	"strings"
	"testing"
)

const slots = 16384 // of a Redis Cluster

// Cluster is a Redis Cluster of a test: masters only, which share the slots evenly.
type Cluster struct {
	Nodes []*Server
	ids   []string
	t     testing.TB
}

// StartCluster starts a cluster of n nodes (see StartServer) and returns when each of them serves.
func StartCluster(t testing.TB, n int) *Cluster {
	t.Helper()
	c := &Cluster{t: t}
	for range n {
		_, bus := freePort(t) // by default the port + 10,000, which may be none
		node := StartServer(t, "--cluster-enabled", "yes", "--cluster-port", bus)
		c.Nodes, c.ids = append(c.Nodes, node), append(c.ids, fmt.Sprint(node.Do("CLUSTER", "MYID")))
		first := c.Nodes[0]
		if node == first {
			continue
		}
		host, port, _ := net.SplitHostPort(node.Addr)
		first.Do("CLUSTER", "MEET", host, port, bus)
	}
	for i, node := range c.Nodes {
		node.Do("CLUSTER", "ADDSLOTSRANGE", i*slots/n, (i+1)*slots/n-1)
	}
	for _, node := range c.Nodes {
		eventually(t, "the cluster serves", func() bool {
			info := fmt.Sprint(node.Do("CLUSTER", "INFO"))
			return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d\r", n)) &&
				strings.Contains(info, fmt.Sprintf("cluster_slots_assigned:%d\r", slots))
		})
	}
	return c
}

// URL is the cluster's address for gmailquota.RedisOptions.
func (c *Cluster) URL() string {
	url := "redis://" + c.Nodes[0].Addr + "?"
	for _, n := range c.Nodes {
		url += "&addr=" + n.Addr
	}
	return strings.Replace(url, "?&", "?", 1)
}

// Owner is the index of the node that serves slot.
func (c *Cluster) Owner(slot int64) int {
	c.t.Helper()
	ranges, _ := c.Nodes[0].Do("CLUSTER", "SLOTS").([]any)
	for _, r := range ranges {
		fields, _ := r.([]any)
		if len(fields) < 3 {
			c.t.Fatalf("CLUSTER SLOTS answers %v", ranges)
		}
		first, _ := fields[0].(int64)
		last, _ := fields[1].(int64)
		if slot < first || slot > last {
			continue
		}
		node, _ := fields[2].([]any)
		if len(node) < 3 {
			c.t.Fatalf("CLUSTER SLOTS answers %v", ranges)
		}
		id, _ := node[2].(string)
		for i, known := range c.ids {
			if known == id {
				return i
			}
		}
	}
	c.t.Fatalf("nobody serves slot %d", slot)
	return -1
}

// Reshard moves slot from one node to another as redis-cli does: key by key while both serve. moved is called after each
// key.
func (c *Cluster) Reshard(slot int64, from, to int, moved func()) {
	c.t.Helper()
	source, target := c.Nodes[from], c.Nodes[to]
	host, port, _ := net.SplitHostPort(target.Addr)
	target.Do("CLUSTER", "SETSLOT", slot, "IMPORTING", c.ids[from])
	source.Do("CLUSTER", "SETSLOT", slot, "MIGRATING", c.ids[to])
	moved()
	for {
		keys, _ := source.Do("CLUSTER", "GETKEYSINSLOT", slot, 1).([]any)
		if len(keys) == 0 {
			break
		}
		source.Do("MIGRATE", host, port, keys[0], 0, patience.Milliseconds())
		moved()
	}
	target.Do("CLUSTER", "SETSLOT", slot, "NODE", c.ids[to])
	for _, node := range c.Nodes {
		if node != target {
			node.Do("CLUSTER", "SETSLOT", slot, "NODE", c.ids[to])
		}
	}
	moved()
}
