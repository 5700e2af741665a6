package gmailquota_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gmailsync/gmailsync/gmailquota"
	"github.com/gmailsync/gmailsync/gmailquota/quotatest"
)

// gate is a hook that holds runs of the script.
type gate struct {
	entered chan int // how many decisions a run asks for that is held
	pass    chan struct{}
	over    chan struct{} // the test is: what comes later is not held
	panics  atomic.Bool   // once passed
}

func (g *gate) DialHook(next redis.DialHook) redis.DialHook { return next }

func (g *gate) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (g *gate) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if n, ok := decisions(cmd); ok {
			select {
			case g.entered <- n:
				<-g.pass
			case <-g.over:
			}
			if g.panics.Load() {
				panic("a hook of the client")
			}
		}
		return next(ctx, cmd)
	}
}

// decisions is how many decisions a run of the script asks for: after its hash, its keys, and seven arguments.
func decisions(cmd redis.Cmder) (int, bool) {
	if cmd.Name() != "evalsha" {
		return 0, false
	}
	keys, ok := cmd.Args()[2].(int)
	return len(cmd.Args()) - 3 - keys - 7, ok
}

// crowd is a guard of which one caller's run is held while others come.
type crowd struct {
	*outage
	t     *testing.T
	gate  *gate
	guard *gmailquota.Guard
	wg    sync.WaitGroup
}

// newCrowd's client repeats what it has no answer to, as go-redis does by default.
func newCrowd(t *testing.T) *crowd {
	t.Helper()
	c := &crowd{outage: newOutage(t), t: t, gate: &gate{entered: make(chan int), pass: make(chan struct{}), over: make(chan struct{})}}
	t.Cleanup(func() { close(c.gate.over) })
	rdb := redis.NewClient(&redis.Options{Addr: c.proxy.Addr, ReadTimeout: 100 * time.Millisecond, MaxRetries: 3})
	t.Cleanup(func() { _ = rdb.Close() })
	g, err := gmailquota.New(rdb, testConfig(), gmailquota.WithClock(c.clock.Now))
	if err != nil {
		t.Fatal(err)
	}
	mustAdmit(t, g, "warm").Release()
	if err := g.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	rdb.AddHook(c.gate)
	c.guard = g
	return c
}

// ask lets a caller ask, and returns when it is held or queues, as one of queued.
func (c *crowd) ask(ctx context.Context, account string, queued int) (err *error) {
	c.t.Helper()
	err = new(error)
	c.wg.Go(func() {
		_, *err = c.guard.Acquire(ctx, gmailquota.Request{Account: account, Method: "getProfile", Class: gmailquota.Realtime})
	})
	for c.guard.Queued() != queued {
		runtime.Gosched()
	}
	return err
}

// held waits for the next run and returns how many decisions it asks for.
func (c *crowd) held() int { return <-c.gate.entered }

func (c *crowd) release() { c.gate.pass <- struct{}{} }

// end lets everything pass and waits for the callers.
func (c *crowd) end() {
	done := make(chan struct{})
	go func() { c.wg.Wait(); close(done) }()
	for {
		select {
		case <-c.gate.entered:
		case c.gate.pass <- struct{}{}:
		case <-done:
			return
		}
	}
}

// state is what Redis holds for an account once it knows which calls ended.
func (c *crowd) state(account string) gmailquota.Snapshot {
	c.t.Helper()
	c.wg.Go(func() { _ = c.guard.Close(context.Background()) })
	c.end()
	s, err := c.guard.Snapshot(context.Background(), account)
	if err != nil {
		c.t.Fatal(err)
	}
	return s
}

func TestCallersThatComeDuringARunShareTheNext(t *testing.T) {
	c := newCrowd(t)
	before, came := c.guard.Stats(), 0
	var errs []*error
	come := func(queued int) {
		errs = append(errs, c.ask(t.Context(), fmt.Sprint("user-", came%6), queued))
		came++
	}
	held := func(want int) {
		t.Helper()
		if n := c.held(); n != want {
			t.Errorf("a run decides for %d; want %d", n, want)
		}
	}
	c.ask(t.Context(), "first", 0)
	held(1)       // it waited for nobody
	for range 2 { // eight do not wait for a run to end, in up to three runs
		for i := range 7 {
			come(i + 1)
		}
		come(0)
		held(8)
	}
	for i := range 20 {
		come(i + 1)
	}
	c.release()
	held(16)
	for range 3 { // the last four do not ask before all have ended
		c.release()
	}
	held(4)
	c.release()
	c.end()
	for i, err := range errs {
		if *err != nil {
			t.Errorf("caller %d: %v", i, *err)
		}
	}
	after := c.guard.Stats()
	if runs, decisions := after.RedisCalls-before.RedisCalls, after.Decisions-before.Decisions; runs != 5 || decisions != 37 {
		t.Errorf("%d decisions in %d runs; want 37 in 5", decisions, runs)
	}
	for i := range 6 {
		if s := c.state(fmt.Sprint("user-", i)); s.User.Tokens != 100-6 || s.InFlight != 6 {
			t.Errorf("user-%d has %d tokens and %d calls under way; want 94 and 6", i, s.User.Tokens, s.InFlight)
		}
	}
}

func TestACallerThatLeavesTheQueueIsNotCharged(t *testing.T) {
	c := newCrowd(t)
	c.ask(t.Context(), "first", 0)
	c.held()
	ctx, cancel := context.WithCancel(t.Context())
	next := c.ask(t.Context(), "next", 1)
	gone := c.ask(ctx, "gone", 2)
	last := c.ask(t.Context(), "last", 3)
	cancel()
	for c.guard.Queued() != 2 {
		runtime.Gosched()
	}
	c.release()
	if n := c.held(); n != 2 {
		t.Errorf("the next run decides for %d; want 2", n)
	}
	c.release()
	c.end()
	if *next != nil || *last != nil || !errors.Is(*gone, context.Canceled) {
		t.Errorf("%v, %v, and who left: %v", *next, *last, *gone)
	}
	if s := c.state("gone"); s.User.Tokens != 100 || s.InFlight != 0 {
		t.Errorf("who left has %d tokens and %d calls under way; want 100 and 0", s.User.Tokens, s.InFlight)
	}
}

// The one that asks for the others leaves too, but not what it asked for them.
func TestCallersThatLeaveDuringTheRunEndTheirCalls(t *testing.T) {
	c := newCrowd(t)
	c.ask(t.Context(), "first", 0)
	c.held()
	ctx, cancel := context.WithCancel(t.Context())
	c.ask(ctx, "asks", 1)
	gone := c.ask(ctx, "gone", 2)
	stays := c.ask(t.Context(), "stays", 3)
	c.release()
	c.held()
	cancel()
	c.release()
	c.end()
	if *stays != nil || *gone != nil && !errors.Is(*gone, context.Canceled) {
		t.Errorf("who stays: %v; who left: %v", *stays, *gone)
	}
	if s := c.state("stays"); s.User.Tokens != 99 || s.InFlight != 1 {
		t.Errorf("who stays has %d tokens and %d calls under way; want 99 and 1", s.User.Tokens, s.InFlight)
	}
	if s := c.state("gone"); *gone != nil && s.InFlight != 0 {
		t.Errorf("who left has %d calls under way", s.InFlight)
	}
}

// The client sends a run again whose answer was lost, all of it.
func TestALostAnswerForSeveralIsChargedOnce(t *testing.T) {
	c := newCrowd(t)
	c.ask(t.Context(), "first", 0)
	c.held()
	var errs []*error
	for i, account := range []string{"a", "b", "a"} {
		errs = append(errs, c.ask(t.Context(), account, i+1))
	}
	c.release()
	c.held()
	before := c.proxy.Commands()
	c.proxy.LoseOne()
	c.release()
	c.end()
	for _, err := range errs {
		if *err != nil {
			t.Fatal(*err)
		}
	}
	if n := c.proxy.Commands() - before; n != 2 {
		t.Fatalf("the client sent the script %d times; this test needs a repetition", n)
	}
	if a, b := c.state("a"), c.state("b"); a.User.Tokens != 98 || a.InFlight != 2 || b.User.Tokens != 99 || b.InFlight != 1 {
		t.Errorf("%d and %d tokens, %d and %d calls under way; want 98, 99, 2 and 1", a.User.Tokens, b.User.Tokens, a.InFlight, b.InFlight)
	}
}

func TestAFailedRunFailsForAllAndIsAskedOnce(t *testing.T) {
	c := newCrowd(t)
	c.ask(t.Context(), "first", 0)
	c.held()
	var errs []*error
	for i := range 5 {
		errs = append(errs, c.ask(t.Context(), "a", i+1))
	}
	c.release()
	c.held()
	before := c.proxy.Commands()
	c.proxy.Fail("READONLY You can't write against a read only replica.")
	c.release()
	c.end()
	c.proxy.Pass()
	for _, err := range errs {
		var away *gmailquota.UnavailableError
		if !errors.As(*err, &away) {
			t.Errorf("%v; want an UnavailableError", *err)
		}
	}
	// go-redis sends it again to see whether the replica was promoted.
	if n := c.proxy.Commands() - before; n > 4 {
		t.Errorf("the script was sent %d times for 5 callers", n)
	}
}

// Who waited for its turn for as long as Redis may take is told that there is no decision, before it is asked for.
func TestWhoseTurnDoesNotComeInTimeIsNotCharged(t *testing.T) {
	c := newCrowd(t)
	first := c.ask(t.Context(), "first", 0)
	c.held()
	var errs []*error
	for i := range 7 {
		errs = append(errs, c.ask(t.Context(), "a", i+1))
	}
	c.guard.SetQueueTime(-1)
	before := c.proxy.Commands()
	c.release()
	c.wg.Wait() // without another run
	for i, err := range errs {
		var away *gmailquota.UnavailableError
		if !errors.As(*err, &away) || away.Wait <= 0 {
			t.Errorf("caller %d: %v; want an UnavailableError with a wait", i, *err)
		}
	}
	if n := c.proxy.Commands() - before; n != 1 || *first != nil {
		t.Errorf("%d runs, and the first caller got %v; want its own alone", n, *first)
	}
	c.guard.SetQueueTime(time.Minute)
	next := c.ask(t.Context(), "a", 0) // Redis is well: it is asked
	if n := c.held(); n != 1 {
		t.Errorf("the next run decides for %d; want 1", n)
	}
	c.release()
	c.end()
	if s := c.state("a"); *next != nil || s.User.Tokens != 99 || s.InFlight != 1 {
		t.Errorf("%v, %d tokens and %d calls under way; want 99 and 1", *next, s.User.Tokens, s.InFlight)
	}
}

// While a slot moves, a user's key may be on the other node already.
func TestOneMovedKeyKeepsNoOtherCallerFromAnAnswer(t *testing.T) {
	c := newCrowd(t)
	c.ask(t.Context(), "first", 0)
	c.held()
	var errs []*error
	for i := range 6 {
		errs = append(errs, c.ask(t.Context(), fmt.Sprint("user-", i%3), i+1))
	}
	moved, _ := c.guard.Keys("user-1")
	c.proxy.FailFor(moved, "TRYAGAIN Multiple keys request during rehashing of slot")
	c.end()
	c.proxy.Pass()
	for i, err := range errs {
		var away *gmailquota.UnavailableError
		if isMoved := i%3 == 1; isMoved && !errors.As(*err, &away) || !isMoved && *err != nil {
			t.Errorf("user-%d: %v", i%3, *err)
		}
	}
	for user, calls := range []int{2, 0, 2} {
		if s := c.state(fmt.Sprint("user-", user)); s.User.Tokens != int64(100-calls) || s.InFlight != calls {
			t.Errorf("user-%d has %d tokens and %d calls under way; want %d calls of one unit", user, s.User.Tokens, s.InFlight, calls)
		}
	}
}

// A hook of the client panics, and the caller recovers: nobody else waits for that caller.
func TestAPanicOfTheClientHoldsNobody(t *testing.T) {
	c := newCrowd(t)
	recovered := func(account string, queued int) (got *any) {
		got = new(any)
		c.wg.Go(func() {
			defer func() { *got = recover() }()
			_, _ = c.guard.Acquire(context.Background(), immediate(account))
		})
		for c.guard.Queued() != queued {
			runtime.Gosched()
		}
		return got
	}
	first := recovered("first", 0)
	c.held()
	leads := recovered("leads", 1)
	follows := c.ask(t.Context(), "follows", 2)
	c.gate.panics.Store(true)
	c.release()
	if n := c.held(); n != 2 {
		t.Fatalf("the next run decides for %d; want 2", n)
	}
	c.release()
	c.wg.Wait()
	var away *gmailquota.UnavailableError
	if *first == nil || *leads == nil || !errors.As(*follows, &away) {
		t.Errorf("panics %v and %v, and who follows gets %v; want an UnavailableError", *first, *leads, *follows)
	}

	c.guard.Opened(time.Second)
	c.clock.Advance(time.Second)
	probe := recovered("probe", 0)
	c.held()
	c.release()
	c.wg.Wait()
	c.gate.panics.Store(false)
	next := c.ask(t.Context(), "next", 0)
	c.end()
	if *probe == nil || *next != nil {
		t.Errorf("the probe's panic is %v; afterwards %v", *probe, *next)
	}
}

// Whoever comes and goes, nobody waits for an answer that nobody asks for.
func TestCallersComeAndGo(t *testing.T) {
	r := quotatest.Embedded(t)
	g, err := gmailquota.New(r.Client, testConfig(func(c *gmailquota.Config) { c.InFlight = 1000 }))
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			for range 100 {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.IntN(3_000))*time.Microsecond)
				gr, err := g.Acquire(ctx, immediate(fmt.Sprint(i%7)))
				if err == nil {
					gr.Release()
				}
				cancel()
			}
		})
	}
	wg.Wait()
	if n := g.Queued(); n != 0 {
		t.Errorf("%d are still queued", n)
	}
	var denied *gmailquota.DeniedError
	if _, err := g.Acquire(context.Background(), immediate("a")); err != nil && !errors.As(err, &denied) {
		t.Error(err)
	}
}
