package broker

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/gmailsync/gmailsync/consumers"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// started by an import, for good
		goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"),
		// Pub/Sub's client: notices the end of its stream at its next tick, up to 30 s later
		goleak.IgnoreTopFunction("cloud.google.com/go/pubsub/v2.(*messageIterator).streamKeepAliveHandler"))
}

func open(t testing.TB, cfg Config) *Broker {
	t.Helper()
	b, err := Open(t.Context(), cfg, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return b
}

func embedded(t testing.TB) *Broker {
	return open(t, Config{Endpoint: Embedded, Project: "p", Prefix: "t"})
}

// emulator runs until every broker of the test is closed.
func emulator(t *testing.T) *pstest.Server {
	srv := pstest.NewServer()
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Errorf("close the emulator: %v", err)
		}
	})
	return srv
}

// received is one delivery.
type received struct {
	data      string
	ack, nack func()
}

// receive starts receiving; stop ends it and waits.
func receive(t testing.TB, b *Broker, kind consumers.Kind) (got <-chan received, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ch := make(chan received, 1000)
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.Receive(ctx, kind, func(data []byte, ack, nack func()) {
			ch <- received{string(data), ack, nack}
		})
	}()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(stop)
	return ch, stop
}

func next(t testing.TB, ch <-chan received) received {
	t.Helper()
	select {
	case r := <-ch:
		return r
	case <-time.After(30 * time.Second):
		t.Fatal("no message came")
		return received{}
	}
}

// eventually waits for what the client sends on its own time, such as acknowledgements.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(30 * time.Second); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("not in 30 s: %s", what)
		}
	}
}

func TestJobsTravelToTheirOwnKind(t *testing.T) {
	b := embedded(t)
	jobs := []consumers.Job{
		{Kind: consumers.InitialSync, Account: "a", Run: "r"},
		{Kind: consumers.ThreadBatch, Account: "a", Run: "r", Batch: 7},
		{Kind: consumers.History, Account: "a"},
	}
	if err := b.Publish(t.Context(), jobs...); err != nil {
		t.Fatal(err)
	}
	for _, want := range jobs {
		ch, stop := receive(t, b, want.Kind)
		r := next(t, ch)
		got, err := consumers.DecodeJob([]byte(r.data))
		if err != nil || got != want {
			t.Errorf("got %+v, %v; want %+v", got, err, want)
		}
		r.ack()
		stop()
	}
}

func TestPublishOfAnUnknownKindIsAnError(t *testing.T) {
	if err := embedded(t).Publish(t.Context(), consumers.Job{Kind: "other", Account: "a"}); err == nil {
		t.Error("want an error")
	}
}

// P01: measure-sh/measure#4240, googleapis/google-cloud-go#10437: a message that is held while others are quick must
// not be delivered again.
func TestAMessageStaysLeasedAfterDeliverReturned(t *testing.T) {
	b := embedded(t)
	ch, stop := receive(t, b, consumers.History)
	for i := range 50 {
		if err := b.Publish(t.Context(), consumers.Job{Kind: consumers.History, Account: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	held := next(t, ch)
	seen := map[string]bool{held.data: true}
	for range 49 {
		r := next(t, ch)
		if seen[r.data] {
			t.Fatal("a leased message was delivered again")
		}
		seen[r.data] = true
		r.ack()
	}
	if s := b.settings(); s.MinDurationPerAckExtension < 30*time.Second || s.MaxExtension <= s.MinDurationPerAckExtension {
		t.Errorf("leases: min %v, max %v", s.MinDurationPerAckExtension, s.MaxExtension)
	}
	held.ack()
	held.nack() // too late: only the first counts
	stop()
	eventually(t, "each message is acknowledged", func() bool { return b.local.sweep(50) == 50 })
}

// googleapis/google-cloud-go#10707: giving back can race with the receipt of the delivery, so there are many.
func TestMessagesThatAreGivenBackComeAgain(t *testing.T) {
	b := embedded(t)
	ch, _ := receive(t, b, consumers.History)
	jobs := make([]consumers.Job, 100)
	for i := range jobs {
		jobs[i] = consumers.Job{Kind: consumers.History, Account: fmt.Sprint(i)}
	}
	if err := b.Publish(t.Context(), jobs...); err != nil {
		t.Fatal(err)
	}
	came := map[string]int{}
	for range 2 * len(jobs) {
		r := next(t, ch)
		if came[r.data]++; came[r.data] == 1 {
			r.nack()
		} else {
			r.ack()
		}
	}
	for data, n := range came {
		if n != 2 {
			t.Errorf("%s came %d times, want twice", data, n)
		}
	}
}

// P07: googleapis/google-cloud-dotnet#11793: with an ordering key, a message that is given back again and again blocks those
// behind it. Jobs have none.
func TestAJobThatIsGivenBackBlocksNoOtherOfItsAccount(t *testing.T) {
	b := embedded(t)
	ch, _ := receive(t, b, consumers.ThreadBatch)
	publish := func(batch int64) {
		t.Helper()
		if err := b.Publish(t.Context(), consumers.Job{Kind: consumers.ThreadBatch, Account: "a", Run: "r", Batch: batch}); err != nil {
			t.Fatal(err)
		}
	}
	publish(1)
	var first received
	for range 5 {
		first = next(t, ch)
		first.nack()
	}
	publish(2)
	for r := next(t, ch); ; r = next(t, ch) {
		if r.data != first.data {
			r.ack()
			break
		}
		r.nack()
	}
	if b.subscription(consumers.ThreadBatch).GetEnableMessageOrdering() {
		t.Error("the subscription orders its messages")
	}
}

// P08: googleapis/google-cloud-go#1074, googleapis/google-cloud-go#712: limits are set on purpose.
func TestFlowControlIsBounded(t *testing.T) {
	b := open(t, Config{Endpoint: Embedded, Project: "p", Prefix: "t", Outstanding: 42})
	if s := b.settings(); s.MaxOutstandingMessages != 42 || s.MaxOutstandingBytes <= 0 || s.MaxOutstandingBytes > 64<<20 {
		t.Errorf("outstanding: %d messages, %d bytes", s.MaxOutstandingMessages, s.MaxOutstandingBytes)
	}
}

// A long import always has something leased: the server's memory must stay bounded all the same, and what is given back
// must come again.
func TestTheServerInTheProcessForgetsAllThatDoesNotWait(t *testing.T) {
	b := embedded(t)
	job := consumers.Job{Kind: consumers.ThreadBatch, Account: "a", Batch: 1}
	if err := b.Publish(t.Context(), job, job, job); err != nil {
		t.Fatal(err)
	}
	if n := b.local.sweep(1); n != 0 {
		t.Fatalf("forgot %d messages that waited", n)
	}
	ch, _ := receive(t, b, consumers.ThreadBatch)
	next(t, ch).ack()
	held, last := next(t, ch), next(t, ch)
	if n := b.local.sweep(4); n != 0 {
		t.Errorf("forgot %d messages, fewer than asked for", n)
	}
	eventually(t, "all three are forgotten", func() bool { return b.local.sweep(3) == 3 })
	if n := len(b.local.srv.Messages()); n != 0 {
		t.Errorf("%d messages are still there", n)
	}
	held.ack()
	last.nack()
	again := next(t, ch)
	if again.data != last.data {
		t.Error("another message came")
	}
	again.ack()
	eventually(t, "the last is forgotten", func() bool { return b.local.sweep(1) == 1 })
}

func TestTwoBrokersShareAnEmulator(t *testing.T) {
	srv := emulator(t)
	cfg := Config{Endpoint: srv.Addr, Project: "p", Prefix: "t"}
	one, two := open(t, cfg), open(t, cfg)
	ch, _ := receive(t, two, consumers.History)
	if err := one.Publish(t.Context(), consumers.Job{Kind: consumers.History, Account: "a"}); err != nil {
		t.Fatal(err)
	}
	next(t, ch).ack()
}

// A message that was on its way when its stream ended comes again when its lease of 60 s lapses; the server's clock runs
// 60 times faster, so that the test need not wait for that.
func TestReceivingGoesOnAfterTheServiceEndedTheStream(t *testing.T) {
	srv := emulator(t)
	start := time.Now()
	srv.SetTimeNowFunc(func() time.Time { return start.Add(60 * time.Since(start)) })
	srv.SetStreamTimeout(50 * time.Millisecond)
	b := open(t, Config{Endpoint: srv.Addr, Project: "p", Prefix: "t"})
	ch, _ := receive(t, b, consumers.History)
	for i := range 3 {
		job := consumers.Job{Kind: consumers.History, Account: fmt.Sprint(i)}
		if err := b.Publish(t.Context(), job); err != nil {
			t.Fatal(err)
		}
		for came := false; !came; {
			r := next(t, ch)
			r.ack()
			got, err := consumers.DecodeJob([]byte(r.data))
			came = err == nil && got == job // else an earlier one again
		}
	}
}

// An emulator keeps nothing when it is started anew.
func TestAnEmulatorThatWasStartedAnewIsUsedAgain(t *testing.T) {
	for name, receives := range map[string]bool{"by who publishes": false, "by who receives": true} {
		t.Run(name, func(t *testing.T) {
			first := pstest.NewServer()
			var second *pstest.Server
			t.Cleanup(func() { // after the broker's
				if err := second.Close(); err != nil {
					t.Errorf("close the emulator: %v", err)
				}
			})
			b := open(t, Config{Endpoint: first.Addr, Project: "p", Prefix: "t"})
			var ch <-chan received
			if receives {
				ch, _ = receive(t, b, consumers.History)
			}
			err := first.Close()
			second = pstest.NewServerWithAddress(first.Addr)
			if err != nil {
				t.Fatal(err)
			}
			if receives {
				eventually(t, "the subscription is there", func() bool {
					_, err := second.GServer.GetSubscription(t.Context(), &pubsubpb.GetSubscriptionRequest{Subscription: b.subscriptionPath(consumers.History)})
					return err == nil
				})
			}
			job := consumers.Job{Kind: consumers.History, Account: "a"}
			if err := b.Publish(t.Context(), job, job); err != nil {
				t.Fatal(err)
			}
			if !receives {
				ch, _ = receive(t, b, consumers.History)
			}
			next(t, ch).ack()
			next(t, ch).ack()
		})
	}
}

func TestThePauseAfterAFailureBeginsAnewAfterALongTimeWithoutOne(t *testing.T) {
	var pauses []time.Duration
	pause := time.Duration(0)
	for _, ran := range []time.Duration{0, 0, 0, 0, 0, 0, 0, time.Hour, 0} {
		pause = nextBackoff(pause, ran)
		pauses = append(pauses, pause/time.Second)
	}
	if want := []time.Duration{1, 2, 4, 8, 16, 30, 30, 1, 2}; !slices.Equal(pauses, want) {
		t.Errorf("%d s, want %d", pauses, want)
	}
}

// X03: hookdeck/outpost#1066: a subscription that expires loses its messages; the start refuses it.
func TestSubscriptionsThatLoseMessagesAreRefused(t *testing.T) {
	b := embedded(t)
	tests := []struct {
		name   string
		change func(*pubsubpb.Subscription)
		ok     bool
	}{
		{"as created", func(*pubsubpb.Subscription) {}, true},
		{"expires by default", func(s *pubsubpb.Subscription) { s.ExpirationPolicy = nil }, false},
		{"expires after 31 days", func(s *pubsubpb.Subscription) {
			s.ExpirationPolicy.Ttl = durationpb.New(31 * 24 * time.Hour)
		}, false},
		{"on another topic", func(s *pubsubpb.Subscription) { s.Topic += "-other" }, false},
		{"push", func(s *pubsubpb.Subscription) { s.PushConfig = &pubsubpb.PushConfig{PushEndpoint: "https://x.example"} }, false},
		{"without retry policy", func(s *pubsubpb.Subscription) { s.RetryPolicy = nil }, true},
		{"with dead letters", func(s *pubsubpb.Subscription) { s.DeadLetterPolicy = &pubsubpb.DeadLetterPolicy{} }, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := b.subscription(consumers.History)
			tt.change(s)
			if err := b.checkSubscription(consumers.History, s); (err == nil) != tt.ok {
				t.Errorf("error %v, want ok %v", err, tt.ok)
			}
		})
	}
}

// Google's Pub/Sub is only looked at: nothing is created there.
func TestCheckNamesEverythingThatIsMissing(t *testing.T) {
	b := embedded(t)
	if err := b.check(t.Context()); err != nil {
		t.Errorf("as created: %v", err)
	}
	b.cfg.Prefix = "elsewhere"
	err := b.check(t.Context())
	if err == nil {
		t.Fatal("want an error")
	}
	var n int
	if u, ok := err.(interface{ Unwrap() []error }); ok {
		n = len(u.Unwrap())
	}
	if n != 2*len(consumers.Kinds) {
		t.Errorf("%d faults named, want %d: %v", n, 2*len(consumers.Kinds), err)
	}
}

func TestOpenWantsProjectAndPrefix(t *testing.T) {
	for _, cfg := range []Config{{Endpoint: Embedded, Prefix: "t"}, {Endpoint: Embedded, Project: "p"}} {
		if _, err := Open(t.Context(), cfg, zap.NewNop()); err == nil {
			t.Errorf("%+v: want an error", cfg)
		}
	}
}
