package consumers_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	. "github.com/gmailsync/gmailsync/consumers"
)

var errDenied = &MailboxError{Op: "threads.get", Fault: Throttled, Denied: true}

func TestDoneAcknowledgesAfterTheWork(t *testing.T) {
	handle := func(_ context.Context, _ Job) Outcome {
		time.Sleep(time.Second)
		return Done()
	}
	onBench(t, testConfig, handle, func(t *testing.T, b bench) {
		j := batchJob("ann", 1)
		b.deliver("m", j)
		synctest.Wait()
		expect(t, "acks during the work", b.mail.acked("m"), 0)
		expect(t, "published again no sooner than", time.Until(b.store.lastDue(j)), testConfig.SweepAfter)
		pass(2 * time.Second)
		expect(t, "acks", b.mail.acked("m"), 1)
		expect(t, "nacks", b.mail.nacked("m"), 0)
	})
}

func TestDeniedJobComesBackWhenItsWaitIsOver(t *testing.T) {
	var calls atomic.Int32
	handle := func(_ context.Context, _ Job) Outcome {
		if calls.Add(1) == 1 {
			return RequeueAfter(400*time.Millisecond, errDenied)
		}
		return Done()
	}
	onBench(t, testConfig, handle, func(t *testing.T, b bench) {
		b.deliver("m", batchJob("ann", 1))
		pass(399 * time.Millisecond)
		expect(t, "calls before the wait is over", calls.Load(), 1)
		expect(t, "parked", b.Stats().Parked, 1)
		pass(time.Millisecond)
		expect(t, "calls", calls.Load(), 2)
		expect(t, "acks", b.mail.acked("m"), 1)
		expect(t, "nacks", b.mail.nacked("m"), 0)
		expect(t, "requeued", b.Stats().Requeued, 1)
	})
}

// googleapis/nodejs-pubsub#1482: a message that was denied came straight back, and others starved behind it.
func TestLongWaitOfOneUserHoldsNoSlotAndNoOtherUser(t *testing.T) {
	var calls atomic.Int32
	handle := func(_ context.Context, j Job) Outcome {
		if j.Account == "ann" {
			calls.Add(1)
			return RequeueAfter(15*time.Minute, errDenied)
		}
		return Done()
	}
	onBench(t, testConfig, handle, func(t *testing.T, b bench) {
		for i := range 10 {
			b.deliver(name("ann", i), batchJob("ann", i+1))
		}
		b.deliver("bob", batchJob("bob", 1))
		synctest.Wait()
		expect(t, "bob's acks", b.mail.acked("bob"), 1)
		pass(10 * time.Minute)
		expect(t, "ann's calls", calls.Load(), 10)
		for i := range 10 {
			expect(t, "acks, as the wait is in the database", b.mail.acked(name("ann", i)), 1)
			expect(t, "rest of the wait", time.Until(b.store.lastDue(batchJob("ann", i+1))), 5*time.Minute)
		}
	})
}

func TestWaitThatCannotBeStoredGoesBackToTheQueue(t *testing.T) {
	var b bench
	handle := func(context.Context, Job) Outcome {
		b.store.failPostpone(errors.New("disk full"))
		return RequeueAfter(time.Hour, errDenied)
	}
	onBench(t, testConfig, handle, func(t *testing.T, started bench) {
		b = started
		b.deliver("m", batchJob("ann", 1))
		synctest.Wait()
		expect(t, "nacks", b.mail.nacked("m"), 1)
		expect(t, "acks", b.mail.acked("m"), 0)
	})
}

func TestFullLotGoesToTheDatabase(t *testing.T) {
	cfg := testConfig
	cfg.MaxParked = 8 // of which one account may have 2
	handle := func(context.Context, Job) Outcome { return RequeueAfter(30*time.Second, errDenied) }
	onBench(t, cfg, handle, func(t *testing.T, b bench) {
		accounts := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i"}
		for _, a := range accounts {
			b.deliver(a, batchJob(a, 1))
			synctest.Wait()
		}
		expect(t, "parked", b.Stats().Parked, 8)
		expect(t, "postponed", b.Stats().Postponed, 1)
		expect(t, "acks of the ninth", b.mail.acked("i"), 1)
		expect(t, "due of the ninth", time.Until(b.store.lastDue(batchJob("i", 1))), 30*time.Second)
	})
}

func TestOneAccountFillsNoMoreThanItsPartOfTheLot(t *testing.T) {
	cfg := testConfig
	cfg.MaxParked = 8
	handle := func(context.Context, Job) Outcome { return RequeueAfter(30*time.Second, errDenied) }
	onBench(t, cfg, handle, func(t *testing.T, b bench) {
		for i := range 5 {
			b.deliver(name("ann", i), batchJob("ann", i+1))
		}
		synctest.Wait()
		expect(t, "parked", b.Stats().Parked, 2)
		expect(t, "postponed", b.Stats().Postponed, 3)
		expect(t, "due of what is over", time.Until(b.store.lastDue(batchJob("ann", 5))), cfg.MaxPark)
		b.deliver("bob", batchJob("bob", 1))
		synctest.Wait()
		expect(t, "parked with bob's", b.Stats().Parked, 3)
	})
}

func TestJobsOfOneKeyFold(t *testing.T) {
	var calls atomic.Int32
	var last Job
	handle := func(_ context.Context, j Job) Outcome {
		last = j
		if calls.Add(1) == 1 {
			return RequeueAfter(10*time.Second, errDenied)
		}
		time.Sleep(time.Second)
		return Done()
	}
	onBench(t, testConfig, handle, func(t *testing.T, b bench) {
		first := historyJob("ann")
		b.deliver("first", first)
		synctest.Wait()

		newer := historyJob("ann")
		b.deliver("while parked", newer)
		synctest.Wait()
		expect(t, "acks of the one folded", b.mail.acked("while parked"), 1)
		expect(t, "acks of the one kept", b.mail.acked("first"), 0)
		pass(10 * time.Second)
		expect(t, "since the oldest cause", last.At.Equal(first.At), true)

		b.deliver("while worked", newer)
		b.deliver("while worked too", newer)
		synctest.Wait()
		expect(t, "acks of the one that runs afterwards", b.mail.acked("while worked"), 0)
		expect(t, "acks of the one folded into it", b.mail.acked("while worked too"), 1)
		pass(3 * time.Second)
		expect(t, "calls", calls.Load(), 3)
		expect(t, "acks of the first", b.mail.acked("first"), 1)
		expect(t, "acks at the end", b.mail.acked("while worked"), 1)
	})
}

func TestJobThatArrivesDuringADeniedOneFoldsIntoIt(t *testing.T) {
	var calls atomic.Int32
	handle := func(context.Context, Job) Outcome {
		time.Sleep(time.Second)
		if calls.Add(1) == 1 {
			return RequeueAfter(time.Second, errDenied)
		}
		return Done()
	}
	onBench(t, testConfig, handle, func(t *testing.T, b bench) {
		b.deliver("first", historyJob("ann"))
		synctest.Wait()
		b.deliver("second", historyJob("ann"))
		pass(5 * time.Second)
		expect(t, "calls", calls.Load(), 2)
		expect(t, "acks", b.mail.acked("first")+b.mail.acked("second"), 2)
	})
}

// elie222/inbox-zero#1292: several consumers of one account at once.
func TestOneKeyIsNeverWorkedTwiceAtOnce(t *testing.T) {
	var mu sync.Mutex
	inHand, calls := map[string]bool{}, 0
	random := rand.New(rand.NewPCG(1, 2))
	handle := func(_ context.Context, j Job) Outcome {
		mu.Lock()
		if inHand[j.Key()] {
			t.Errorf("%s is worked twice at once", j.Key())
		}
		inHand[j.Key()] = true
		calls++
		outcome, nap := random.IntN(4), time.Duration(random.Int64N(int64(time.Second)))
		mu.Unlock()
		time.Sleep(nap)
		mu.Lock()
		defer mu.Unlock()
		inHand[j.Key()] = false
		switch outcome {
		case 0:
			return RequeueAfter(nap, errDenied)
		case 1:
			return Retry(errors.New("passing"))
		}
		return Done()
	}
	onBench(t, testConfig, handle, func(t *testing.T, b bench) {
		for i := range 1000 {
			account := string(rune('a' + random.IntN(5)))
			b.deliver(name(account, i), historyJob(account))
			pass(10 * time.Millisecond)
		}
		pass(10 * time.Minute)
		s := b.Stats()
		expect(t, "left", s.Ready+s.Parked+s.Working, 0)
		expect(t, "messages acknowledged", len(b.mail.acks), 1000)
		expect(t, "messages given back", len(b.mail.nacks), 0)
	})
}

// s1t5/mail-archiver#80: everybody's new mail waited behind one mailbox's first import.
func TestHugeMailboxDelaysNobody(t *testing.T) {
	cfg := testConfig
	cfg.Workers, cfg.MaxParked = 10, 100_000
	handle := func(_ context.Context, j Job) Outcome {
		if j.Account == "ann" {
			time.Sleep(3 * time.Second) // as long as a slot may sleep for quota
			return RequeueAfter(10*time.Second, errDenied)
		}
		return Done()
	}
	onBench(t, cfg, handle, func(t *testing.T, b bench) {
		for i := range 4000 {
			b.deliver(name("ann", i), batchJob("ann", i+1))
		}
		synctest.Wait()
		expect(t, "slots of one account", b.Stats().Working, 5)
		for _, a := range []string{"b", "c", "d", "e", "f", "g", "h", "i", "j", "k"} {
			b.deliver(a, batchJob(a, 1))
		}
		synctest.Wait()
		for _, a := range []string{"b", "c", "d", "e", "f", "g", "h", "i", "j", "k"} {
			expect(t, "acks of "+a, b.mail.acked(a), 1)
		}
	})
}

func TestAccountsTakeTurns(t *testing.T) {
	cfg := testConfig
	cfg.Workers = 1
	var order []string
	handle := func(_ context.Context, j Job) Outcome {
		order = append(order, j.Account)
		time.Sleep(time.Second)
		return Done()
	}
	onBench(t, cfg, handle, func(t *testing.T, b bench) {
		for i := range 3 {
			b.deliver(name("ann", i), batchJob("ann", i+1))
		}
		b.deliver("bob", batchJob("bob", 1))
		b.deliver("cid", batchJob("cid", 1))
		pass(10 * time.Second)
		for i, want := range []string{"ann", "bob", "cid", "ann", "ann"} {
			if want != order[i] {
				t.Errorf("turn %d: got %s, want %s (%v)", i, order[i], want, order)
			}
		}
	})
}

func TestYieldLetsOthersPass(t *testing.T) {
	cfg := testConfig
	cfg.Workers = 1
	var order []string
	handle := func(_ context.Context, j Job) Outcome {
		order = append(order, j.Account)
		time.Sleep(time.Second)
		if j.Account == "ann" && len(order) < 4 {
			return Yield()
		}
		return Done()
	}
	onBench(t, cfg, handle, func(t *testing.T, b bench) {
		b.deliver("ann", batchJob("ann", 1))
		synctest.Wait()
		b.deliver("bob", batchJob("bob", 1))
		pass(10 * time.Second)
		expect(t, "second turn", order[1], "bob")
		expect(t, "turns", len(order), 4)
		expect(t, "requeued, as nothing was denied", b.Stats().Requeued, 0)
		expect(t, "acks", b.mail.acked("ann"), 1)
	})
}

// garrytan/gbrain#4959: throttles counted as failures.
func TestBackoffGrowsWithFailuresAndNotWithDenials(t *testing.T) {
	var starts []time.Time
	outcomes := []Outcome{
		Retry(errors.New("503")), Retry(errors.New("503")), RequeueAfter(time.Second, errDenied),
		RequeueAfter(time.Second, errDenied), Retry(errors.New("503")), Done(), Retry(errors.New("503")), Done(),
	}
	handle := func(context.Context, Job) Outcome {
		starts = append(starts, time.Now())
		return outcomes[len(starts)-1]
	}
	onBench(t, testConfig, handle, func(t *testing.T, b bench) {
		b.deliver("m", batchJob("ann", 1))
		pass(time.Minute)
		b.deliver("again", batchJob("ann", 1))
		pass(time.Minute)
		want := []time.Duration{time.Second, 2 * time.Second, time.Second, time.Second, 4 * time.Second, 0, time.Second}
		if len(starts) != len(outcomes) {
			t.Fatalf("calls: got %d, want %d", len(starts), len(outcomes))
		}
		for i, w := range want {
			got := starts[i+1].Sub(starts[i])
			if w != 0 && (got > w || got < w*4/5) {
				t.Errorf("wait after call %d: got %s, want %s or up to a fifth less", i+1, got, w)
			}
		}
	})
}

func TestBackoffEndsAtFiveMinutes(t *testing.T) {
	for n, want := range map[int]time.Duration{-1: time.Second, 0: time.Second, 1: time.Second, 5: 16 * time.Second, 9: 256 * time.Second, 10: 5 * time.Minute, 1000: 5 * time.Minute} {
		if got := Backoff(n); got > want || got < want*4/5 {
			t.Errorf("after %d failures: got %s, want %s or up to a fifth less", n, got, want)
		}
	}
}

// A job whose handling panics, or that Gmail refuses for good, was tried without end.
func TestPoisonBecomesADeadLetter(t *testing.T) {
	for what, handle := range map[string]handlerFunc{
		"a panic":      func(context.Context, Job) Outcome { panic("a piece of mail") },
		"a permanent":  func(context.Context, Job) Outcome { return Retry(&MailboxError{Op: "threads.list", Fault: Permanent}) },
		"a gone":       func(context.Context, Job) Outcome { return Retry(fmt.Errorf("list: %w", &MailboxError{Fault: Gone})) },
		"a nil access": func(context.Context, Job) Outcome { var j *Job; return Retry(errors.New(j.Run)) },
	} {
		t.Run(what, func(t *testing.T) {
			cfg := testConfig
			cfg.MaxAttempts = 3
			onBench(t, cfg, handle, func(t *testing.T, b bench) {
				j := batchJob("ann", 1)
				b.store.failDeadLetter(errors.New("disk full"))
				b.deliver("m", j)
				pass(8 * time.Second)
				expect(t, "acks without a record", b.mail.acked("m"), 0)
				b.store.failDeadLetter(nil)
				pass(time.Minute)
				expect(t, "acks", b.mail.acked("m"), 1)
				expect(t, "dead letters", len(b.store.dead), 1)
				expect(t, "dropped", b.Stats().Dropped, 1)
				expect(t, "mail in the record", strings.Contains(b.store.dead[0].Cause, "piece"), false)
				expect(t, "rest before the next try", time.Until(b.store.lastDue(j)) > 23*time.Hour, true)

				handled := b.Stats().Handled
				b.deliver("next day", j)
				pass(time.Minute)
				expect(t, "tries the next day", b.Stats().Handled-handled, 3)
				expect(t, "acks", b.mail.acked("next day"), 1)
				expect(t, "dead letters", len(b.store.dead), 2) // a database keeps one about the same work
			})
		})
	}
}

func TestAnOutageIsNoPoison(t *testing.T) {
	handle := func(context.Context, Job) Outcome { return Retry(&MailboxError{Op: "threads.list", Status: 503}) }
	onBench(t, testConfig, handle, func(t *testing.T, b bench) {
		for range 100 { // as the sweeper publishes it again
			b.deliver("m", batchJob("ann", 1))
			pass(10 * time.Minute)
		}
		expect(t, "tries", b.Stats().Handled >= 100, true)
		expect(t, "dead letters", len(b.store.dead), 0)
	})
}

func TestSuccessEndsTheCountOfPoison(t *testing.T) {
	calls := 0
	handle := func(context.Context, Job) Outcome {
		if calls++; calls%3 != 0 {
			panic("a piece of mail")
		}
		return Done()
	}
	cfg := testConfig
	cfg.MaxAttempts = 3
	onBench(t, cfg, handle, func(t *testing.T, b bench) {
		for range 5 {
			b.deliver("m", batchJob("ann", 1))
			pass(time.Minute)
		}
		expect(t, "calls", calls, 15)
		expect(t, "acks", b.mail.acked("m"), 5)
		expect(t, "dead letters", len(b.store.dead), 0)
	})
}

func TestNothingIsWorkedWhileTheStoreIsAway(t *testing.T) {
	var calls atomic.Int32
	handle := func(context.Context, Job) Outcome { calls.Add(1); return Done() }
	onBench(t, testConfig, handle, func(t *testing.T, b bench) {
		b.store.failPostpone(errors.New("away"))
		b.deliver("m", batchJob("ann", 1))
		pass(10 * time.Second)
		expect(t, "calls", calls.Load(), 0)
		b.store.failPostpone(nil)
		pass(time.Minute)
		expect(t, "calls afterwards", calls.Load(), 1)
		expect(t, "acks", b.mail.acked("m"), 1)
	})
}

func TestJobOfARemovedAccountIsDone(t *testing.T) {
	handle := func(context.Context, Job) Outcome { t.Error("handled"); return Done() }
	onBench(t, testConfig, handle, func(t *testing.T, b bench) {
		b.store.failPostpone(ErrNoAccount)
		b.deliver("m", batchJob("ann", 1))
		synctest.Wait()
		expect(t, "acks", b.mail.acked("m"), 1)
	})
}

func TestUndecodableMessagesAreAcknowledged(t *testing.T) {
	foreign, err := historyJob("ann").Encode()
	if err != nil {
		t.Fatal(err)
	}
	good, err := batchJob("ann", 1).Encode()
	if err != nil {
		t.Fatal(err)
	}
	var calls atomic.Int32
	handle := func(context.Context, Job) Outcome { calls.Add(1); return Done() }
	onBench(t, testConfig, handle, func(t *testing.T, b bench) {
		for _, data := range [][]byte{nil, []byte("{"), []byte(`{"v":9,"account":"ann"}`), []byte(`{"v":1}`), foreign, good} {
			b.Receive(data, b.mail.note(b.mail.acks, "m"), b.mail.note(b.mail.nacks, "m"))
		}
		synctest.Wait()
		expect(t, "acks", b.mail.acked("m"), 6)
		expect(t, "nacks", b.mail.nacked("m"), 0)
		expect(t, "calls", calls.Load(), 1)
		expect(t, "undecodable", b.Stats().Undecodable, 5)
	})
}

func TestWaitingTellsHowManyAndForHowLong(t *testing.T) {
	handle := func(_ context.Context, _ Job) Outcome { return RequeueAfter(30*time.Second, errDenied) }
	onBench(t, testConfig, handle, func(t *testing.T, b bench) {
		b.deliver("1", batchJob("ann", 1))
		pass(2 * time.Second)
		b.deliver("2", batchJob("ann", 2))
		b.deliver("3", batchJob("bob", 1))
		pass(3 * time.Second)
		got := b.Waiting()
		expect(t, "ann's", got["ann"], Waiting{Count: 2, Longest: 5 * time.Second})
		expect(t, "bob's", got["bob"], Waiting{Count: 1, Longest: 3 * time.Second})
		expect(t, "oldest", b.Stats().Oldest, 5*time.Second)
	})
}

func TestNewRunnerRefusesWhatCannotWork(t *testing.T) {
	for what, change := range map[string]func(*RunnerConfig){
		"no slot":                  func(c *RunnerConfig) { c.Workers = 0 },
		"no lot":                   func(c *RunnerConfig) { c.MaxParked = 0 },
		"no wait":                  func(c *RunnerConfig) { c.MaxPark = 0 },
		"swept while it is parked": func(c *RunnerConfig) { c.SweepAfter = c.MaxPark },
	} {
		cfg := testConfig
		change(&cfg)
		if _, err := NewRunner(cfg, nil, nil, zap.NewNop()); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
}
