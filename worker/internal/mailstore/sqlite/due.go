package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/gmailsync/gmailsync/consumers"
	"github.com/gmailsync/gmailsync/worker/internal/mailstore"
)

// What is open, for each kind of job. The first two share the account's due time, so they exclude each other: a first
// job is wanted while no run is active, history while there is a cursor that counts. (During a resync the old cursor
// is too old until the run's baseline is pinned.)
const (
	firstJobOpen = `state IN ('importing', 'resyncing')
		AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.account_id = accounts.id AND r.finished_at = 0)`
	historyOpen = `cursor_history_id > '00000000000000000000' AND (state = 'live' OR (state IN ('importing', 'resyncing')
		AND EXISTS (SELECT 1 FROM runs r WHERE r.account_id = accounts.id AND r.finished_at = 0
			AND r.baseline_history_id > '00000000000000000000')))`
)

const dueJobs = `
	SELECT 'history' AS kind, id AS account, '' AS run, 0 AS batch, due FROM accounts WHERE due <= ?1 AND ` + historyOpen + `
	UNION ALL
	SELECT 'initial-sync', id, '', 0, due FROM accounts WHERE due <= ?1 AND ` + firstJobOpen + `
	UNION ALL
	SELECT 'initial-sync', r.account_id, r.id, 0, r.due FROM runs r JOIN accounts a ON a.id = r.account_id
		WHERE r.finished_at = 0 AND r.due <= ?1 AND a.state IN ` + activeStates + `
	UNION ALL
	SELECT 'thread-batch', b.account_id, b.run_id, b.id, b.due FROM batches b JOIN accounts a ON a.id = b.account_id
		WHERE b.state = 'working' AND b.due <= ?1 AND a.state IN ` + activeStates + `
	ORDER BY due, account LIMIT ?2`

// DueJobs implements consumers.Store: longest due first.
func (s *Store) DueJobs(ctx context.Context, now, next time.Time, limit int) ([]consumers.Job, error) {
	var jobs []consumers.Job
	err := s.write(ctx, func(t *tx) error {
		err := t.rows(dueJobs, []any{mailstore.Millis(now), limit}, func(r *sql.Rows) error {
			j := consumers.Job{At: now}
			var due int64
			err := r.Scan(&j.Kind, &j.Account, &j.Run, &j.Batch, &due)
			jobs = append(jobs, j)
			return err
		})
		if err != nil {
			return err
		}
		for _, j := range jobs {
			if err := postpone(t, j, next); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return jobs, nil
}

// Postpone implements consumers.Store. A job whose work is not open changes nothing.
func (s *Store) Postpone(ctx context.Context, j consumers.Job, due time.Time) error {
	return s.write(ctx, func(t *tx) error {
		if err := t.mustAccount(j.Account); err != nil {
			return err
		}
		return postpone(t, j, due)
	})
}

func postpone(t *tx, j consumers.Job, due time.Time) error {
	ms := mailstore.Millis(due)
	var err error
	switch {
	case j.Kind == consumers.ThreadBatch:
		_, err = t.exec(`UPDATE batches SET due = ? WHERE id = ? AND account_id = ? AND state = 'working'`, ms, j.Batch, j.Account)
	case j.Kind == consumers.History:
		_, err = t.exec(`UPDATE accounts SET due = ? WHERE id = ? AND `+historyOpen, ms, j.Account)
	case j.Run != "":
		_, err = t.exec(`UPDATE runs SET due = ? WHERE id = ? AND account_id = ? AND finished_at = 0`, ms, j.Run, j.Account)
	default:
		if _, err = t.exec(`UPDATE runs SET due = ? WHERE account_id = ? AND finished_at = 0`, ms, j.Account); err != nil {
			return err
		}
		_, err = t.exec(`UPDATE accounts SET due = ? WHERE id = ? AND `+firstJobOpen, ms, j.Account)
	}
	return err
}

// ReleaseAll implements consumers.Store.
func (s *Store) ReleaseAll(ctx context.Context) error {
	return s.write(ctx, func(t *tx) error {
		for _, q := range []string{
			`UPDATE accounts SET due = 0 WHERE due > 0`,
			`UPDATE runs SET due = 0 WHERE finished_at = 0`,
			`UPDATE batches SET due = 0 WHERE state = 'working'`,
		} {
			if _, err := t.exec(q); err != nil {
				return err
			}
		}
		return nil
	})
}

// release makes all open work of one account due at once.
func release(t *tx, account string) error {
	for _, q := range []string{
		`UPDATE accounts SET due = 0 WHERE id = ?`,
		`UPDATE runs SET due = 0 WHERE account_id = ? AND finished_at = 0`,
		`UPDATE batches SET due = 0 WHERE account_id = ? AND state = 'working'`,
	} {
		if _, err := t.exec(q, account); err != nil {
			return err
		}
	}
	return nil
}
