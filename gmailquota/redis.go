package gmailquota

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const redisURLForms = "redis://[user:password@]host:port[/db], rediss:// for TLS; for a cluster with &addr=host:port for each further node, " +
	"for Sentinel with ?master_name=NAME&addr=host:port for each further sentinel"

// RedisOptions reads a Redis URL, in go-redis' own forms, into options with which a Guard keeps its promises: a hung
// server costs one timeout (0 = 50 ms), a closed port nothing, and a command whose answer was lost is not sent twice
// (on a cluster at most within the timeout; the script's charges bear that). go-redis' own defaults wait for 10 s and
// ignore a context's deadline. Use them with redis.NewUniversalClient.
//
//	redis://user:password@host:6379/0                        one server
//	rediss://host:6379                                       with TLS; skip_verify=true trusts any certificate
//	unix:///run/redis.sock?db=0                              a socket
//	redis://node1:6379?addr=node2:6379&addr=node3:6379       a cluster
//	redis://sentinel1:26379/0?master_name=mymaster&addr=sentinel2:26379&username=user&password=secret
//
// With Sentinel the user before the host is for the sentinels, and username and password are for Redis. Further
// parameters are client_name, protocol, and those of the pool (pool_size, min_idle_conns, …); retries and timeouts are
// the Guard's. Certificates of an own authority are read from where SSL_CERT_FILE names them, or set TLSConfig.
//
// The error is a *ConfigError without the password.
func RedisOptions(redisURL string, timeout time.Duration) (*redis.UniversalOptions, error) {
	if timeout <= 0 {
		timeout = DefaultConfig().RedisTimeout
	}
	o, err := parseRedisURL(redisURL)
	if err != nil {
		return nil, refusedURL(redisURL, err)
	}
	o.MaxRetries = -1
	o.DialerRetries = 1
	o.MinRetryBackoff, o.MaxRetryBackoff = -1, -1 // of a cluster's redirections: they must fit into the timeout
	o.ContextTimeoutEnabled = true
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = timeout, timeout, timeout, timeout
	return o, nil
}

func parseRedisURL(redisURL string) (*redis.UniversalOptions, error) {
	u, err := readRedisURL(redisURL)
	if err != nil {
		return nil, err
	}
	if u.Hostname() == "" && u.Scheme != "unix" {
		return nil, errors.New("no host") // go-redis would take localhost
	}
	q := u.Query()
	switch {
	case q.Has("master_name"):
		return sentinelOptions(redisURL)
	case q.Has("addr"):
		if strings.Trim(u.Path, "/") != "" {
			return nil, errors.New("a cluster has no numbered databases")
		}
		return clusterOptions(redisURL)
	}
	s, err := redis.ParseURL(redisURL)
	if err != nil {
		return nil, err
	}
	return &redis.UniversalOptions{
		Addrs: []string{s.Addr}, DB: s.DB, Username: s.Username, Password: s.Password, TLSConfig: s.TLSConfig,
		ClientName: s.ClientName, Protocol: s.Protocol,
		PoolFIFO: s.PoolFIFO, PoolSize: s.PoolSize, MaxConcurrentDials: s.MaxConcurrentDials,
		MinIdleConns: s.MinIdleConns, MaxIdleConns: s.MaxIdleConns, MaxActiveConns: s.MaxActiveConns,
		ConnMaxIdleTime: s.ConnMaxIdleTime, ConnMaxLifetime: s.ConnMaxLifetime, ConnMaxLifetimeJitter: s.ConnMaxLifetimeJitter,
	}, nil
}

func clusterOptions(redisURL string) (*redis.UniversalOptions, error) {
	c, err := redis.ParseClusterURL(redisURL)
	if err != nil {
		return nil, err
	}
	if c.ReadOnly || c.RouteByLatency || c.RouteRandomly {
		return nil, errReplicas
	}
	return &redis.UniversalOptions{
		IsClusterMode: true, MaxRedirects: c.MaxRedirects,
		Addrs: c.Addrs, Username: c.Username, Password: c.Password, TLSConfig: atLeastTLS12(c.TLSConfig),
		ClientName: c.ClientName, Protocol: c.Protocol,
		PoolFIFO: c.PoolFIFO, PoolSize: c.PoolSize, MaxConcurrentDials: c.MaxConcurrentDials,
		MinIdleConns: c.MinIdleConns, MaxIdleConns: c.MaxIdleConns, MaxActiveConns: c.MaxActiveConns,
		ConnMaxIdleTime: c.ConnMaxIdleTime, ConnMaxLifetime: c.ConnMaxLifetime, ConnMaxLifetimeJitter: c.ConnMaxLifetimeJitter,
	}, nil
}

func sentinelOptions(redisURL string) (*redis.UniversalOptions, error) {
	f, err := redis.ParseFailoverURL(redisURL)
	switch {
	case err != nil:
		return nil, err
	case f.MasterName == "":
		return nil, errors.New("master_name is empty")
	case f.ReplicaOnly || f.RouteByLatency || f.RouteRandomly || f.UseDisconnectedReplicas:
		return nil, errReplicas
	}
	return &redis.UniversalOptions{
		MasterName: f.MasterName, SentinelUsername: f.SentinelUsername, SentinelPassword: f.SentinelPassword,
		Addrs: f.SentinelAddrs, DB: f.DB, Username: f.Username, Password: f.Password, TLSConfig: f.TLSConfig,
		ClientName: f.ClientName, Protocol: f.Protocol,
		PoolFIFO: f.PoolFIFO, PoolSize: f.PoolSize, MaxConcurrentDials: f.MaxConcurrentDials,
		MinIdleConns: f.MinIdleConns, MaxIdleConns: f.MaxIdleConns, MaxActiveConns: f.MaxActiveConns,
		ConnMaxIdleTime: f.ConnMaxIdleTime, ConnMaxLifetime: f.ConnMaxLifetime, ConnMaxLifetimeJitter: f.ConnMaxLifetimeJitter,
	}, nil
}

var errReplicas = errors.New("the guard writes, so it cannot ask replicas")

// atLeastTLS12 gives a cluster the floor that go-redis gives the others.
func atLeastTLS12(c *tls.Config) *tls.Config {
	if c != nil {
		c.MinVersion = tls.VersionTLS12
	}
	return c
}

// errUnreadable takes the place of what net/url says, which repeats parts of the password.
var errUnreadable = errors.New("not to be read as a URL; of a password / ? # @ % are written %2F %3F %23 %40 %25")

// readRedisURL refuses also what net/url reads otherwise than it was meant, because of a sign in the password.
func readRedisURL(redisURL string) (*url.URL, error) {
	u, err := url.Parse(redisURL)
	if err != nil || u.Opaque != "" || u.Fragment != "" || strings.Contains(u.Path, "@") {
		return nil, errUnreadable
	}
	for name := range u.Query() {
		if strings.Contains(name, "@") {
			return nil, errUnreadable
		}
	}
	return u, nil
}

// refusedURL is the error for a Redis URL. It shows neither user nor parameters.
func refusedURL(redisURL string, err error) error {
	shown := "(hidden)"
	if u, unreadable := readRedisURL(redisURL); unreadable == nil {
		shown = u.Scheme + "://" + u.Host
	}
	return &ConfigError{"RedisURL", fmt.Sprintf("%s (%s)", shown, strings.TrimPrefix(err.Error(), "redis: ")), redisURLForms}
}
