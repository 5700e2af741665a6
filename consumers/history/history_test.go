package history

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gmailsync/gmailsync/consumers"
	"github.com/gmailsync/gmailsync/consumers/consumertest"
)

// googleworkspace/python-samples#200: the notification's id was taken as the start, so that every history was empty. A job
// does not even have it.
func TestStartIsTheStoredCursor(t *testing.T) {
	f := newFixture(t)
	f.add(3)
	f.mirror(consumers.RunImport, true)
	cursor := f.account().Cursor
	f.add(1)
	for range 3 {
		f.done(f.handle())
	}
	expect(t, "calls from the stored cursor", f.box.Calls(consumertest.OpHistory, cursor.String()), 1)
	f.equal()
}

// googleworkspace/python-samples#200: without a cursor the run was empty and said all was well.
func TestWithoutACursorTheInitialSyncIsCalled(t *testing.T) {
	f := newFixture(t)
	f.done(f.handle())
	expect(t, "initial-sync jobs", f.queue.kinds()[consumers.InitialSync], 1)
	expect(t, "history calls", f.box.Calls(consumertest.OpHistory), 0)
}

// Each event costs what the package's table says.
func TestCostOfEachEvent(t *testing.T) {
	type box = *fixture
	for _, c := range []struct {
		event             string
		change            func(f box, old, talk consumers.Message)
		messages, threads int // messages.get, threads.get
	}{
		{"label change", func(f box, old, _ consumers.Message) { f.box.Relabel(old.ID, []string{"STARRED"}, []string{"UNREAD"}) }, 0, 0},
		{"trash", func(f box, old, _ consumers.Message) { f.box.Relabel(old.ID, []string{"TRASH"}, []string{"INBOX"}) }, 0, 0},
		{"deletion", func(f box, old, _ consumers.Message) { f.box.Delete(old.ID) }, 0, 0},
		{"deletion of one in a thread", func(f box, _, talk consumers.Message) { f.box.Delete(talk.ID) }, 0, 0},
		{"added and deleted", func(f box, _, _ consumers.Message) { f.box.Delete(f.add(1)[0].ID) }, 0, 0},
		{"added, relabelled and deleted", func(f box, _, _ consumers.Message) {
			m := f.add(1)[0]
			f.box.Relabel(m.ID, []string{"STARRED"}, nil)
			f.box.Delete(m.ID)
		}, 0, 0},
		{"new thread", func(f box, _, _ consumers.Message) { f.add(1) }, 1, 0},
		{"new message, then read", func(f box, _, _ consumers.Message) { f.box.Relabel(f.add(1)[0].ID, nil, []string{"UNREAD"}) }, 1, 0},
		{"reply", func(f box, _, talk consumers.Message) { f.reply(talk) }, 1, 0},
		{"replies to two threads", func(f box, old, talk consumers.Message) { f.reply(talk); f.reply(old) }, 2, 0},
		{"two replies", func(f box, _, talk consumers.Message) { f.reply(talk); f.reply(talk) }, 0, 1},
		{"new thread of three", func(f box, _, _ consumers.Message) { m := f.add(1)[0]; f.reply(m); f.reply(m) }, 0, 1},
		{"reply in a thread not known", func(f box, _, _ consumers.Message) {
			f.box.Add(consumers.Message{ThreadID: "00000000000000ff"})
		}, 0, 1},
	} {
		t.Run(c.event, func(t *testing.T) {
			f := newFixture(t)
			old, talk := f.add(1)[0], f.add(1)[0]
			f.reply(talk)
			f.mirror(consumers.RunImport, true)
			before := f.box.Calls(consumertest.OpGetThread)
			c.change(f, old, talk)
			f.done(f.handle())
			expect(t, "messages.get", f.box.Calls(consumertest.OpGetMessage), c.messages)
			expect(t, "threads.get", f.box.Calls(consumertest.OpGetThread)-before, c.threads)
			expect(t, "history.list", f.box.Calls(consumertest.OpHistory), 1)
			f.equal()
		})
	}
}

// warmbly/warmbly#58: history gives stubs only, and rows had another key than the events.
func TestAddRelabelAndDeleteOfOneMessage(t *testing.T) {
	f := newFixture(t)
	f.mirror(consumers.RunImport, true)
	m := f.box.Add(consumers.Message{Subject: "plans", RFCMessageID: "x@example.com"})
	f.done(f.handle())
	got := f.store.Live(account)
	expect(t, "subject", got[0].Subject, "plans")
	expect(t, "labels", fmt.Sprint(got[0].Labels), "[INBOX UNREAD]")

	f.box.Relabel(m.ID, nil, []string{"UNREAD"})
	f.done(f.handle())
	expect(t, "labels", fmt.Sprint(f.store.Live(account)[0].Labels), "[INBOX]")

	f.box.Delete(m.ID)
	f.done(f.handle())
	expect(t, "messages", len(f.store.Live(account)), 0)
	f.equal()
}

// gauteh/lieer#36: a trashed thread stayed in the inbox, or as an empty shell.
func TestThreadGoesToTrashAndPartOfItIsDeleted(t *testing.T) {
	f := newFixture(t)
	one := f.add(1)[0]
	two, three := f.reply(one), f.reply(one)
	f.mirror(consumers.RunImport, true)
	for _, m := range []consumers.Message{one, two, three} {
		f.box.Relabel(m.ID, []string{"TRASH"}, []string{"INBOX"})
	}
	f.done(f.handle())
	f.equal()
	f.box.Relabel(two.ID, []string{"INBOX"}, []string{"TRASH"})
	f.box.Delete(one.ID)
	f.box.Delete(three.ID)
	f.done(f.handle())
	f.equal()
	f.box.Delete(two.ID)
	f.done(f.handle())
	expect(t, "messages", len(f.store.Live(account)), 0)
	f.equal()
}

// elie222/inbox-zero#1212: only the first page was read, or the start was moved forward to bound the work.
func TestLongGapIsAppliedInSlicesAndInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.box.PageSize = 500
		f.mirror(consumers.RunImport, true)
		f.add(1250)
		f.box.OnCall = func(op, _ string) {
			if op == consumertest.OpGetMessage {
				time.Sleep(consumers.Slice / 600)
			}
		}
		yields := 0
		for {
			out := f.handle()
			if out.Verdict == consumers.VerdictDone {
				break
			}
			expect(t, "verdict", out, consumers.Yield())
			yields++
		}
		expect(t, "slices before the last", yields >= 2, true)
		expect(t, "fetched", f.box.Calls(consumertest.OpGetMessage), 1250)
		f.equal()
		for i := 1; i < len(f.applied); i++ {
			if f.applied[i] <= f.applied[i-1] {
				t.Errorf("the cursor goes from %d to %d", f.applied[i-1], f.applied[i])
			}
		}

		f.box.Relabel(f.box.Live()[0].ID, nil, nil) // a new history id and no record
		f.done(f.handle())
		expect(t, "cursor", f.account().Cursor, f.box.HistoryID())
		expect(t, "up to date now", f.account().HistoryAt.Equal(time.Now()), true)
	})
}

// elie222/inbox-zero#1292: the slower of two consumers moved the cursor back and old labels returned.
func TestTwoConsumersOfOneAccountEndLikeOne(t *testing.T) {
	for seed := range uint64(1000) {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t)
			random := rand.New(rand.NewPCG(seed, 1))
			f.box.PageSize = 3
			mail := f.add(4)
			f.mirror(consumers.RunImport, true)
			f.mutate(random, mail, 6)

			var mu sync.Mutex
			top := f.account().Cursor
			f.box.OnCall = func(string, string) {
				mu.Lock()
				nap := time.Duration(random.IntN(5)) * time.Millisecond
				mu.Unlock()
				time.Sleep(nap)
				mu.Lock()
				defer mu.Unlock()
				cursor := f.account().Cursor
				if cursor < top {
					t.Errorf("the cursor goes from %d back to %d", top, cursor)
				}
				top = cursor
			}
			var wg sync.WaitGroup
			for i := range 2 {
				h := f.newHandler(nil)
				wg.Go(func() {
					time.Sleep(time.Duration(i) * time.Millisecond)
					h.Handle(context.Background(), consumers.Job{Kind: consumers.History, Account: account})
				})
			}
			time.Sleep(3 * time.Millisecond)
			mu.Lock()
			f.mutate(random, mail, 2)
			mu.Unlock()
			wg.Wait()
			time.Sleep(time.Hour)
			for f.handle().Verdict != consumers.VerdictDone || len(f.store.Fetches(account)) > 0 {
				time.Sleep(2 * time.Second)
			}
			f.equal()
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// mutate makes n random changes.
func (f *fixture) mutate(random *rand.Rand, mail []consumers.Message, n int) {
	for range n {
		m := mail[random.IntN(len(mail))]
		switch random.IntN(5) {
		case 0:
			f.add(1)
		case 1:
			f.reply(m)
		case 2:
			f.box.Relabel(m.ID, []string{"STARRED"}, []string{"UNREAD"})
		case 3:
			f.box.Relabel(m.ID, []string{"UNREAD"}, []string{"STARRED"})
		case 4:
			f.box.Delete(m.ID)
		}
	}
}

// gauteh/lieer#203: a full sync, the same old cursor, a full sync again, without end.
func TestSecondExpiryStraightAfterAResyncIsAnAlarm(t *testing.T) {
	f := newFixture(t)
	f.add(3)
	f.mirror(consumers.RunImport, true)
	f.box.Inject(consumertest.Fault{Op: consumertest.OpHistory, Err: errGone})
	f.done(f.handle())
	expect(t, "state", f.account().State, consumers.Resyncing)
	expect(t, "initial-sync jobs", f.queue.kinds()[consumers.InitialSync], 1)
	f.done(f.handle())
	expect(t, "state while the resync runs", f.account().State, consumers.Resyncing)

	f.mirror(consumers.RunResync, true)
	listed := f.box.Calls(consumertest.OpListThreads)
	f.handler = f.newHandler(nil) // the process was started anew
	f.done(f.handle())
	expect(t, "state", f.account().State, consumers.Stopped)
	f.done(f.handle())
	expect(t, "listings after the alarm", f.box.Calls(consumertest.OpListThreads)-listed, 0)
}

func TestExpiryLongAfterAResyncIsAnotherResync(t *testing.T) {
	for what, between := range map[string]func(f *fixture){
		"history was read meanwhile": func(f *fixture) { f.box.Heal(); f.done(f.handle()) },
		"a day has passed":           func(*fixture) { time.Sleep(25 * time.Hour) },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t)
				f.add(1)
				f.mirror(consumers.RunImport, true)
				for range 2 {
					f.box.Inject(consumertest.Fault{Op: consumertest.OpHistory, Err: errGone})
					f.done(f.handle())
					expect(t, "state", f.account().State, consumers.Resyncing)
					f.mirror(consumers.RunResync, true)
					between(f)
				}
			})
		})
	}
}

// openclaw/gogcli#930: a revoked account made failing deliveries without end, and what changed meanwhile was lost.
func TestRevokedAccountIsQuietAndResumesFromItsOldCursor(t *testing.T) {
	f := newFixture(t)
	f.add(2)
	f.mirror(consumers.RunImport, true)
	f.add(2)
	f.box.Inject(consumertest.Fault{Err: errRevoked})
	old := f.account().Cursor
	for range 50 {
		f.done(f.handle())
	}
	expect(t, "state", f.account().State, consumers.Reauth)
	expect(t, "reason", f.account().Reason, "history.list: invalid_grant")
	expect(t, "calls", f.box.Calls(consumertest.OpHistory), 1)

	f.box.Heal()
	f.add(2)
	_, err := f.store.SetState(t.Context(), account, consumers.Live, "")
	f.must(err)
	f.must(f.store.SetWatch(t.Context(), account, consumers.Watch{HistoryID: f.box.HistoryID() + 500, Expires: time.Now().Add(time.Hour)}))
	f.done(f.handle())
	expect(t, "calls from the old cursor", f.box.Calls(consumertest.OpHistory, old.String()), 2)
	f.equal()
}

func TestPassingFailureOfTheListIsARetry(t *testing.T) {
	f := newFixture(t)
	f.mirror(consumers.RunImport, true)
	f.add(1)
	f.box.Inject(consumertest.Fault{Op: consumertest.OpHistory, Times: 1, Err: errPassing})
	expect(t, "verdict", f.handle().Verdict, consumers.VerdictRetry)
	f.done(f.handle())
	f.equal()
}

func TestPageTokenThatExpiresIsNoExpiredCursor(t *testing.T) {
	f := newFixture(t)
	f.box.PageSize = 2
	f.mirror(consumers.RunImport, true)
	f.add(4)
	f.box.Inject(consumertest.Fault{Op: consumertest.OpHistory, Skip: 1, Times: 1, Err: errGone})
	expect(t, "verdict", f.handle().Verdict, consumers.VerdictRetry)
	expect(t, "state", f.account().State, consumers.Live)
	f.done(f.handle())
	expect(t, "fetched", f.fetches(), 4)
	f.equal()
}

func TestUnknownLabelIsLookedUpOnce(t *testing.T) {
	f := newFixture(t)
	m := f.add(1)[0]
	f.mirror(consumers.RunImport, true)
	f.box.LabelList = []consumers.Label{{ID: "Label_7", Name: "Plans", Type: "user"}}
	f.box.Relabel(m.ID, []string{"STARRED", "CATEGORY_SOCIAL"}, nil)
	f.done(f.handle())
	expect(t, "lookups for the system's labels", f.box.Calls(consumertest.OpLabels), 0)
	for range 3 {
		f.box.Relabel(m.ID, []string{"Label_7", "Label_8"}, nil) // 8 is deleted by now
		f.done(f.handle())
		f.box.Relabel(m.ID, nil, []string{"Label_7"})
		f.done(f.handle())
	}
	expect(t, "lookups", f.box.Calls(consumertest.OpLabels), 1)
	expect(t, "labels stored", len(f.store.Labels(account)), 1)
	f.equal()
}

func TestEachMoveOfTheCursorIsTold(t *testing.T) {
	f := newFixture(t)
	f.mirror(consumers.RunImport, true)
	f.add(1)
	f.done(f.handle())
	f.done(f.handle())
	expect(t, "calls", len(f.applied), 1)
	expect(t, "cursor", f.applied[0], f.box.HistoryID())
}
