package consumers_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	. "github.com/gmailsync/gmailsync/consumers"
	"github.com/gmailsync/gmailsync/consumers/consumertest"
	"github.com/gmailsync/gmailsync/gmailquota"
)

const (
	gmailTakes = 100 * time.Millisecond // a call of Gmail
	queueTakes = 50 * time.Millisecond  // a job on its way, at most
	slotSleeps = 3 * time.Second        // guard.maxWait's default
)

// guardedBoxes puts the real guard, with the limits of a new Google project, before the mailboxes. Its buckets are those
// in the process: the same core as the Redis script's, and sockets would stop the virtual time.
type guardedBoxes struct {
	boxes consumertest.Mailboxes
	guard *gmailquota.Guard
}

func newGuardedBoxes(t *testing.T, boxes consumertest.Mailboxes) guardedBoxes {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{})
	rdb.AddHook(noRedis{})
	t.Cleanup(func() { _ = rdb.Close() })
	guard, err := gmailquota.New(rdb, gmailquota.DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	return guardedBoxes{boxes, guard}
}

// noRedis is a hook that lets nothing reach a server.
type noRedis struct{}

var errNoRedis = errors.New("there is no Redis")

func (noRedis) DialHook(next redis.DialHook) redis.DialHook { return next }

func (noRedis) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, c redis.Cmder) error {
		c.SetErr(errNoRedis)
		return errNoRedis
	}
}

func (noRedis) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(context.Context, []redis.Cmder) error { return errNoRedis }
}

// Mailbox implements Mailboxes.
func (g guardedBoxes) Mailbox(ctx context.Context, account string, class gmailquota.Class) (Mailbox, error) {
	box, err := g.boxes.Mailbox(ctx, account, class)
	return &guardedBox{box, g.guard, account, class}, err
}

// guardedBox asks the guard once for each call, as gmailapi does.
type guardedBox struct {
	Mailbox
	guard   *gmailquota.Guard
	account string
	class   gmailquota.Class
}

func guardedCall[T any](ctx context.Context, b *guardedBox, method string, call func() (T, error)) (T, error) {
	var none T
	request := gmailquota.Request{Account: b.account, Method: method, Class: b.class, MaxWait: slotSleeps}
	grant, err := b.guard.Acquire(ctx, request)
	var denied *gmailquota.DeniedError
	switch {
	case errors.As(err, &denied):
		return none, &MailboxError{Op: method, Fault: Throttled, Denied: true, Wait: denied.Wait}
	case err != nil:
		return none, &MailboxError{Op: method, Fault: Passing, Err: err}
	}
	defer grant.Release()
	time.Sleep(grant.Wait() + gmailTakes)
	return call()
}

func (b *guardedBox) Profile(ctx context.Context) (Profile, error) {
	return guardedCall(ctx, b, "getProfile", func() (Profile, error) { return b.Mailbox.Profile(ctx) })
}

func (b *guardedBox) Labels(ctx context.Context) ([]Label, error) {
	return guardedCall(ctx, b, "labels.list", func() ([]Label, error) { return b.Mailbox.Labels(ctx) })
}

func (b *guardedBox) ListThreads(ctx context.Context, token string) (ThreadPage, error) {
	return guardedCall(ctx, b, "threads.list", func() (ThreadPage, error) { return b.Mailbox.ListThreads(ctx, token) })
}

func (b *guardedBox) GetThread(ctx context.Context, id string) (Thread, error) {
	return guardedCall(ctx, b, "threads.get", func() (Thread, error) { return b.Mailbox.GetThread(ctx, id) })
}

func (b *guardedBox) ThreadOutline(ctx context.Context, id string) (Thread, error) {
	return guardedCall(ctx, b, "threads.get", func() (Thread, error) { return b.Mailbox.ThreadOutline(ctx, id) })
}

func (b *guardedBox) GetMessage(ctx context.Context, id string) (Message, error) {
	return guardedCall(ctx, b, "messages.get", func() (Message, error) { return b.Mailbox.GetMessage(ctx, id) })
}

func (b *guardedBox) History(ctx context.Context, start HistoryID, token string) (HistoryPage, error) {
	return guardedCall(ctx, b, "history.list", func() (HistoryPage, error) { return b.Mailbox.History(ctx, start, token) })
}

// ages measures from delivery to stored: a message is stored when the cursor has passed its record.
type ages struct {
	mu      sync.Mutex
	waiting map[string][]delivered
	took    map[string][]time.Duration
}

type delivered struct {
	history HistoryID
	at      time.Time
}

func (a *ages) delivered(account string, h HistoryID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waiting[account] = append(a.waiting[account], delivered{h, time.Now()})
}

func (a *ages) applied(account string, cursor HistoryID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.waiting[account]) > 0 && a.waiting[account][0].history <= cursor {
		a.took[account] = append(a.took[account], time.Since(a.waiting[account][0].at))
		a.waiting[account] = a.waiting[account][1:]
	}
}

// percentile is the age below which a share of these accounts' mail was stored, and how much mail that was.
func (a *ages) percentile(share float64, accounts ...string) (time.Duration, int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var all []time.Duration
	for _, id := range accounts {
		all = append(all, a.took[id]...)
	}
	if len(all) == 0 {
		return 0, 0
	}
	slices.Sort(all)
	return all[min(int(share*float64(len(all))), len(all)-1)], len(all)
}

// s1t5/mail-archiver#80: one huge mailbox delayed everybody's new mail. While one account imports, at the pace that its
// quota gives, it and nine others get a mail every second: those are stored within a second, and its own within three.
// GMAILSYNC_IMPORT=20000 imports as many threads instead of 2,000.
func TestNewMailIsFreshWhileAnAccountImports(t *testing.T) {
	threads := 2000
	if n, err := strconv.Atoi(os.Getenv("GMAILSYNC_IMPORT")); err == nil {
		threads = n
	}
	const others = 9
	inWorld(t, others+1, func(w *world) {
		guarded := newGuardedBoxes(w.t, w.boxes)
		seen := &ages{waiting: map[string][]delivered{}, took: map[string][]time.Duration{}}
		w.guarded, w.applied = guarded, seen.applied
		var quick []string
		for i := 1; i <= others; i++ {
			quick = append(quick, account(i))
			fill(w.boxes[account(i)], 1)
		}
		importing := account(0)
		huge := w.boxes[importing]
		huge.PageSize = 500
		for i := range threads {
			huge.Add(Message{Subject: fmt.Sprint("old ", i)})
		}
		w.start()
		w.queue.trouble(0, 0, queueTakes)
		pass(10 * time.Second) // the others' imports

		began := time.Now()
		for w.account(importing).State == Importing {
			for i := range others + 1 {
				id := account(i)
				seen.delivered(id, w.boxes[id].Add(Message{}).HistoryID)
				w.push(id)
				time.Sleep(time.Second / (others + 1))
			}
			if time.Since(began) > 24*time.Hour {
				w.t.Fatal("the import does not end")
			}
		}
		took := time.Since(began)
		pass(10 * time.Second)
		for _, c := range []struct {
			who      string
			accounts []string
			below    time.Duration
		}{{"nine others", quick, time.Second}, {"the importing account", []string{importing}, 3 * time.Second}} {
			half, n := seen.percentile(0.5, c.accounts...)
			p99, _ := seen.percentile(0.99, c.accounts...)
			worst, _ := seen.percentile(1, c.accounts...)
			w.t.Logf("%s: %d mails while %d threads were imported in %s: median %s, p99 %s, worst %s",
				c.who, n, threads, took, half, p99, worst)
			if n < int(took.Seconds())*len(c.accounts)*99/100 || p99 >= c.below {
				w.t.Errorf("%s: p99 of %d mails %s, want below %s", c.who, n, p99, c.below)
			}
		}
		w.settled()
	})
}
