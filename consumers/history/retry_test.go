package history

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gmailsync/gmailsync/consumers"
	"github.com/gmailsync/gmailsync/consumers/consumertest"
	"github.com/gmailsync/gmailsync/gmailquota"
)

// settle handles until nothing is on the retry list, as the sweeper would when it is due.
func (f *fixture) settle() {
	f.Helper()
	for range 20 {
		f.done(f.handle())
		list := f.store.Fetches(account)
		if len(list) == 0 {
			return
		}
		time.Sleep(time.Until(list[0].Due) + time.Second)
	}
	f.Fatalf("still on the retry list: %+v", f.store.Fetches(account))
}

// kenn-io/msgvault#260: a run with failed fetches moved the cursor, and the next one said all was up to date.
func TestFailedFetchesAreFetchedLaterAndHoldUpNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.mirror(consumers.RunImport, true)
		mail := f.add(10)
		for _, i := range []int{3, 6} {
			f.box.Inject(consumertest.Fault{Op: consumertest.OpGetMessage, ID: mail[i].ID, Times: 1, Err: errPassing})
		}
		f.done(f.handle())
		expect(t, "stored in the first run", len(f.store.Live(account)), 8)
		expect(t, "on the retry list", len(f.store.Fetches(account)), 2)
		time.Sleep(2 * time.Second)
		f.done(f.handle())
		f.equal()
		expect(t, "fetches", f.fetches(), 12)
		expect(t, "dead letters", len(f.store.DeadLetters(account)), 0)
	})
}

// kenn-io/msgvault#275: a shutdown in the middle counted as failure of the messages.
func TestShutdownInTheMiddleKeepsWhatIsFetchedAndFailsNothing(t *testing.T) {
	f := newFixture(t)
	f.mirror(consumers.RunImport, true)
	mail := f.add(10)
	ctx, stop := context.WithCancel(t.Context())
	f.box.OnCall = func(_, id string) {
		if id == mail[5].ID {
			stop()
		}
	}
	out := f.handler.Handle(ctx, consumers.Job{Kind: consumers.History, Account: account})
	expect(t, "verdict", out.Verdict, consumers.VerdictRequeue)
	expect(t, "stored", len(f.store.Live(account)), 5)
	expect(t, "cursor", f.account().Cursor, mail[4].HistoryID)
	expect(t, "retry list", len(f.store.Fetches(account)), 0)

	f.box.OnCall = nil
	f.done(f.handle())
	f.equal()
	expect(t, "fetches, none twice", f.fetches(), 10)
}

func TestDenialInTheMiddleRequeuesOnlyTheRest(t *testing.T) {
	f := newFixture(t)
	old := f.add(1)[0]
	f.mirror(consumers.RunImport, true)
	before := f.fetches()
	mail := f.add(4)
	f.box.Relabel(old.ID, []string{"STARRED"}, nil)
	mail = append(mail, f.add(3)...)
	f.box.Relabel(old.ID, []string{"IMPORTANT"}, nil)
	f.box.Inject(consumertest.Fault{Op: consumertest.OpGetMessage, ID: mail[4].ID, Times: 3, Err: errThrottled})
	for range 3 {
		out := f.handle()
		expect(t, "verdict", out.Verdict, consumers.VerdictRequeue)
		expect(t, "wait", out.After, errThrottled.Wait)
		expect(t, "stored", len(f.store.Live(account)), 5)
		expect(t, "cursor stands before what was denied", f.account().Cursor, mail[4].HistoryID-1)
	}
	f.done(f.handle())
	f.equal()
	expect(t, "fetches but for the denied ones", f.fetches()-before, 7+3)
	expect(t, "retry list", len(f.store.Fetches(account)), 0)
}

func TestCursorStandsBetweenRecords(t *testing.T) {
	at := func(ids ...consumers.HistoryID) []consumers.Change {
		changes := make([]consumers.Change, len(ids))
		for i, id := range ids {
			changes[i].HistoryID = id
		}
		return changes
	}
	changes := at(5, 6, 6, 6, 7)
	for i, want := range []int{0, 1, 1, 1, 4} {
		expect(t, "start of the record", recordStart(changes, i), want)
	}
}

// dxos/dxos#12466: a 404 on one message stopped the mailbox, or the message was dropped at once.
func TestMessageThatIsNotFound(t *testing.T) {
	notFound := func(f *fixture, id string, times int) {
		for _, op := range []string{consumertest.OpGetMessage, consumertest.OpGetThread} {
			f.box.Inject(consumertest.Fault{Op: op, ID: id, Times: times, Err: errGone})
		}
	}
	for _, c := range []struct {
		what   string
		harm   func(f *fixture, mail []consumers.Message)
		stored int
		tries  int
	}{
		{"for ever", func(f *fixture, mail []consumers.Message) { notFound(f, mail[1].ID, 0) }, 2, goneAttempts},
		{"for some seconds", func(f *fixture, mail []consumers.Message) { notFound(f, mail[1].ID, 1) }, 3, 3},
		{"until history shows its deletion", func(f *fixture, mail []consumers.Message) {
			f.box.OnCall = func(op, id string) {
				if op == consumertest.OpGetMessage && id == mail[1].ID {
					f.box.Delete(id)
				}
			}
		}, 2, 1},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t)
				f.mirror(consumers.RunImport, true)
				mail := f.add(3)
				start := time.Now()
				c.harm(f, mail)
				f.done(f.handle())
				expect(t, "the others are stored at once", len(f.store.Live(account)), 2)
				f.box.OnCall = nil
				f.settle()
				expect(t, "stored", len(f.store.Live(account)), c.stored)
				expect(t, "cursor", f.account().Cursor, f.box.HistoryID())
				expect(t, "within ten seconds", time.Since(start) < 10*time.Second, true)
				tries := f.box.Calls(consumertest.OpGetMessage, mail[1].ID) + f.box.Calls(consumertest.OpGetThread, mail[1].ThreadID)
				expect(t, "tries", tries, c.tries)
				expect(t, "dead letters", len(f.store.DeadLetters(account)), 0)
			})
		})
	}
}

// dxos/dxos#12466: the 404 of a whole thread.
func TestThreadThatIsNotFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.mirror(consumers.RunImport, true)
		first := f.add(1)[0]
		second := f.reply(first)
		f.box.OnCall = func(op, _ string) {
			if op == consumertest.OpGetThread {
				f.box.Delete(first.ID)
				f.box.Delete(second.ID)
			}
		}
		f.done(f.handle())
		f.box.OnCall = nil
		f.settle()
		f.equal()
	})
}

func TestThreadThatLacksTheNewMessageIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		m := f.add(1)[0]
		f.mirror(consumers.RunImport, true)
		f.reply(m)
		late := f.reply(m)
		hidden := true
		f.handler.Mailboxes = lacking{consumertest.Mailboxes{account: f.box}, late.ID, &hidden}
		f.done(f.handle())
		expect(t, "on the retry list", f.store.Fetches(account)[0].MessageID, late.ID)
		hidden = false
		f.settle()
		f.equal()
	})
}

func TestOutageOfGmailCountsAgainstNoMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.mirror(consumers.RunImport, true)
		mail := f.add(20)
		f.box.Inject(consumertest.Fault{Op: consumertest.OpGetMessage, ID: mail[0].ID, Times: 1, Err: errPassing})
		f.box.Inject(consumertest.Fault{Op: consumertest.OpGetMessage, ID: mail[4].ID, Times: 1, Err: errPassing})
		f.box.OnCall = func(_, id string) {
			if id == mail[4].ID {
				f.box.Inject(consumertest.Fault{Err: errPassing})
			}
		}
		expect(t, "verdict", f.handle().Verdict, consumers.VerdictRetry)
		expect(t, "stored before it", len(f.store.Live(account)), 3)
		expect(t, "cursor", f.account().Cursor, mail[3].HistoryID)
		for range 100 {
			time.Sleep(time.Minute)
			expect(t, "verdict, for the runner's backoff", f.handle().Verdict, consumers.VerdictRetry)
		}
		expect(t, "retry list", len(f.store.Fetches(account)), 1)
		expect(t, "attempts", f.store.Fetches(account)[0].Attempts, 1)
		f.box.OnCall = nil
		f.box.Heal()
		f.settle()
		f.equal()
	})
}

func TestFailuresInARowLeaveTheRestOfThePageForLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.mirror(consumers.RunImport, true)
		f.add(200)
		f.box.Inject(consumertest.Fault{Op: consumertest.OpGetMessage, Err: errPassing})
		f.box.Inject(consumertest.Fault{Op: consumertest.OpGetThread, Err: errPassing})
		expect(t, "verdict", f.handle().Verdict, consumers.VerdictRetry)
		expect(t, "tries", f.fetches(), maxInARow)
		expect(t, "retry list", len(f.store.Fetches(account)), maxInARow)
		f.box.Heal()
		f.settle()
		f.equal()
	})
}

func TestPoisonBecomesADeadLetterAndHoldsUpNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.mirror(consumers.RunImport, true)
		mail := f.add(5)
		for _, op := range []string{consumertest.OpGetMessage, consumertest.OpGetThread} {
			f.box.Inject(consumertest.Fault{Op: op, ID: mail[2].ID, Err: errPassing})
		}
		f.settle()
		dead := f.store.DeadLetters(account)
		if len(dead) != 1 {
			t.Fatalf("got %d dead letters, want 1", len(dead))
		}
		expect(t, "message", dead[0].MessageID, mail[2].ID)
		expect(t, "attempts", dead[0].Attempts, 4)
		expect(t, "stored", len(f.store.Live(account)), 4)
		expect(t, "cursor", f.account().Cursor, f.box.HistoryID())
	})
}

func TestMessageThatPanicsFailsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.mirror(consumers.RunImport, true)
		mail := f.add(5)
		f.box.OnCall = func(op, id string) {
			if (op == consumertest.OpGetMessage || op == consumertest.OpGetThread) && id == mail[2].ID {
				panic("a piece of mail")
			}
		}
		f.done(f.handle())
		expect(t, "stored at once", len(f.store.Live(account)), 4)
		f.settle()
		dead := f.store.DeadLetters(account)
		if len(dead) != 1 {
			t.Fatalf("got %d dead letters, want 1", len(dead))
		}
		expect(t, "message", dead[0].MessageID, mail[2].ID)
		expect(t, "cause", dead[0].Cause, "panic: string")
		expect(t, "cursor", f.account().Cursor, f.box.HistoryID())
	})
}

func TestThrottleOnTheRetryListIsNoAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.mirror(consumers.RunImport, true)
		mail := f.add(1)
		f.box.Inject(consumertest.Fault{Op: consumertest.OpGetMessage, ID: mail[0].ID, Times: 1, Err: errPassing})
		f.done(f.handle())
		f.box.Inject(consumertest.Fault{Op: consumertest.OpGetThread, ID: mail[0].ID, Times: 10, Err: errThrottled})
		for range 10 {
			time.Sleep(10 * time.Second)
			out := f.handle()
			expect(t, "wait", out.After, errThrottled.Wait)
			expect(t, "attempts", f.store.Fetches(account)[0].Attempts, 1)
		}
		f.settle()
		f.equal()
	})
}

func TestChangesInThreadsThatARunHasOpen(t *testing.T) {
	f := newFixture(t)
	mail := f.add(3)
	f.mirror(consumers.RunImport, false)
	f.box.Relabel(mail[0].ID, []string{"STARRED"}, nil)
	f.done(f.handle())
	expect(t, "fetches for a label", f.fetches(), 0)
	expect(t, "retry list", len(f.store.Fetches(account)), 0)

	reply := f.reply(mail[1])
	f.done(f.handle())
	expect(t, "fetches for a new message", f.box.Calls(consumertest.OpGetMessage, reply.ID), 1)
	expect(t, "stored while the import goes on", len(f.store.Live(account)), 1)
}

// lacking is a mailbox whose threads do not show one message yet.
type lacking struct {
	consumertest.Mailboxes
	id     string
	hidden *bool
}

func (l lacking) Mailbox(ctx context.Context, account string, class gmailquota.Class) (consumers.Mailbox, error) {
	m, err := l.Mailboxes.Mailbox(ctx, account, class)
	return lackingBox{m, l}, err
}

type lackingBox struct {
	consumers.Mailbox
	l lacking
}

func (b lackingBox) GetThread(ctx context.Context, id string) (consumers.Thread, error) {
	t, err := b.Mailbox.GetThread(ctx, id)
	if *b.l.hidden {
		t.Messages = slices.DeleteFunc(t.Messages, func(m consumers.Message) bool { return m.ID == b.l.id })
	}
	return t, err
}

// onyx-dot-app/onyx#5948: of a thread that is too large to be fetched whole the named messages are fetched, and a page full of
// large messages is stored in pieces.
func TestLargeMailIsStoredInPieces(t *testing.T) {
	for name, large := range map[string]bool{"thread": true, "messages": false} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			talk := f.add(1)[0]
			f.mirror(consumers.RunImport, true)
			body := strings.Repeat("x", heldLimit/2)
			for range 6 {
				m := consumers.Message{Text: body}
				if large {
					m.ThreadID = talk.ThreadID
				}
				f.box.Add(m)
			}
			if large {
				f.box.LargeThread = 7
			}
			expect(t, "first pass", f.handle().Verdict, consumers.Yield().Verdict)
			for pass := 1; f.handle() != consumers.Done(); pass++ {
				if pass > 5 {
					t.Fatal("never done")
				}
			}
			expect(t, "messages.get", f.box.Calls(consumertest.OpGetMessage), 6)
			f.equal()
		})
	}
}
