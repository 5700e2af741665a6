package threadbatch

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gmailsync/gmailsync/consumers"
	"github.com/gmailsync/gmailsync/consumers/consumertest"
)

// newLargeFixture has one thread of n messages that is too large to be fetched whole, the only one of its batch.
func newLargeFixture(t *testing.T, n int) *fixture {
	f := newFixture(t, 1, 5)
	for range n - 1 {
		f.box.Add(consumers.Message{ThreadID: f.threads[0]})
	}
	f.box.LargeThread = n
	return f
}

// complete tells whether the thread is, and how many of its messages are stored and live.
func (f *fixture) complete() (bool, int) {
	f.Helper()
	states, err := f.store.Threads(f.Context(), account, f.threads)
	f.must(err)
	return states[f.threads[0]].Complete, len(f.store.Live(account))
}

// onyx-dot-app/onyx#5948, lobu-ai/lobu#3498: a thread that is too large for the memory comes message by message; a denial
// or the end of a slot's time in the middle fetches nothing twice, and it is complete only at its end.
func TestLargeThreadIsStoredMessageByMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 40
		f := newLargeFixture(t, n)
		f.box.Inject(consumertest.Fault{Op: consumertest.OpGetMessage, Skip: 7, Times: 3, Err: errThrottled})
		f.box.OnCall = func(op, _ string) {
			if op == consumertest.OpGetMessage {
				time.Sleep(400 * time.Millisecond)
			}
		}
		expect(t, "verdict", f.handle().Verdict, consumers.VerdictRequeue)
		whole, stored := f.complete()
		expect(t, "complete after seven messages", whole, false)
		expect(t, "stored", stored, 7)
		f.handleUntilDone()
		whole, stored = f.complete()
		expect(t, "complete", whole, true)
		expect(t, "stored", stored, n)
		expect(t, "threads.get", f.box.Calls(consumertest.OpGetThread), 1)
		expect(t, "outlines", f.box.Calls(consumertest.OpThreadOutline), 1)
		expect(t, "messages.get", f.box.Calls(consumertest.OpGetMessage), n+3)
	})
}

// A crash between two messages loses none and fetches none again: the store knows what is there.
func TestLargeThreadGoesOnAfterACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 20
		f := newLargeFixture(t, n)
		f.box.Inject(consumertest.Fault{Op: consumertest.OpGetMessage, Skip: 11, Times: 1, Err: errThrottled})
		expect(t, "verdict", f.handle().Verdict, consumers.VerdictRequeue)
		f.handler = New(f.handler.Base, f.handler.cfg)
		f.handleUntilDone()
		whole, stored := f.complete()
		expect(t, "complete", whole, true)
		expect(t, "stored", stored, n)
		expect(t, "messages.get", f.box.Calls(consumertest.OpGetMessage), n+1)
	})
}

// What happens to a large thread while it is being fetched is either in the messages or applied by history afterwards.
func TestLargeThreadThatChangesMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 12
		f := newLargeFixture(t, n)
		all, err := f.box.ThreadOutline(t.Context(), f.threads[0])
		f.must(err)
		deleted, starred := all.Messages[8].ID, all.Messages[9].ID
		changed := false
		f.box.OnCall = func(op, _ string) {
			if op == consumertest.OpGetMessage && !changed {
				changed = true
				f.box.Delete(deleted)
				f.box.Relabel(starred, []string{"STARRED"}, nil)
			}
		}
		f.handleUntilDone()
		whole, stored := f.complete()
		expect(t, "complete", whole, true)
		expect(t, "stored", stored, n-1)
		for _, m := range f.store.Live(account) {
			if m.ID == starred && !slices.Contains(m.Labels, "STARRED") {
				t.Errorf("labels %v, want the star", m.Labels)
			}
		}
	})
}

// One message that cannot be had keeps none of its thread's others from being stored. Its thread ends as
// a dead letter after bounded tries, which fetch only that message again.
func TestBadMessageOfAThreadFailsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 12
		f := newLargeFixture(t, n)
		all, err := f.box.ThreadOutline(t.Context(), f.threads[0])
		f.must(err)
		f.fail(consumertest.OpGetMessage, all.Messages[4].ID, 0, errPassing)
		f.handleUntilDone()
		whole, stored := f.complete()
		expect(t, "complete", whole, false)
		expect(t, "stored", stored, n-1)
		expect(t, "dead letters", len(f.store.DeadLetters(account)), 1)
		expect(t, "progress", f.progress(), consumers.Progress{Listed: 1, Failed: 1})
		expect(t, "messages.get", f.box.Calls(consumertest.OpGetMessage), n-1+f.handler.cfg.MaxAttempts)
	})
}

// A panic on one message of a large thread is that message's failure: the others are stored.
func TestPanicOnAMessageOfALargeThreadFailsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 12
		f := newLargeFixture(t, n)
		all, err := f.box.ThreadOutline(t.Context(), f.threads[0])
		f.must(err)
		f.box.OnCall = func(op, id string) {
			if op == consumertest.OpGetMessage && id == all.Messages[4].ID {
				panic("a piece of mail")
			}
		}
		f.handleUntilDone()
		_, stored := f.complete()
		expect(t, "stored", stored, n-1)
		expect(t, "dead letters", len(f.store.DeadLetters(account)), 1)
	})
}

// Bad messages that use up the time of a slot keep the others waiting only once.
func TestSlowBadMessagesComeLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, bad = 20, 8
		f := newLargeFixture(t, n)
		all, err := f.box.ThreadOutline(t.Context(), f.threads[0])
		f.must(err)
		for _, m := range all.Messages[:bad] {
			f.fail(consumertest.OpGetMessage, m.ID, 0, errPassing)
		}
		f.box.OnCall = func(op, _ string) {
			if op == consumertest.OpGetMessage {
				time.Sleep(time.Second)
			}
		}
		f.handleUntilDone()
		_, stored := f.complete()
		expect(t, "stored", stored, n-bad)
		expect(t, "dead letters", len(f.store.DeadLetters(account)), 1)
	})
}

// unreadable is a mailbox whose outlines lack a message.
type unreadable struct{ consumers.Mailbox }

func (u unreadable) ThreadOutline(ctx context.Context, id string) (consumers.Thread, error) {
	t, err := u.Mailbox.ThreadOutline(ctx, id)
	t.Messages, t.Unreadable = t.Messages[1:], 1
	return t, err
}

// A message without a readable id fails the thread, after the others are stored: nothing else would ever tell of it.
func TestMessageWithoutIDIsNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newLargeFixture(t, 5)
		b, _, err := f.store.Batch(t.Context(), account, f.batches[0].ID)
		f.must(err)
		err = f.handler.fetchOne(t.Context(), unreadable{f.box}, b, f.threads[0])
		whole, stored := f.complete()
		expect(t, "failure", errors.Is(err, errUnreadable) && countable(err), true)
		expect(t, "complete", whole, false)
		expect(t, "stored", stored, 4)
	})
}
