package gmailquota_test

import (
	"crypto/tls"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gmailsync/gmailsync/gmailquota"
)

// What a URL says arrives, and the guard's own retries and timeouts whatever it says.
// redis/go-redis#2229, erpc/erpc#1113
func TestRedisOptionsOfAURL(t *testing.T) {
	type options = redis.UniversalOptions
	overTLS := &tls.Config{ServerName: "h", MinVersion: tls.VersionTLS12}
	for url, want := range map[string]options{
		"redis://h":                               {Addrs: []string{"h:6379"}},
		"redis://u:p%40@h:1/2":                    {Addrs: []string{"h:1"}, Username: "u", Password: "p@", DB: 2},
		"unix:///run/redis.sock?db=2":             {Addrs: []string{"/run/redis.sock"}, DB: 2},
		"redis://[::1]:1":                         {Addrs: []string{"[::1]:1"}},
		"rediss://:p@h":                           {Addrs: []string{"h:6379"}, Password: "p", TLSConfig: overTLS},
		"redis://h?client_name=c&pool_size=7":     {Addrs: []string{"h:6379"}, ClientName: "c", PoolSize: 7},
		"redis://h?max_active_conns=9":            {Addrs: []string{"h:6379"}, MaxActiveConns: 9},
		"redis://h?read_timeout=9s&max_retries=9": {Addrs: []string{"h:6379"}},
		"redis://u:p@h:1?addr=i:2&addr=j:3&max_redirects=5": {
			Addrs: []string{"h:1", "i:2", "j:3"}, Username: "u", Password: "p", IsClusterMode: true, MaxRedirects: 5},
		"rediss://h?addr=i:2": {Addrs: []string{"h:6379", "i:2"}, IsClusterMode: true, TLSConfig: overTLS},
		"redis://h:26379/3?master_name=m&addr=i:26379": {
			Addrs: []string{"h:26379", "i:26379"}, MasterName: "m", DB: 3},
		"rediss://su:sp@h:26379?master_name=m&username=u&password=p": {
			Addrs: []string{"h:26379"}, MasterName: "m", SentinelUsername: "su", SentinelPassword: "sp",
			Username: "u", Password: "p", TLSConfig: overTLS},
	} {
		t.Run(url, func(t *testing.T) {
			got, err := gmailquota.RedisOptions(url, time.Second)
			if err != nil {
				t.Fatal(err)
			}
			want.MaxRetries, want.DialerRetries, want.ContextTimeoutEnabled = -1, 1, true
			want.MinRetryBackoff, want.MaxRetryBackoff = -1, -1
			want.DialTimeout, want.ReadTimeout, want.WriteTimeout, want.PoolTimeout = time.Second, time.Second, time.Second, time.Second
			if !reflect.DeepEqual(*got, want) {
				t.Errorf("got  %+v\nwant %+v", *got, want)
			}
		})
	}
	got, err := gmailquota.RedisOptions("rediss://h?skip_verify=true", 0)
	if err != nil || !got.TLSConfig.InsecureSkipVerify || got.ReadTimeout != 50*time.Millisecond {
		t.Errorf("%+v, %v; want the default timeout and no verification", got, err)
	}
}

// The options make the client that the URL is for.
func TestRedisOptionsMakeTheRightClient(t *testing.T) {
	for url, isRight := range map[string]func(redis.UniversalClient) bool{
		"redis://h:1": func(c redis.UniversalClient) bool {
			one, ok := c.(*redis.Client)
			return ok && one.Options().Addr == "h:1"
		},
		"redis://h:1?addr=i:2": func(c redis.UniversalClient) bool { _, ok := c.(*redis.ClusterClient); return ok },
		"redis://h:1?master_name=m": func(c redis.UniversalClient) bool {
			one, ok := c.(*redis.Client)
			return ok && one.Options().Addr == "FailoverClient"
		},
	} {
		opts, err := gmailquota.RedisOptions(url, 0)
		if err != nil {
			t.Fatal(err)
		}
		rdb := redis.NewUniversalClient(opts)
		if !isRight(rdb) {
			t.Errorf("%s makes a %T", url, rdb)
		}
		_ = rdb.Close()
	}
}

// One line that names what is wrong and what is allowed, and no secret.
func TestABadRedisURLIsRefused(t *testing.T) {
	for url, says := range map[string]string{
		"":                                                 "no host",
		"localhost:6379":                                   "not to be read",
		"http://hunter2@h:1":                               "invalid URL scheme: http",
		"redis://":                                         "no host",
		"redis://u:hunter2@h:x":                            "%2F",
		"redis://u:hunter2/x@h":                            "%2F",
		"redis://u:1/hunter2@h":                            "%2F",
		"redis://u:1?hunter2@h":                            "%3F",
		"redis://u:1#hunter2@h":                            "%23",
		"redis://u:hunter2@h/zero":                         `invalid database number: "zero"`,
		"redis://u:hunter2@h?pool_sise=3":                  "unexpected option: pool_sise",
		"redis://u:hunter2@h/1?addr=i:2":                   "a cluster has no numbered databases",
		"redis://u:hunter2@h?addr=i":                       "unable to parse addr param: i",
		"redis://h?addr=i:2&read_only=true":                "cannot ask replicas",
		"redis://h?master_name=":                           "master_name is empty",
		"redis://h?master_name=m&addr=i":                   "unable to parse addr param: i",
		"redis://h?master_name=m&replica_only=true":        "cannot ask replicas",
		"redis://h?master_name=m&password=hunter2&paswd=1": "unexpected option: paswd",
	} {
		_, err := gmailquota.RedisOptions(url, 0)
		var ce *gmailquota.ConfigError
		if !errors.As(err, &ce) || ce.Field != "RedisURL" || !strings.Contains(ce.Value, says) || !strings.Contains(ce.Allowed, "rediss://") {
			t.Errorf("%q: %v; want a ConfigError that says %q and what is allowed", url, err, says)
			continue
		}
		if strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v: not one line without the password", url, err)
		}
	}
}
