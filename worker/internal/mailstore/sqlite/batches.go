package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/gmailsync/gmailsync/consumers"
	"github.com/gmailsync/gmailsync/worker/internal/mailstore"
)

const openThreads = `SELECT thread_id FROM run_threads WHERE batch_id = ? AND state = 'open' ORDER BY thread_id DESC`

// scanThreads collects the ids of a batch's open threads: the newest, with the highest id, first.
func scanThreads(b *consumers.Batch) func(*sql.Rows) error {
	return func(r *sql.Rows) error {
		var id string
		err := r.Scan(&id)
		b.Threads = append(b.Threads, id)
		return err
	}
}

// OpenBatches implements consumers.Store.
func (s *Store) OpenBatches(ctx context.Context, run string, window int, due time.Time) ([]consumers.Batch, error) {
	var opened []consumers.Batch
	err := s.write(ctx, func(t *tx) error {
		r, err := t.run(runByID, run)
		if err != nil || r.Progress.Working >= window {
			return err
		}
		err = t.rows(`SELECT id FROM batches WHERE run_id = ? AND state = 'pending' ORDER BY id LIMIT ?`,
			[]any{run, window - r.Progress.Working}, func(row *sql.Rows) error {
				b := consumers.Batch{Run: run, Account: r.Account}
				err := row.Scan(&b.ID)
				opened = append(opened, b)
				return err
			})
		if err != nil {
			return err
		}
		for i := range opened {
			b := &opened[i]
			if _, err := t.exec(`UPDATE batches SET state = 'working', due = ? WHERE id = ?`, mailstore.Millis(due), b.ID); err != nil {
				return err
			}
			if err := t.rows(openThreads, []any{b.ID}, scanThreads(b)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return opened, nil
}

// Batch implements consumers.Store.
func (s *Store) Batch(ctx context.Context, account string, batch int64) (consumers.Batch, bool, error) {
	b := consumers.Batch{ID: batch, Account: account}
	err := s.row(ctx, `SELECT run_id FROM batches WHERE id = ? AND account_id = ? AND state = 'working'`,
		[]any{batch, account}, &b.Run)
	if errors.Is(err, sql.ErrNoRows) {
		_, err = s.Account(ctx, account)
		return consumers.Batch{}, false, err
	}
	if err != nil {
		return consumers.Batch{}, false, err
	}
	if err := s.rows(ctx, openThreads, []any{batch}, scanThreads(&b)); err != nil {
		return consumers.Batch{}, false, err
	}
	return b, true, nil
}

// settle moves a thread of a run from open to state and counts it. A thread that is not open is counted already.
func (t *tx) settle(run, thread, state string) error {
	n, err := t.exec(`UPDATE run_threads SET state = ? WHERE run_id = ? AND thread_id = ? AND state = 'open'`, state, run, thread)
	if err != nil || n == 0 {
		return err
	}
	column := map[string]string{"stored": "threads_stored", "gone": "threads_gone", "failed": "threads_failed"}[state]
	_, err = t.exec(`UPDATE runs SET `+column+` = `+column+` + 1 WHERE id = ?`, run)
	return err
}

// runOpen tells whether the batch's run goes on, and fails with ErrNoRun unless it exists and is the account's.
func (t *tx) runOpen(b consumers.Batch) (open bool, err error) {
	err = t.row(`SELECT finished_at = 0 FROM runs WHERE id = ? AND account_id = ?`, []any{b.Run, b.Account}, &open)
	return open, notFound(err, consumers.ErrNoRun)
}

// saveFetched stores a snapshot that was fetched for a batch: after the baseline of a run that lists. A replay's is the
// cursor, which history may have moved past what a lagging replica answers.
func (t *tx) saveFetched(b consumers.Batch, thread consumers.Thread, rows []packed) (complete bool, err error) {
	var floor consumers.HistoryID
	if err := t.row(`SELECT iif(kind = ?, ?, baseline_history_id) FROM runs WHERE id = ?`,
		[]any{consumers.RunReplay, noHistory, b.Run}, hist(&floor)); err != nil {
		return false, err
	}
	return t.saveSnapshot(b.Account, thread, rows, floor)
}

// SaveThread implements consumers.Store.
func (s *Store) SaveThread(ctx context.Context, b consumers.Batch, thread consumers.Thread, _ time.Time) (bool, error) {
	rows := packMessages(thread.Messages)
	complete := true
	err := s.write(ctx, func(t *tx) error {
		open, err := t.runOpen(b)
		if err != nil || !open {
			return err
		}
		complete, err = t.saveFetched(b, thread, rows)
		if err != nil || !complete {
			return err
		}
		return t.settle(b.Run, thread.ID, "stored")
	})
	return complete && err == nil, err
}

// ThreadGone implements consumers.Store. The messages keep the history ids of their last change, so that only a
// snapshot at least as new brings them back.
func (s *Store) ThreadGone(ctx context.Context, b consumers.Batch, threadID string, _ time.Time) error {
	return s.write(ctx, func(t *tx) error {
		open, err := t.runOpen(b)
		if err != nil || !open {
			return err
		}
		stored, err := t.threadMessages(b.Account, threadID)
		if err != nil {
			return err
		}
		for id, m := range stored {
			if m.deleted && !m.outside {
				continue
			}
			if err := t.deleteMessage(b.Account, threadID, id, m.history); err != nil {
				return err
			}
		}
		if _, err := t.exec(`UPDATE threads SET message_count = 0 WHERE account_id = ? AND id = ?`, b.Account, threadID); err != nil {
			return err
		}
		if err := t.dropThreadLetters(b.Account, threadID); err != nil {
			return err
		}
		return t.settle(b.Run, threadID, "gone")
	})
}

// ThreadFailed implements consumers.Store.
func (s *Store) ThreadFailed(ctx context.Context, b consumers.Batch, threadID, cause string, maxAttempts int, now time.Time) (bool, error) {
	dead := false
	err := s.write(ctx, func(t *tx) error {
		open, err := t.runOpen(b)
		if err != nil || !open {
			return err
		}
		n, err := t.exec(`UPDATE run_threads SET attempts = attempts + 1 WHERE run_id = ? AND thread_id = ? AND state = 'open'`,
			b.Run, threadID)
		if err != nil || n == 0 {
			return err
		}
		var attempts int
		if err := t.row(`SELECT attempts FROM run_threads WHERE run_id = ? AND thread_id = ?`,
			[]any{b.Run, threadID}, &attempts); err != nil {
			return err
		}
		if attempts < maxAttempts {
			return nil
		}
		dead = true
		if err := t.settle(b.Run, threadID, "failed"); err != nil {
			return err
		}
		// What is stored of it may have a gap: the next run must not take it for current.
		if _, err := t.exec(`UPDATE threads SET complete = 0 WHERE account_id = ? AND id = ?`, b.Account, threadID); err != nil {
			return err
		}
		return t.addDeadLetter(consumers.DeadLetter{Account: b.Account, Kind: consumers.ThreadBatch, Run: b.Run,
			ThreadID: threadID, Cause: cause, Attempts: attempts, At: now})
	})
	return dead && err == nil, err
}

// FinishBatch implements consumers.Store.
func (s *Store) FinishBatch(ctx context.Context, b consumers.Batch) (consumers.Run, error) {
	var run consumers.Run
	err := s.write(ctx, func(t *tx) (err error) {
		if _, err := t.runOpen(b); err != nil {
			return err
		}
		if _, err := t.exec(`DELETE FROM batches WHERE id = ? AND run_id = ? AND state = 'working'
			AND NOT EXISTS (SELECT 1 FROM run_threads rt WHERE rt.batch_id = batches.id AND rt.state = 'open')`,
			b.ID, b.Run); err != nil {
			return err
		}
		run, err = t.run(runByID, b.Run)
		return err
	})
	return run, err
}
