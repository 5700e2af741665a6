package worker

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/pstest"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/gmailsync/gmailsync/configs"
	"github.com/gmailsync/gmailsync/consumers"
	"github.com/gmailsync/gmailsync/gmailquota/gmailsim"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// pubsub's client waits up to 10 s for the keep-alive of a stream that has ended.
		goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"), // started by its init
		goleak.IgnoreAnyFunction("cloud.google.com/go/pubsub/v2.(*messageIterator).streamKeepAliveHandler"))
}

const (
	audience = "https://gmailsync.example/push"
	sender   = "push@example.iam.gserviceaccount.com"
)

// rig is a worker, everything embedded, against a simulated Gmail that pushes to it.
type rig struct {
	*testing.T
	sim    *gmailsim.Server
	cfg    configs.Config
	push   net.Listener
	worker *Worker
}

func newRig(t *testing.T) *rig {
	t.Helper()
	return newRigOn(t, gmailsim.Config{})
}

// newRigOn is newRig with settings of the simulator.
func newRigOn(t *testing.T, simulated gmailsim.Config) *rig {
	t.Helper()
	push, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	simulated.Push = []gmailsim.PushTarget{
		{URL: "http://" + push.Addr().String() + "/", Audience: audience, ServiceAccount: sender},
	}
	sim, err := gmailsim.New(simulated)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(sim.Handler())
	cfg := configs.Default()
	cfg.Gmail = configs.Gmail{Endpoint: server.URL, TokenURL: server.URL + "/token", ClientID: "test"}
	cfg.PubSub.Topic = "projects/p/topics/gmail"
	cfg.Push = configs.Push{Listen: push.Addr().String(), Audience: audience, ServiceAccount: sender, CertsURL: server.URL + "/certs"}
	cfg.Store.Path = filepath.Join(t.TempDir(), "mirror.db")
	cfg.Guard.UserLimit = 6_000_000 // these tests are about the wiring, not about waiting
	cfg.Guard.UserBurst = 100_000
	cfg.Guard.ProjectLimit = 60_000_000
	cfg.Redis.Timeout = 5 * time.Second // a busy machine
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	r := &rig{T: t, sim: sim, cfg: cfg, push: push}
	t.Cleanup(func() {
		r.stop()
		sim.Close()
		server.Close()
		_ = push.Close() // the worker has closed it if there was one
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	})
	return r
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// build makes the worker without starting it.
func (r *rig) build() *Worker {
	r.Helper()
	w, err := New(r.Context(), r.cfg, WithPushListener(r.push), WithLogger(zap.NewNop()))
	r.must(err)
	r.worker = w
	return w
}

func (r *rig) stop() {
	if r.worker == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := r.worker.Stop(ctx); err != nil {
		r.Errorf("stop: %v", err)
	}
	r.worker = nil
}

// load gives the mailbox of ann a past.
func (r *rig) load(n int) []gmailsim.MessageRef {
	r.Helper()
	refs := make([]gmailsim.MessageRef, n)
	for i := range refs {
		var err error
		refs[i], err = r.sim.Load(ann, mailOf(i))
		r.must(err)
	}
	return refs
}

func mailOf(i int) []byte {
	return fmt.Appendf(nil, "From: b@example.com\r\nTo: a@example.com\r\nSubject: subject %d\r\nMessage-ID: <m%d@example.com>\r\n"+
		"Date: Mon, 2 Nov 2026 10:00:00 +0000\r\n\r\nText %d.\r\n", i, i, i)
}

// connect adds a simulated account to the mirror and returns its id.
func (r *rig) connect(address string) string {
	r.Helper()
	status, err := r.worker.Mirror().AddAccount(r.Context(), address, r.sim.AddAccount(address).RefreshToken)
	r.must(err)
	return status.ID
}

// eventually waits for what happens soon; only a hang makes it fail.
func (r *rig) eventually(what string, ok func() bool) {
	r.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !ok(); {
		if time.Now().After(deadline) {
			r.Fatalf("never happened: %s", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (r *rig) status(id string) AccountStatus {
	r.Helper()
	a, err := r.worker.mirror.store.Account(r.Context(), id)
	r.must(err)
	s, err := r.worker.mirror.status(r.Context(), a)
	r.must(err)
	return s
}

func (r *rig) verified(id string) VerifyResult {
	r.Helper()
	v, err := r.worker.Mirror().Verify(r.Context(), id, VerifyOptions{})
	r.must(err)
	return v
}

func TestAMailboxIsImportedFollowedAndVerified(t *testing.T) {
	r := newRig(t)
	r.sim.AddAccount(ann)
	refs := r.load(30)
	w := r.build()
	r.must(w.Start(t.Context()))
	id := r.connect("Ann@Example.com") // the address is a lookup in lower case
	r.eventually("the import", func() bool { return r.status(id).Live() })
	if v := r.verified(id); !v.Equal() || v.Threads != 30 {
		t.Errorf("after the import: %+v", v)
	}
	if _, err := r.sim.Deliver(ann, mailOf(100)); err != nil {
		t.Fatal(err)
	}
	_, err := r.sim.Trash(ann, refs[0].ID)
	r.must(err)
	_, err = r.sim.Delete(ann, refs[1].ID)
	r.must(err)
	r.eventually("the changes", func() bool { return r.status(id).HistoryID == fmt.Sprint(r.sim.HistoryID(ann)) })
	if v := r.verified(id); !v.Equal() || v.Threads != 30 {
		t.Errorf("after the changes: %+v", v)
	}
	if stats := w.GuardStats(); stats.Units != r.sim.Stats().Units {
		t.Errorf("the guard charged %d units, Gmail counted %d", stats.Units, r.sim.Stats().Units)
	}

	// A history id that is too old: the resync finds what happened meanwhile, deletions included.
	r.stop()
	_, err = r.sim.Delete(ann, refs[2].ID)
	r.must(err)
	_, err = r.sim.Deliver(ann, mailOf(101))
	r.must(err)
	r.must(r.sim.ExpireHistory(ann))
	r.push, err = net.Listen("tcp", r.cfg.Push.Listen)
	r.must(err)
	r.cfg.Consumers.PollInterval = time.Second
	w = r.build()
	r.must(w.Start(t.Context()))
	r.must(w.mirror.store.HistoryDone(t.Context(), id, time.Now(), time.Now())) // due now, not when the old interval says
	r.eventually("the resync", func() bool {
		s := r.status(id)
		return s.Live() && s.HistoryID == fmt.Sprint(r.sim.HistoryID(ann))
	})
	if v := r.verified(id); !v.Equal() || v.Threads != 30 {
		t.Errorf("after the resync: %+v", v)
	}
}

// What a killed worker held in a Pub/Sub outside goes on with the next one at once, not when its leases lapse.
// (twentyhq/twenty#24171)
func TestAWorkerTakesUpWhatTheLastOneHeld(t *testing.T) {
	pubsub := pstest.NewServer()
	t.Cleanup(func() { _ = pubsub.Close() }) // after the worker
	r := newRig(t)
	r.cfg.PubSub.Endpoint = pubsub.Addr
	r.sim.AddAccount(ann)
	r.load(3)
	w := r.build()
	id := r.connect(ann)
	store, held := w.mirror.store, time.Now().Add(time.Hour)
	run, _, err := store.StartRun(t.Context(), id, consumers.RunImport, time.Now())
	r.must(err)
	r.must(store.Postpone(t.Context(), consumers.Job{Kind: consumers.InitialSync, Account: id, Run: run.ID}, held))
	r.must(w.Start(t.Context()))
	r.eventually("the import", func() bool { return r.status(id).Live() })
}

// Verify must be able to fail.
func TestVerifyFindsWhatDiffers(t *testing.T) {
	r := newRig(t)
	r.sim.AddAccount(ann)
	refs := r.load(10)
	w := r.build()
	r.must(w.Start(t.Context()))
	id := r.connect(ann)
	r.eventually("the import", func() bool { return r.status(id).Live() })
	r.stop()
	_, err := r.sim.Load(ann, mailOf(200))
	r.must(err)
	_, err = r.sim.Label(ann, refs[0].ID, []string{"STARRED"}, nil)
	r.must(err)
	_, err = r.sim.Delete(ann, refs[1].ID)
	r.must(err)

	m, err := OpenMirror(t.Context(), r.cfg, zap.NewNop())
	r.must(err)
	defer func() { r.must(m.Close()) }()
	v, err := m.Verify(t.Context(), id, VerifyOptions{})
	r.must(err)
	if v.Missing != 1 || v.Extra != 1 || v.Different != 1 || v.Equal() {
		t.Errorf("%+v, want one of each", v)
	}
}

// elie222/inbox-zero#2980, openclaw/openclaw#24765: watches that fail for good must not keep the others from being renewed,
// and renewing must not touch the cursor.
func TestWatchesAreRenewedThoughSomeFail(t *testing.T) {
	const accounts, failing = 30, 5
	r := newRig(t)
	w := r.build()
	ids := make([]string, accounts)
	for i := range ids {
		address := fmt.Sprintf("user%d@example.com", i)
		r.sim.AddAccount(address)
		ids[i] = r.connect(address)
		run, _, err := w.mirror.store.StartRun(t.Context(), ids[i], consumers.RunImport, time.Now())
		r.must(err)
		r.must(w.mirror.store.PinBaseline(t.Context(), run.ID, 1))
		r.must(w.mirror.store.SetWatch(t.Context(), ids[i], consumers.Watch{Expires: time.Now().Add(time.Duration(i) * time.Minute)}))
		if i < failing {
			r.sim.AddFault(gmailsim.Fault{Method: "watch", Account: address, Status: 403, Reason: "forbidden", Times: -1})
		}
	}
	failures := watchFailures{}
	for range 2 {
		r.must(w.renewDueWatches(t.Context(), failures)) // the second pass comes too early for those that failed
	}
	for i, id := range ids {
		s := r.status(id)
		renewed := s.WatchExpires.After(time.Now().Add(watchRenewBefore))
		if renewed != (i >= failing) || !s.State.Active() || s.HistoryID != "1" {
			t.Errorf("account %d: renewed %v, %s, cursor %s", i, renewed, s.State, s.HistoryID)
		}
	}
	if calls := r.sim.Stats().Calls["watch"]; calls != accounts || len(failures) != failing {
		t.Errorf("%d calls of watch, %d failures; want one call an account, %d failures", calls, len(failures), failing)
	}
	for range 20 {
		failures.failed(ids[0], time.Now())
	}
	if pause := failures[ids[0]].pause; pause != watchPauseMax {
		t.Errorf("the pause grew to %s, want %s", pause, watchPauseMax)
	}
}

func TestAStoreHasOneWorker(t *testing.T) {
	r := newRig(t)
	r.build()
	if w, err := New(t.Context(), r.cfg); err == nil || !strings.Contains(err.Error(), "another worker") {
		t.Errorf("a second worker: %v, %v", w, err)
	}
	r.stop()
	w, err := New(t.Context(), r.cfg)
	r.must(err)
	r.must(w.Stop(t.Context()))
}

// Whoever comes first has the embedded Redis and all others charge the same buckets; a worker does not start beside one
// that is not its own.
func TestTheEmbeddedRedisIsOne(t *testing.T) {
	r := newRig(t)
	open := func() *Mirror {
		t.Helper()
		m, err := OpenMirror(t.Context(), r.cfg, zap.NewNop())
		r.must(err)
		return m
	}
	if _, err := OpenMirror(t.Context(), r.cfg, zap.NewNop()); err == nil {
		t.Error("a store that does not exist was opened")
	}
	first, err := CreateMirror(t.Context(), r.cfg, zap.NewNop())
	r.must(err)
	second := open()
	if first.embedded == nil || second.embedded != nil {
		t.Error("the second command has a Redis of its own")
	}
	if w, err := New(t.Context(), r.cfg); err == nil || !strings.Contains(err.Error(), "a command that calls Gmail") {
		t.Errorf("a worker beside another's Redis: %v, %v", w, err)
	}
	r.must(second.Close())
	r.must(first.Close())
	if _, err := os.Stat(r.cfg.Store.Path + ".redis"); err == nil {
		t.Error("the address of a Redis that is gone stays")
	}
	w := r.build()
	beside := open()
	if beside.embedded != nil || w.mirror.embedded == nil || !beside.WorkerRuns() {
		t.Error("a command beside a worker has a Redis of its own")
	}
	r.must(beside.Close())
	r.stop()
	alone := open()
	if alone.WorkerRuns() {
		t.Error("the worker has ended")
	}
	r.must(alone.Close())
}

// Without its key the stored tokens are lost: a new key must not be made in silence.
func TestAMissingKeyFileIsSaid(t *testing.T) {
	r := newRig(t)
	r.build()
	r.sim.AddAccount("ann@example.com")
	r.connect("ann@example.com")
	r.stop()
	r.must(os.Remove(r.cfg.Store.Path + ".key"))
	if _, err := New(t.Context(), r.cfg); err == nil || !strings.Contains(err.Error(), "store.keyFile") {
		t.Errorf("%v, want an error that names the key file", err)
	}
}

func TestAddingAnAccountIsChecked(t *testing.T) {
	r := newRig(t)
	w := r.build()
	token := r.sim.AddAccount("ann@example.com").RefreshToken
	for name, c := range map[string]struct{ address, token, want string }{
		"no address":        {"ann", token, "name@example.com"},
		"another's token":   {"bob@example.com", token, "another mailbox"},
		"a token of nobody": {"ann@example.com", "wrong", "not accepted"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := w.Mirror().AddAccount(t.Context(), c.address, c.token)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if err != nil && (strings.Contains(err.Error(), "bob@") || strings.Contains(err.Error(), token)) {
				t.Errorf("the error repeats what was given: %v", err)
			}
		})
	}
	// openclaw/gogcli#373, bytechefhq/bytechef#5394: scopes are looked at when connecting
	const read, metadata = "https://www.googleapis.com/auth/gmail.readonly", "https://www.googleapis.com/auth/gmail.metadata"
	for _, c := range []struct {
		granted []string
		ok      bool
	}{{nil, true}, {[]string{read}, true}, {[]string{"openid", read}, true}, {[]string{"openid"}, false}, {[]string{read, metadata}, false}} {
		if err := checkScopes(c.granted); (err == nil) != c.ok {
			t.Errorf("scopes %v: %v", c.granted, err)
		}
	}
}

// The figures and the page of the status listener name no address.
func TestStatusListener(t *testing.T) {
	r := newRig(t)
	r.cfg.Status.Listen = "127.0.0.1:0"
	w := r.build()
	r.must(w.Start(t.Context()))
	r.sim.AddAccount("ann@example.com")
	id := r.connect("ann@example.com")
	r.eventually("the import", func() bool { return r.status(id).Live() })
	for path, want := range map[string]string{
		"/healthz": "", "/readyz": "", "/metrics": "gmailsync_guard_units_total", "/status.json": id,
	} {
		rec := httptest.NewRecorder()
		w.statusHandler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, path, nil))
		if rec.Code/100 != 2 || !strings.Contains(rec.Body.String(), want) || strings.Contains(rec.Body.String(), "ann@") {
			t.Errorf("%s: %d %s", path, rec.Code, rec.Body.String())
		}
	}
}
