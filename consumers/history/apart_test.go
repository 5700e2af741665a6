package history

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gmailsync/gmailsync/consumers"
	"github.com/gmailsync/gmailsync/consumers/consumertest"
)

// pickyStore fails to store what holds one message.
type pickyStore struct {
	consumers.Store
	poison string
	fail   func() error
}

func (s *pickyStore) ApplyHistory(ctx context.Context, account string, step consumers.HistoryStep, now time.Time) error {
	is := func(m consumers.Message) bool { return m.ID == s.poison }
	in := slices.ContainsFunc(step.Messages, is)
	for _, t := range step.Threads {
		in = in || slices.ContainsFunc(t.Messages, is)
	}
	if in {
		return s.fail()
	}
	return s.Store.ApplyHistory(ctx, account, step, now)
}

// One message that cannot be stored kept the cursor of its mailbox where it was, for ever.
func TestMessageThatCannotBeStoredFailsAlone(t *testing.T) {
	for what, fail := range map[string]func() error{
		"a panic":  func() error { panic("a piece of mail") },
		"an error": func() error { return errors.New("string or blob too big") },
	} {
		for _, replies := range []int{0, 1} { // fetched alone, and with its thread
			t.Run(what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFixture(t)
					f.mirror(consumers.RunImport, true)
					mail := f.add(5)
					for range replies {
						f.reply(mail[2])
					}
					f.handler.Store = &pickyStore{Store: f.store, poison: mail[2].ID, fail: fail}
					f.done(f.handle())
					expect(t, "stored at once", len(f.store.Live(account)), 4)
					expect(t, "cursor", f.account().Cursor, f.box.HistoryID())
					f.settle()
					expect(t, "dead letters", len(f.store.DeadLetters(account)) > 0, true)
					expect(t, "tries", f.box.Calls(consumertest.OpGetMessage, mail[2].ID)+f.box.Calls(consumertest.OpGetThread, mail[2].ThreadID) <= 4*(1+replies), true)

					// A newer version of the program can store it: the letters are replayed.
					f.handler.Store = f.store
					var ids []int64
					for _, d := range f.store.DeadLetters(account) {
						ids = append(ids, d.ID)
					}
					n, err := f.store.ReplayDeadLetters(t.Context(), account, ids, 25, time.Now())
					f.must(err)
					expect(t, "replayed", n, len(ids))
					f.settle()
					f.equal()
					expect(t, "dead letters", len(f.store.DeadLetters(account)), 0)
				})
			})
		}
	}
}

// The same of a thread that is too large to be fetched whole, also where the pass ends in its middle.
func TestMessageOfALargeThreadThatCannotBeStoredFailsAlone(t *testing.T) {
	for _, size := range []int{1, heldLimit / 2} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t)
				talk := f.add(1)[0]
				f.mirror(consumers.RunImport, true)
				var mail []consumers.Message
				for range 6 {
					mail = append(mail, f.box.Add(consumers.Message{ThreadID: talk.ThreadID, Text: strings.Repeat("x", size)}))
				}
				f.box.LargeThread = 7
				f.handler.Store = &pickyStore{Store: f.store, poison: mail[1].ID, fail: func() error { return errors.New("too big") }}
				for range 12 {
					f.handle()
					time.Sleep(time.Minute)
				}
				letters := f.store.DeadLetters(account)
				expect(t, "stored", len(f.store.Live(account)), 6)
				if len(letters) != 1 || letters[0].MessageID != mail[1].ID {
					t.Errorf("letters %+v, want the one of the message", letters)
				}
			})
		})
	}
}

// dyingStore is a process that is killed when a step has moved the cursor.
type dyingStore struct {
	*pickyStore
	dead bool
}

func (s *dyingStore) ApplyHistory(ctx context.Context, account string, step consumers.HistoryStep, now time.Time) error {
	if s.dead {
		return errors.New("killed")
	}
	err := s.pickyStore.ApplyHistory(ctx, account, step, now)
	s.dead = err == nil && step.Cursor > 0
	return err
}

func (s *dyingStore) AddDeadLetter(ctx context.Context, d consumers.DeadLetter) error {
	if s.dead {
		return errors.New("killed")
	}
	return s.Store.AddDeadLetter(ctx, d)
}

// A kill straight after a message was given up leaves it with its dead letter.
func TestMessageThatCannotBeStoredIsNotGivenUpWithoutALetter(t *testing.T) {
	f := newFixture(t)
	f.mirror(consumers.RunImport, true)
	mail := f.add(1)[0]
	f.handler.cfg.MaxAttempts = 1
	f.handler.Store = &dyingStore{pickyStore: &pickyStore{
		Store: f.store, poison: mail.ID, fail: func() error { return errors.New("too big") },
	}}
	f.handle()
	expect(t, "dead letters", len(f.store.DeadLetters(account)), 1)
}

// What was fetched is not held any longer, also when nothing of it is to be stored.
func TestAPassWithNothingToStoreHoldsNothing(t *testing.T) {
	f := newFixture(t)
	room := consumers.NewRoom(1)
	ctx := consumers.WithPlace(t.Context())
	f.must(room.Enter(ctx))
	p := fetcher{pass: &pass{Handler: f.handler, mailbox: f.box, acct: f.account()}}
	f.must(p.store(ctx))
	other, cancel := context.WithCancel(consumers.WithPlace(t.Context()))
	cancel()
	for range 20 { // a free place and an ended context are both ready
		if room.Enter(other) == nil {
			return
		}
	}
	t.Error("the place is still held")
}
