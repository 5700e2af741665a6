package quotatest

import (
	"net"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/gmailsync/gmailsync/gmailquota"
)

// Redis is a Redis whose time, as the guard's script and the life of keys see it, moves only by Advance.
type Redis struct {
	Client  redis.UniversalClient
	Advance func(d time.Duration)
	Back    func(d time.Duration) // sets the clock back, as an operator may; keys live on
	Now     func() time.Time
}

// Clock moves miniredis's two clocks, TIME and the expiry of keys, together.
type Clock struct {
	mini *miniredis.Miniredis
	now  time.Time
}

// NewClock stops mini's time at start.
func NewClock(mini *miniredis.Miniredis, start time.Time) *Clock {
	mini.SetTime(start)
	return &Clock{mini, start}
}

// Advance moves the time. Not for concurrent use.
func (c *Clock) Advance(d time.Duration) {
	c.now = c.now.Add(d)
	c.mini.SetTime(c.now)
	c.mini.FastForward(d)
}

// Back sets the time back; keys live on.
func (c *Clock) Back(d time.Duration) {
	c.now = c.now.Add(-d)
	c.mini.SetTime(c.now)
}

// Now is the time that scripts see.
func (c *Clock) Now() time.Time { return c.now }

// start is any moment with microseconds.
var start = time.Date(2026, 11, 29, 12, 0, 0, 123_456_000, time.UTC)

// Embedded starts a miniredis with stopped time.
func Embedded(t testing.TB) Redis {
	mini := miniredis.RunT(t)
	c := NewClock(mini, start)
	return Redis{Client(t, mini.Addr()), c.Advance, c.Back, c.Now}
}

// Client connects to a Redis at addr with the guard's options and a timeout that a busy machine keeps.
func Client(t testing.TB, addr string) redis.UniversalClient {
	t.Helper()
	o, err := gmailquota.RedisOptions("redis://"+addr, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewUniversalClient(o)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

func freePort(t testing.TB) (host, port string) {
	t.Helper()
	l := listen(t)
	defer func() { _ = l.Close() }()
	host, port, _ = net.SplitHostPort(l.Addr().String())
	return host, port
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}
