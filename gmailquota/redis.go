package gmailquota

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// RedisOptions reads a Redis URL (redis://, rediss:// for TLS; with addr= parameters for the further nodes of a
// cluster) into options with which a Guard keeps its promises: a hung server costs one timeout (0 = 50 ms), a closed
// port nothing, and no command is sent twice. go-redis' own defaults wait for 10 s and ignore a context's deadline.
// Use them with redis.NewUniversalClient.
func RedisOptions(redisURL string, timeout time.Duration) (*redis.UniversalOptions, error) {
	if timeout <= 0 {
		timeout = DefaultConfig().RedisTimeout
	}
	o, err := parseRedisURL(redisURL)
	var withURL *url.Error // its text repeats the URL, password and all
	if errors.As(err, &withURL) {
		err = withURL.Err
	}
	if err != nil {
		return nil, fmt.Errorf("gmailquota: Redis URL: %w; allowed is redis://[user:password@]host:port[/db], or rediss:// for TLS", err)
	}
	o.MaxRetries = -1
	o.DialerRetries = 1
	o.ContextTimeoutEnabled = true
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = timeout, timeout, timeout, timeout
	return o, nil
}

func parseRedisURL(redisURL string) (*redis.UniversalOptions, error) {
	if strings.Contains(redisURL, "addr=") {
		c, err := redis.ParseClusterURL(redisURL)
		if err != nil {
			return nil, err
		}
		return &redis.UniversalOptions{
			Addrs: c.Addrs, Username: c.Username, Password: c.Password, TLSConfig: c.TLSConfig, ClientName: c.ClientName,
			PoolSize: c.PoolSize, MinIdleConns: c.MinIdleConns, Protocol: c.Protocol, IsClusterMode: true,
		}, nil
	}
	s, err := redis.ParseURL(redisURL)
	if err != nil {
		return nil, err
	}
	return &redis.UniversalOptions{
		Addrs: []string{s.Addr}, DB: s.DB, Username: s.Username, Password: s.Password, TLSConfig: s.TLSConfig,
		ClientName: s.ClientName, PoolSize: s.PoolSize, MinIdleConns: s.MinIdleConns, Protocol: s.Protocol,
	}, nil
}
