package sqlite

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gmailsync/gmailsync/consumers"
	"github.com/gmailsync/gmailsync/worker/internal/mailstore"
)

const runColumns = `SELECT id, account_id, kind, baseline_history_id, page_token, listed, absent_queued,
	threads_listed, threads_stored, threads_gone, threads_failed,
	(SELECT count(*) FROM batches b WHERE b.run_id = runs.id AND b.state = 'pending'),
	(SELECT count(*) FROM batches b WHERE b.run_id = runs.id AND b.state = 'working') FROM runs`

func scanRun(scan func(...any) error) (consumers.Run, error) {
	var r consumers.Run
	p := &r.Progress
	err := scan(&r.ID, &r.Account, &r.Kind, hist(&r.Baseline), &r.PageToken, &r.Listed, &r.AbsentQueued,
		&p.Listed, &p.Stored, &p.Gone, &p.Failed, &p.Pending, &p.Working)
	p.Open = p.Listed - p.Stored - p.Gone - p.Failed
	return r, notFound(err, consumers.ErrNoRun)
}

func (t *tx) run(where string, args ...any) (consumers.Run, error) {
	st, err := t.stmt(runColumns + where)
	if err != nil {
		return consumers.Run{}, err
	}
	return scanRun(st.QueryRowContext(context.Background(), args...).Scan)
}

// openRun reads a run and tells whether it is unfinished: a removal ends one that its consumers may still be working on.
func (t *tx) openRun(id string) (r consumers.Run, open bool, err error) {
	if r, err = t.run(runByID, id); err != nil {
		return r, false, err
	}
	err = t.row(`SELECT finished_at = 0 FROM runs WHERE id = ?`, []any{id}, &open)
	return r, open, err
}

const (
	runByID   = " WHERE id = ?"
	runActive = " WHERE account_id = ? AND finished_at = 0"
)

// StartRun implements consumers.Store. An account that has stopped keeps its state: the run goes on once it resumes.
func (s *Store) StartRun(ctx context.Context, account string, kind consumers.RunKind, now time.Time) (consumers.Run, bool, error) {
	var run consumers.Run
	started := false
	err := s.write(ctx, func(t *tx) (err error) {
		if err := t.mustAccount(account); err != nil {
			return err
		}
		if run, err = t.run(runActive, account); !errors.Is(err, consumers.ErrNoRun) {
			return err
		}
		started = true
		run, err = t.startRun(account, kind, now)
		return err
	})
	return run, started && err == nil, err
}

func (t *tx) startRun(account string, kind consumers.RunKind, now time.Time) (consumers.Run, error) {
	id := strings.ToLower(rand.Text())
	ms := mailstore.Millis(now)
	if _, err := t.exec(`INSERT INTO runs (id, account_id, kind, due, started_at) VALUES (?, ?, ?, ?, ?)`,
		id, account, kind, ms, ms); err != nil {
		return consumers.Run{}, err
	}
	state := consumers.Importing
	if kind == consumers.RunResync {
		state = consumers.Resyncing
		if _, err := t.exec(`UPDATE accounts SET resync_at = ? WHERE id = ?`, ms, account); err != nil {
			return consumers.Run{}, err
		}
	}
	if _, err := t.exec(`UPDATE accounts SET state = ?, reason = '' WHERE id = ? AND state IN `+activeStates,
		state, account); err != nil {
		return consumers.Run{}, err
	}
	return t.run(runByID, id)
}

// ActiveRun implements consumers.Store.
func (s *Store) ActiveRun(ctx context.Context, account string) (consumers.Run, error) {
	run, err := s.readRun(ctx, runActive, account)
	if errors.Is(err, consumers.ErrNoRun) {
		if _, accountErr := s.Account(ctx, account); accountErr != nil {
			return consumers.Run{}, accountErr
		}
	}
	return run, err
}

func (s *Store) readRun(ctx context.Context, where string, args ...any) (consumers.Run, error) {
	st, err := s.stmt(ctx, runColumns+where)
	if err != nil {
		return consumers.Run{}, err
	}
	return scanRun(st.QueryRowContext(ctx, args...).Scan)
}

// PinBaseline implements consumers.Store.
func (s *Store) PinBaseline(ctx context.Context, run string, baseline consumers.HistoryID) error {
	return s.write(ctx, func(t *tx) error {
		r, open, err := t.openRun(run)
		if err != nil || !open || r.Baseline != 0 {
			return err
		}
		b := mailstore.HistoryText(baseline)
		if _, err := t.exec(`UPDATE runs SET baseline_history_id = ? WHERE id = ?`, b, run); err != nil {
			return err
		}
		_, err = t.exec(`UPDATE accounts SET cursor_history_id = ?1 WHERE id = ?2 AND cursor_history_id < ?1
			AND (cursor_history_id = ?3 OR ?4)`, b, r.Account, noHistory, r.Kind == consumers.RunResync)
		return err
	})
}

// pageQuery tells, in the order of the page's ids, which the run already has and what is stored of each. A thread with
// messages on the retry list is not whole.
const pageQuery = `SELECT j.value, rt.thread_id IS NOT NULL,
		COALESCE(t.complete, 0) AND (t.message_count > 0 OR EXISTS
			(SELECT 1 FROM messages m WHERE m.account_id = ?2 AND m.thread_id = j.value AND m.deleted = 1 AND m.outside = 1))
		AND NOT EXISTS (SELECT 1 FROM wants w WHERE w.account_id = ?2 AND w.thread_id = j.value)
		AND NOT EXISTS (SELECT 1 FROM fetches f WHERE f.account_id = ?2 AND f.thread_id = j.value), t.history_id, t.snapshot_history_id
	FROM json_each(?3) j
	LEFT JOIN run_threads rt ON rt.run_id = ?1 AND rt.thread_id = j.value
	LEFT JOIN threads t ON t.account_id = ?2 AND t.id = j.value
	ORDER BY j.key`

// AddPage implements consumers.Store.
func (s *Store) AddPage(ctx context.Context, run, pageToken string, page consumers.ThreadPage, batchSize int) error {
	return s.write(ctx, func(t *tx) error {
		r, open, err := t.openRun(run)
		if err != nil || !open || r.Baseline == 0 || r.Listed || r.PageToken != pageToken {
			return err
		}
		fetch, unchanged, err := t.sortPage(r, page.Threads)
		if err != nil {
			return err
		}
		for _, id := range unchanged {
			if err := t.addRunThread(run, id, 0, "stored"); err != nil {
				return err
			}
		}
		if err := t.addBatches(r, fetch, batchSize); err != nil {
			return err
		}
		_, err = t.exec(`UPDATE runs SET page_token = ?, listed = ?, threads_listed = threads_listed + ?,
			threads_stored = threads_stored + ? WHERE id = ?`,
			page.Next, page.Next == "", len(fetch)+len(unchanged), len(unchanged), run)
		return err
	})
}

// Relist implements consumers.Store.
func (s *Store) Relist(ctx context.Context, run, pageToken string) error {
	return s.write(ctx, func(t *tx) error {
		if _, err := t.run(runByID, run); err != nil {
			return err
		}
		_, err := t.exec(`UPDATE runs SET page_token = '' WHERE id = ? AND page_token = ? AND listed = 0`, run, pageToken)
		return err
	})
}

// sortPage splits a page's threads that are new to the run: those to fetch, and those whose stored form is current.
// That is so if a snapshot at the listed id is stored, or if records before the baseline led there. A record after the
// baseline proves nothing: changes between the old cursor and the baseline are still unknown.
func (t *tx) sortPage(r consumers.Run, refs []consumers.ThreadRef) (fetch, unchanged []string, err error) {
	ids := make([]string, 0, len(refs))
	listed := make(map[string]consumers.HistoryID, len(refs))
	for _, ref := range refs {
		if _, twice := listed[ref.ID]; !twice {
			ids = append(ids, ref.ID)
		}
		listed[ref.ID] = max(listed[ref.ID], ref.HistoryID)
	}
	err = t.rows(pageQuery, []any{r.ID, r.Account, mailstore.IDList(ids)}, func(row *sql.Rows) error {
		var id string
		var known bool
		var whole sql.NullBool
		var history, snapshot consumers.HistoryID
		if err := row.Scan(&id, &known, &whole, hist(&history), hist(&snapshot)); err != nil {
			return err
		}
		h := listed[id]
		current := whole.Bool && (snapshot == h || history == h && h <= r.Baseline)
		switch {
		case known:
		case r.Kind == consumers.RunResync && current:
			unchanged = append(unchanged, id)
		default:
			fetch = append(fetch, id)
		}
		return nil
	})
	return fetch, unchanged, err
}

func (t *tx) addRunThread(run, thread string, batch int64, state string) error {
	_, err := t.exec(`INSERT INTO run_threads (run_id, thread_id, batch_id, state) VALUES (?, ?, ?, ?)`, run, thread, batch, state)
	return err
}

// addBatches makes pending batches of the threads.
func (t *tx) addBatches(r consumers.Run, threads []string, size int) error {
	if size < 1 {
		return fmt.Errorf("batch size %d: want at least 1", size)
	}
	for len(threads) > 0 {
		n := min(size, len(threads))
		batch, err := t.insert(`INSERT INTO batches (run_id, account_id, state) VALUES (?, ?, 'pending')`, r.ID, r.Account)
		if err != nil {
			return err
		}
		for _, id := range threads[:n] {
			if err := t.addRunThread(r.ID, id, batch, "open"); err != nil {
				return err
			}
		}
		threads = threads[n:]
	}
	return nil
}

// QueueAbsent implements consumers.Store.
func (s *Store) QueueAbsent(ctx context.Context, run string, batchSize int) (int, error) {
	if err := s.removeAbsent(ctx, run); err != nil {
		return 0, err
	}
	var absent []string
	err := s.write(ctx, func(t *tx) error {
		r, open, err := t.openRun(run)
		if err != nil || !open || r.Kind != consumers.RunResync || !r.Listed || r.AbsentQueued {
			return err
		}
		err = t.rows(`SELECT id FROM threads WHERE account_id = ? AND message_count > 0
			AND NOT EXISTS (SELECT 1 FROM run_threads rt WHERE rt.run_id = ? AND rt.thread_id = threads.id) ORDER BY id`,
			[]any{r.Account, run}, func(row *sql.Rows) error {
				var id string
				err := row.Scan(&id)
				absent = append(absent, id)
				return err
			})
		if err != nil {
			return err
		}
		if err := t.addBatches(r, absent, batchSize); err != nil {
			return err
		}
		_, err = t.exec(`UPDATE runs SET absent_queued = 1, threads_listed = threads_listed + ? WHERE id = ?`, len(absent), run)
		return err
	})
	return len(absent), err
}

// FinishRun implements consumers.Store. An account that has stopped meanwhile keeps its state. The run's threads go
// afterwards, in slices; what a crash or an error leaves of them goes with the next run, or when the file is opened.
func (s *Store) FinishRun(ctx context.Context, run string, now time.Time) (bool, error) {
	finished := false
	err := s.write(ctx, func(t *tx) error {
		r, open, err := t.openRun(run)
		if err != nil {
			return err
		}
		if !open || !r.Listed || r.Progress.Open > 0 || (r.Kind == consumers.RunResync && !r.AbsentQueued) {
			return nil
		}
		if _, err := t.exec(`UPDATE runs SET finished_at = ? WHERE id = ?`, mailstore.Millis(now), run); err != nil {
			return err
		}
		finished = true
		if _, err := t.exec(`DELETE FROM batches WHERE run_id = ?`, run); err != nil {
			return err
		}
		_, err = t.exec(`UPDATE accounts SET state = 'live', reason = '', due = ? WHERE id = ? AND state IN `+activeStates,
			mailstore.Millis(now), r.Account)
		return err
	})
	if err != nil || !finished {
		return false, err
	}
	s.forgetThreads(ctx)
	return true, nil
}

// finishedThreads finds the threads of finished runs. CROSS JOIN: by way of the few finished runs, not the many threads of the
// active ones.
const finishedThreads = ` FROM runs r CROSS JOIN run_threads rt WHERE rt.run_id = r.id AND r.finished_at > ? LIMIT ?`

// forgetThreads removes the threads of finished runs. They are in nobody's way, so an error does not matter: it leaves them to
// the next call.
func (s *Store) forgetThreads(ctx context.Context) {
	var one int
	if err := s.row(ctx, `SELECT 1`+finishedThreads, []any{0, 1}, &one); err == nil {
		_ = s.deleteInSlices(ctx, `DELETE FROM run_threads WHERE (run_id, thread_id) IN (SELECT rt.run_id, rt.thread_id`+finishedThreads+`)`, 0)
	}
}

// slice is how many rows one transaction deletes at most, so that no other writer waits long (about 20 ms).
const slice = 2000

// deleteInSlices runs a DELETE that takes a key and a limit until it finds nothing more.
func (s *Store) deleteInSlices(ctx context.Context, query string, key any) error {
	for {
		var n int64
		err := s.write(ctx, func(t *tx) (err error) {
			n, err = t.exec(query, key, slice)
			return err
		})
		if err != nil || n < slice {
			return err
		}
	}
}
