package worker

import (
	"context"
	"slices"
	"time"

	"github.com/gmailsync/gmailsync/consumers"
)

// DeadLetter is work that was given up.
type DeadLetter struct {
	ID        int64          `json:"id"`
	Account   string         `json:"account"`
	Kind      consumers.Kind `json:"consumer"`
	ThreadID  string         `json:"threadId,omitempty"`  // empty: a whole job
	MessageID string         `json:"messageId,omitempty"` // empty: the whole thread
	Cause     string         `json:"cause"`
	Attempts  int            `json:"attempts"`
	At        time.Time      `json:"at"`
}

// DeadLetters returns an account's dead letters, oldest first; those of all accounts for "".
func (m *Mirror) DeadLetters(ctx context.Context, account string) ([]DeadLetter, error) {
	stored, err := m.store.DeadLetters(ctx, account)
	letters := make([]DeadLetter, len(stored))
	for i, d := range stored {
		letters[i] = DeadLetter{d.ID, d.Account, d.Kind, d.ThreadID, d.MessageID, d.Cause, d.Attempts, d.At}
	}
	return letters, err
}

// ReplayDeadLetters puts the work of these letters back, with no attempts counted; a running worker begins within a second. It
// returns how many; the others were stored meanwhile, and are only forgotten.
func (m *Mirror) ReplayDeadLetters(ctx context.Context, letters []DeadLetter) (int, error) {
	return eachAccount(letters, func(account string, ids []int64) (int, error) {
		return m.store.ReplayDeadLetters(ctx, account, ids, m.cfg.Consumers.BatchSize, time.Now())
	})
}

// DropDeadLetters forgets these letters. What they were about is missing in the mirror until a resync.
func (m *Mirror) DropDeadLetters(ctx context.Context, letters []DeadLetter) (int, error) {
	return eachAccount(letters, func(account string, ids []int64) (int, error) {
		return m.store.DropDeadLetters(ctx, account, ids)
	})
}

// lettersAtOnce bounds a transaction, so that a worker does not wait long for the store.
const lettersAtOnce = 500

// eachAccount adds up what do returns for the letters of each account.
func eachAccount(letters []DeadLetter, do func(account string, ids []int64) (int, error)) (int, error) {
	byAccount := map[string][]int64{}
	for _, d := range letters {
		byAccount[d.Account] = append(byAccount[d.Account], d.ID)
	}
	total := 0
	for account, all := range byAccount {
		for ids := range slices.Chunk(all, lettersAtOnce) {
			n, err := do(account, ids)
			total += n
			if err != nil {
				return total, err
			}
		}
	}
	return total, nil
}
