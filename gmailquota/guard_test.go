package gmailquota_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/gmailsync/gmailsync/gmailquota"
)

func TestSmoke(t *testing.T) {
	mini := miniredis.RunT(t)
	now := time.Unix(1_800_000_000, 0)
	mini.SetTime(now)
	opts, err := gmailquota.RedisOptions("redis://"+mini.Addr(), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewUniversalClient(opts)
	defer rdb.Close()
	cfg := gmailquota.DefaultConfig()
	cfg.FailOpen = false
	cfg.RedisTimeout = time.Second
	g, err := gmailquota.New(rdb, cfg)
	if err != nil {
		t.Fatal(err)
	}
	r := gmailquota.Request{Account: "a", Method: "threads.get", Class: gmailquota.Backfill}
	_, err = g.Acquire(context.Background(), r)
	var d *gmailquota.DeniedError
	if !errors.As(err, &d) {
		t.Fatal(err)
	}
	t.Log(d)
	mini.SetTime(now.Add(d.Wait))
	gr, err := g.Acquire(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(gr.Wait(), gr.Units())
	s, err := g.Snapshot(context.Background(), "a")
	t.Logf("%+v %v", s, err)
	gr.Refund(context.Background())
	s, err = g.Snapshot(context.Background(), "a")
	t.Logf("%+v %v", s, err)
	t.Log(g.Penalize(context.Background(), "a", gmailquota.Refusal{}))
	s, err = g.Snapshot(context.Background(), "a")
	t.Logf("%+v %v", s, err)
	t.Logf("%+v", g.Stats())
	for _, k := range mini.Keys() {
		v, _ := mini.Get(k)
		t.Log(k, v, mini.TTL(k))
	}
}
