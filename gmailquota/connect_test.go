package gmailquota_test

import (
	"crypto/x509"
	"encoding/pem"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gmailsync/gmailsync/gmailquota"
	"github.com/gmailsync/gmailsync/gmailquota/quotatest"
)

// The forms of URL against real servers.

func guardAt(t *testing.T, url string, change func(*redis.UniversalOptions)) *gmailquota.Guard {
	t.Helper()
	opts, err := gmailquota.RedisOptions(url, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	change(opts)
	rdb := redis.NewUniversalClient(opts)
	t.Cleanup(func() { _ = rdb.Close() })
	g, err := gmailquota.New(rdb, testConfig())
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// A Redis behind TLS is asked only if its certificate is to be trusted.
func TestARedisBehindTLS(t *testing.T) {
	t.Parallel()
	server := quotatest.StartServer(t)
	issuer := httptest.NewTLSServer(nil) // has a certificate for 127.0.0.1
	defer issuer.Close()
	addr := tlsPort(t, server, issuer)
	roots := x509.NewCertPool()
	roots.AddCert(issuer.Certificate())
	asIs := func(*redis.UniversalOptions) {}

	mustAdmit(t, guardAt(t, "rediss://"+addr, func(o *redis.UniversalOptions) { o.TLSConfig.RootCAs = roots }), "a")
	mustAdmit(t, guardAt(t, "rediss://"+addr+"?skip_verify=true", asIs), "a")
	mustBeUnavailable(t, guardAt(t, "rediss://"+addr, asIs))
}

func tlsPort(t *testing.T, server *quotatest.Server, issuer *httptest.Server) string {
	t.Helper()
	cert := issuer.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(server.Dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	certFile, keyFile := write("cert.pem", "CERTIFICATE", cert.Certificate[0]), write("key.pem", "PRIVATE KEY", key)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	_, port, _ := net.SplitHostPort(addr)
	server.Do("CONFIG", "SET", "tls-cert-file", certFile, "tls-key-file", keyFile, "tls-ca-cert-file", certFile,
		"tls-auth-clients", "no", "tls-port", port)
	return addr
}

// The guard follows Sentinel to the replica that it promotes, and nobody restarts anything.
func TestTheGuardFollowsSentinel(t *testing.T) {
	t.Parallel()
	master, replica := quotatest.StartServer(t, "--repl-diskless-sync-delay", "0"), quotatest.StartServer(t)
	host, port, _ := net.SplitHostPort(master.Addr)
	replica.Do("REPLICAOF", host, port)
	sentinel := quotatest.StartSentinel(t, "mymaster", master.Addr)
	g := guardAt(t, "redis://"+sentinel.Addr+"?master_name=mymaster", func(*redis.UniversalOptions) {})
	mustAdmit(t, g, "a").Release()
	eventually(t, "Sentinel knows the replica", func() bool {
		known, _ := sentinel.Do("SENTINEL", "REPLICAS", "mymaster").([]any)
		return len(known) > 0
	})
	master.Kill()
	mustBeUnavailable(t, g)
	if _, err := g.Wait(t.Context(), request("a"), 2*time.Minute); err != nil {
		t.Fatal(err)
	}
	if role, _ := replica.Do("ROLE").([]any); len(role) == 0 || role[0] != "master" {
		t.Errorf("the replica's role is %v; want it to be promoted", role)
	}
}
