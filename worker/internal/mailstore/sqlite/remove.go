package sqlite

import (
	"context"

	"github.com/gmailsync/gmailsync/consumers"
)

// RemoveAccount deletes an account and its mirror, in transactions of bounded size. The account stops, and loses its
// tokens and address, in the first one; if the rest is cut off, removing it again goes on where it ended.
func (s *Store) RemoveAccount(ctx context.Context, id string) error {
	err := s.write(ctx, func(t *tx) error {
		if err := t.account(`UPDATE accounts SET state = ?, reason = 'being removed', address = '' WHERE id = ?`,
			consumers.Stopped, id); err != nil {
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
			n, err := t.exec(`DELETE FROM accounts WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM runs WHERE account_id = ?1)
				AND NOT EXISTS (SELECT 1 FROM messages WHERE account_id = ?1) AND NOT EXISTS (SELECT 1 FROM threads WHERE account_id = ?1)
				AND NOT EXISTS (SELECT 1 FROM labels WHERE account_id = ?1) AND NOT EXISTS (SELECT 1 FROM fetches WHERE account_id = ?1)
				AND NOT EXISTS (SELECT 1 FROM dead_letters WHERE account_id = ?1)
				AND NOT EXISTS (SELECT 1 FROM attachments WHERE account_id = ?1)`, id)
			gone = n > 0
			return err
		})
		if err != nil || gone {
			return err
		}
	}
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
		`DELETE FROM dead_letters WHERE id IN (SELECT id FROM dead_letters WHERE account_id = ? LIMIT ?)`,
	} {
		if err := s.deleteInSlices(ctx, q, id); err != nil {
			return err
		}
	}
	return nil
}
