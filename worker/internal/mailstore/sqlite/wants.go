package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/gmailsync/gmailsync/consumers"
	"github.com/gmailsync/gmailsync/worker/internal/mailstore"
)

// addWant notes that history named a message that is not stored.
func (t *tx) addWant(account, thread, message string, h consumers.HistoryID) error {
	_, err := t.exec(`INSERT INTO wants (account_id, thread_id, message_id, history_id) VALUES (?, ?, ?, ?)
		ON CONFLICT (account_id, thread_id, message_id) DO UPDATE SET history_id = max(history_id, excluded.history_id)`,
		account, thread, message, mailstore.HistoryText(h))
	return err
}

// fulfilled tells that a want's message has a row, live or deleted, as new as the record that named it.
const fulfilled = `EXISTS (SELECT 1 FROM messages m WHERE m.account_id = wants.account_id AND m.id = wants.message_id
	AND m.history_id >= wants.history_id)`

// dropWants ends what was wanted and has come, or is known to be deleted.
func (t *tx) dropWants(account string) error {
	_, err := t.exec(`DELETE FROM wants WHERE account_id = ? AND `+fulfilled, account)
	return err
}

// settleWants ends what was wanted of a thread whose snapshot was just stored, and tells whether nothing is left.
func (t *tx) settleWants(account string, thread consumers.Thread) (none bool, err error) {
	if _, err := t.exec(`DELETE FROM wants WHERE account_id = ? AND thread_id = ? AND (history_id <= ? OR `+fulfilled+`)`,
		account, thread.ID, mailstore.HistoryText(thread.HistoryID)); err != nil {
		return false, err
	}
	err = t.row(`SELECT NOT EXISTS (SELECT 1 FROM wants WHERE account_id = ? AND thread_id = ?)`, []any{account, thread.ID}, &none)
	return none, err
}

// AcceptThread implements consumers.Store.
func (s *Store) AcceptThread(ctx context.Context, b consumers.Batch, thread consumers.Thread, now time.Time) error {
	rows := packMessages(thread.Messages)
	return s.write(ctx, func(t *tx) error {
		open, err := t.runOpen(b)
		if err != nil || !open {
			return err
		}
		complete, err := t.saveFetched(b, thread, rows)
		if err != nil {
			return err
		}
		if !complete {
			if err := t.fetchWanted(b.Account, thread.ID, now); err != nil {
				return err
			}
			if _, err := t.saveFetched(b, thread, rows); err != nil {
				return err
			}
		}
		return t.settle(b.Run, thread.ID, "stored")
	})
}

// fetchWanted puts what is still wanted of a thread, and not stored, on the retry list, due at once.
func (t *tx) fetchWanted(account, thread string, now time.Time) error {
	var fetches []consumers.Fetch
	err := t.rows(`SELECT message_id, history_id FROM wants WHERE account_id = ? AND thread_id = ? AND NOT EXISTS
		(SELECT 1 FROM messages m WHERE m.account_id = wants.account_id AND m.id = wants.message_id AND m.deleted = 0)`,
		[]any{account, thread}, func(r *sql.Rows) error {
			f := consumers.Fetch{ThreadID: thread, Due: now, Cause: "named by history, not in its thread"}
			err := r.Scan(&f.MessageID, hist(&f.HistoryID))
			fetches = append(fetches, f)
			return err
		})
	if err != nil {
		return err
	}
	for _, f := range fetches {
		if err := t.addFetch(account, f); err != nil {
			return err
		}
	}
	if _, err := t.exec(`DELETE FROM wants WHERE account_id = ? AND thread_id = ?`, account, thread); err != nil {
		return err
	}
	_, err = t.exec(`UPDATE accounts SET due = min(due, ?) WHERE id = ?`, mailstore.Millis(now), account)
	return err
}

// addFetch puts a message on the retry list.
func (t *tx) addFetch(account string, f consumers.Fetch) error {
	_, err := t.exec(`INSERT INTO fetches (account_id, message_id, thread_id, history_id, attempts, due, cause)
		VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (account_id, message_id) DO UPDATE SET history_id = excluded.history_id,
		attempts = excluded.attempts, due = excluded.due, cause = excluded.cause`,
		account, f.MessageID, f.ThreadID, mailstore.HistoryText(f.HistoryID), f.Attempts, mailstore.Millis(f.Due),
		mailstore.CleanText(f.Cause))
	return err
}
