package modeltest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/gmailsync/gmailsync/consumers"
	"github.com/gmailsync/gmailsync/gmailquota"
)

// found wants the model to find a planted fault soon.
func found(t *testing.T, plant Plant) {
	t.Helper()
	n, err := FoundAfter(t, 3000, inMemory, plant)
	if n == 0 {
		t.Fatal("the model did not find the planted fault")
	}
	t.Logf("found after %d sequences: %.300v", n, err)
}

// early saves the cursor in a transaction of its own, before the changes.
type early struct{ consumers.Store }

func (s early) ApplyHistory(ctx context.Context, account string, step consumers.HistoryStep, now time.Time) error {
	if err := s.Store.ApplyHistory(ctx, account, consumers.HistoryStep{Cursor: step.Cursor}, now); err != nil {
		return err
	}
	return s.Store.ApplyHistory(ctx, account, step, now)
}

// kenn-io/msgvault#260
func TestModelFindsACursorThatIsSavedEarly(t *testing.T) {
	found(t, Plant{Store: func(s consumers.Store) consumers.Store { return early{s} }})
}

// halved takes the first page for the whole listing.
type halved struct{ consumers.Store }

func (s halved) AddPage(ctx context.Context, run, token string, page consumers.ThreadPage, batchSize int) error {
	page.Next = ""
	return s.Store.AddPage(ctx, run, token, page, batchSize)
}

// relaticle/relaticle#640
func TestModelFindsAListingThatEndsEarly(t *testing.T) {
	found(t, Plant{Store: func(s consumers.Store) consumers.Store { return halved{s} }})
}

// counted takes a denial for a failure of the thread.
type counted struct{ consumers.Mailbox }

func (m counted) GetThread(ctx context.Context, id string) (consumers.Thread, error) {
	t, err := m.Mailbox.GetThread(ctx, id)
	if _, throttled := consumers.WaitOf(err); throttled {
		return t, &consumers.MailboxError{Op: "threads.get", Fault: consumers.Passing, Reason: "denied"}
	}
	return t, err
}

// Profile is always admitted, so that the thread gets the blame.
func (counted) Profile(context.Context) (consumers.Profile, error) { return consumers.Profile{}, nil }

type countedBoxes struct{ consumers.Mailboxes }

func (b countedBoxes) Mailbox(ctx context.Context, account string, class gmailquota.Class) (consumers.Mailbox, error) {
	m, err := b.Mailboxes.Mailbox(ctx, account, class)
	if class == gmailquota.Backfill && err == nil {
		return counted{m}, nil
	}
	return m, err
}

// garrytan/gbrain#4959
func TestModelFindsADenialThatCountsAsAnAttempt(t *testing.T) {
	found(t, Plant{Mailboxes: func(b consumers.Mailboxes) consumers.Mailboxes { return countedBoxes{b} }})
}

// hasty deletes what the first of several pages of a resync does not name.
type hasty struct{ consumers.Store }

func (s hasty) AddPage(ctx context.Context, run, token string, page consumers.ThreadPage, batchSize int) error {
	if err := s.Store.AddPage(ctx, run, token, page, batchSize); err != nil || page.Next == "" {
		return err
	}
	return s.deleteAbsent(ctx, page)
}

func (s hasty) deleteAbsent(ctx context.Context, page consumers.ThreadPage) error {
	named := map[string]bool{}
	for _, th := range page.Threads {
		named[th.ID] = true
	}
	for _, id := range []string{"account-0", "account-1"} {
		run, err := s.ActiveRun(ctx, id)
		if consumers.Removed(err) || err == nil && run.Kind != consumers.RunResync {
			continue
		}
		if err != nil {
			return err
		}
		var gone []string // the ids of consumertest.Mailbox count from here
		for n := 0x1001; n < 0x1020; n++ {
			if th := fmt.Sprintf("%016x", n); !named[th] {
				gone = append(gone, th)
			}
		}
		if err := s.ApplyHistory(ctx, id, consumers.HistoryStep{Gone: gone}, time.Now()); err != nil {
			return err
		}
	}
	return nil
}

// kenn-io/msgvault#697
func TestModelFindsDeletionsThatRestOnHalfAListing(t *testing.T) {
	found(t, Plant{Store: func(s consumers.Store) consumers.Store { return hasty{s} }})
}
