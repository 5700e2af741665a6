package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/gmailsync/gmailsync/consumers"
)

// emptied tells that nothing of account ?1 is left but its own row.
const emptied = `NOT EXISTS (SELECT 1 FROM runs WHERE account_id = ?1)
	AND NOT EXISTS (SELECT 1 FROM messages WHERE account_id = ?1) AND NOT EXISTS (SELECT 1 FROM threads WHERE account_id = ?1)
	AND NOT EXISTS (SELECT 1 FROM labels WHERE account_id = ?1) AND NOT EXISTS (SELECT 1 FROM fetches WHERE account_id = ?1)
	AND NOT EXISTS (SELECT 1 FROM dead_letters WHERE account_id = ?1)
	AND NOT EXISTS (SELECT 1 FROM attachments WHERE account_id = ?1) AND NOT EXISTS (SELECT 1 FROM wants WHERE account_id = ?1)`

// RemoveAccount deletes an account and its mirror, in transactions of bounded size. The first one ends all that the account
// has: tokens, address, cursor, watch and active run; the account stops. If the rest is cut off, removing it again goes on
// where it ended, and so does adding it again.
func (s *Store) RemoveAccount(ctx context.Context, id string) error {
	err := s.write(ctx, func(t *tx) error {
		if err := t.account(`UPDATE accounts SET state = ?, reason = 'being removed', address = '', cursor_history_id = ?,
			watch_expires = 0, history_at = 0, resync_at = 0 WHERE id = ?`, consumers.Stopped, noHistory, id); err != nil {
			return err
		}
		if _, err := t.exec(`UPDATE runs SET finished_at = max(started_at, 1) WHERE account_id = ? AND finished_at = 0`, id); err != nil {
			return err
		}
		_, err := t.exec(`DELETE FROM tokens WHERE account_id = ?`, id)
		return err
	})
	if err != nil {
		return err
	}
	for {
		if err := s.removeRows(ctx, id); err != nil {
			return err
		}
		// A consumer that was at work may have stored something behind us.
		gone := false
		err := s.write(ctx, func(t *tx) error {
			n, err := t.exec(`DELETE FROM accounts WHERE id = ?1 AND `+emptied, id)
			gone = n > 0
			return err
		})
		if err != nil || gone {
			return err
		}
	}
}

// finishRemoval removes what a removal that was cut off left of an account. Only there an account has rows, but neither a
// cursor nor a run that will give it one.
func (s *Store) finishRemoval(ctx context.Context, id string) error {
	var one int
	err := s.row(ctx, `SELECT 1 FROM accounts WHERE id = ?1 AND cursor_history_id = ?2
		AND NOT EXISTS (SELECT 1 FROM runs WHERE account_id = ?1 AND finished_at = 0) AND NOT (`+emptied+`)`, []any{id, noHistory}, &one)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	return s.RemoveAccount(ctx, id)
}

func (s *Store) removeRows(ctx context.Context, id string) error {
	for _, q := range []string{
		`DELETE FROM batches WHERE id IN (SELECT id FROM batches WHERE account_id = ? LIMIT ?)`,
		`DELETE FROM run_threads WHERE (run_id, thread_id) IN (SELECT rt.run_id, rt.thread_id FROM runs r
			JOIN run_threads rt ON rt.run_id = r.id WHERE r.account_id = ? LIMIT ?)`,
		`DELETE FROM runs WHERE id IN (SELECT id FROM runs WHERE account_id = ? LIMIT ?)`,
		`DELETE FROM attachments WHERE account_id = ?1 AND (message_id, part_id) IN
			(SELECT message_id, part_id FROM attachments WHERE account_id = ?1 LIMIT ?2)`,
		`DELETE FROM messages WHERE rowid IN (SELECT rowid FROM messages WHERE account_id = ? LIMIT ?)`,
		`DELETE FROM threads WHERE account_id = ?1 AND id IN (SELECT id FROM threads WHERE account_id = ?1 LIMIT ?2)`,
		`DELETE FROM labels WHERE account_id = ?1 AND id IN (SELECT id FROM labels WHERE account_id = ?1 LIMIT ?2)`,
		`DELETE FROM fetches WHERE account_id = ?1 AND message_id IN (SELECT message_id FROM fetches WHERE account_id = ?1 LIMIT ?2)`,
		`DELETE FROM wants WHERE account_id = ?1 AND (thread_id, message_id) IN
			(SELECT thread_id, message_id FROM wants WHERE account_id = ?1 LIMIT ?2)`,
		`DELETE FROM dead_letters WHERE id IN (SELECT id FROM dead_letters WHERE account_id = ? LIMIT ?)`,
	} {
		if err := s.deleteInSlices(ctx, q, id); err != nil {
			return err
		}
	}
	return nil
}
