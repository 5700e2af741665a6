package history

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/gmailsync/gmailsync/consumers"
	"github.com/gmailsync/gmailsync/consumers/consumertest"
)

// missedByTheListing is a fixture whose import is over and has not seen the thread of two messages: a reply had put it in
// front of what was still to be listed, and the reply is deleted again.
func missedByTheListing(t *testing.T) (f *fixture, first consumers.Message) {
	f = newFixture(t)
	first = f.add(1)[0]
	f.reply(first)
	run, _, err := f.store.StartRun(t.Context(), account, consumers.RunImport, time.Now())
	f.must(err)
	f.must(f.store.PinBaseline(t.Context(), run.ID, f.box.HistoryID()))
	f.box.Delete(f.reply(first).ID)
	f.must(f.store.AddPage(t.Context(), run.ID, "", consumers.ThreadPage{}, 25))
	if done, err := f.store.FinishRun(t.Context(), run.ID, time.Now()); err != nil || !done {
		t.Fatal("the run is not finished", err)
	}
	return f, first
}

// kenn-io/msgvault#697: mail that a listing missed, as the mailbox changed while it went on. Found by the model.
func TestAReplyThatCameAndWentDuringAListingHidesNoThread(t *testing.T) {
	f, _ := missedByTheListing(t)
	f.done(f.handle())
	f.equal()
	expect(t, "threads fetched", f.box.Calls(consumertest.OpGetThread), 1)
	expect(t, "messages fetched", f.box.Calls(consumertest.OpGetMessage), 0)
}

func TestAThreadThatAListingMissedIsTriedAgain(t *testing.T) {
	for name, firstGoes := range map[string]bool{"by the retry list": false, "by its page, as its first message is deleted": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, first := missedByTheListing(t)
				if firstGoes {
					f.box.Delete(first.ID)
				}
				f.box.Inject(consumertest.Fault{Op: consumertest.OpGetThread, Times: 1, Err: errPassing})
				out := f.handle()
				expect(t, "the page waits", out.Verdict == consumers.VerdictRetry, firstGoes)
				time.Sleep(time.Minute)
				f.done(f.handle())
				f.equal()
			})
		})
	}
}

func TestAThreadThatCameAndWentWholeCostsNothing(t *testing.T) {
	f := newFixture(t)
	f.mirror(consumers.RunImport, true)
	first := f.add(1)[0]
	f.box.DeleteAll(f.reply(first).ID, first.ID)
	f.done(f.handle())
	f.equal()
	expect(t, "fetches", f.fetches(), 0)
}
