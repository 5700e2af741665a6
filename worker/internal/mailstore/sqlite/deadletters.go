package sqlite

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/gmailsync/gmailsync/consumers"
	"github.com/gmailsync/gmailsync/worker/internal/mailstore"
)

// AddDeadLetter implements consumers.Store.
func (s *Store) AddDeadLetter(ctx context.Context, d consumers.DeadLetter) error {
	return s.write(ctx, func(t *tx) error {
		if err := t.mustAccount(d.Account); err != nil {
			return err
		}
		return t.addDeadLetter(d)
	})
}

// addDeadLetter writes a letter, or brings the one about the same work up to date: a job's is known by its kind and run, a
// thread's or a message's by its id.
func (t *tx) addDeadLetter(d consumers.DeadLetter) error {
	cause, at := mailstore.CleanText(d.Cause), mailstore.Millis(d.At)
	n, err := t.exec(`UPDATE dead_letters SET kind = ?1, run_id = ?2, cause = ?3, attempts = ?4, at = ?5
		WHERE account_id = ?6 AND thread_id = ?7 AND message_id = ?8 AND (thread_id <> '' OR message_id <> '' OR kind = ?1 AND run_id = ?2)`,
		d.Kind, d.Run, cause, d.Attempts, at, d.Account, d.ThreadID, d.MessageID)
	if err != nil || n > 0 {
		return err
	}
	_, err = t.exec(`INSERT INTO dead_letters (account_id, kind, run_id, thread_id, message_id, cause, attempts, at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?)`, d.Account, d.Kind, d.Run, d.ThreadID, d.MessageID, cause, d.Attempts, at)
	return err
}

// dropThreadLetters removes the letters of a thread that is stored whole, or gone, and of its messages.
func (t *tx) dropThreadLetters(account, thread string) error {
	_, err := t.exec(`DELETE FROM dead_letters WHERE account_id = ? AND thread_id = ?`, account, thread)
	return err
}

// accountedFor tells that a letter's message has a row, live or deleted, as new as all that named it.
const accountedFor = `EXISTS (SELECT 1 FROM messages m WHERE m.account_id = dead_letters.account_id AND m.id = dead_letters.message_id)
	AND NOT EXISTS (SELECT 1 FROM wants w WHERE w.account_id = dead_letters.account_id AND w.message_id = dead_letters.message_id)`

// dropMessageLetters removes the letters of messages that are stored, or known to be deleted.
func (t *tx) dropMessageLetters(account string) error {
	_, err := t.exec(`DELETE FROM dead_letters WHERE account_id = ? AND message_id <> '' AND `+accountedFor, account)
	return err
}

// DropDeadLetters implements consumers.Store.
func (s *Store) DropDeadLetters(ctx context.Context, account string, ids []int64) (int, error) {
	var n int64
	err := s.write(ctx, func(t *tx) (err error) {
		if err := t.mustAccount(account); err != nil {
			return err
		}
		n, err = t.exec(`DELETE FROM dead_letters WHERE account_id = ? AND id IN (SELECT value FROM json_each(?))`, account, idNumbers(ids))
		return err
	})
	return int(n), err
}

// ReplayDeadLetters implements consumers.Store.
func (s *Store) ReplayDeadLetters(ctx context.Context, account string, ids []int64, batchSize int, now time.Time) (int, error) {
	replayed := 0
	err := s.write(ctx, func(t *tx) error {
		if err := t.mustAccount(account); err != nil {
			return err
		}
		if err := t.dropMessageLetters(account); err != nil {
			return err
		}
		r := replay{tx: t, account: account, now: now}
		letters, err := r.take(ids)
		if err != nil {
			return err
		}
		for _, d := range letters {
			if err := r.again(d); err != nil {
				return err
			}
		}
		err = r.fetchThreads(batchSize)
		replayed = r.replayed
		return err
	})
	return replayed, err
}

// replay puts the work of dead letters back.
type replay struct {
	*tx
	account  string
	now      time.Time
	threads  []string // to be fetched whole
	replayed int
}

// take removes the letters and returns them.
func (r *replay) take(ids []int64) ([]consumers.DeadLetter, error) {
	var letters []consumers.DeadLetter
	err := r.rows(`SELECT id, kind, thread_id, message_id FROM dead_letters WHERE account_id = ?
		AND id IN (SELECT value FROM json_each(?)) ORDER BY id`, []any{r.account, idNumbers(ids)}, func(row *sql.Rows) error {
		var d consumers.DeadLetter
		err := row.Scan(&d.ID, &d.Kind, &d.ThreadID, &d.MessageID)
		letters = append(letters, d)
		return err
	})
	if err != nil {
		return nil, err
	}
	_, err = r.exec(`DELETE FROM dead_letters WHERE account_id = ? AND id IN (SELECT value FROM json_each(?))`, r.account, idNumbers(ids))
	return letters, err
}

func (r *replay) again(d consumers.DeadLetter) error {
	switch {
	case d.MessageID != "":
		r.replayed++
		return r.fetchMessage(d)
	case d.ThreadID != "":
		r.threads = append(r.threads, d.ThreadID)
		return nil
	}
	r.replayed++
	return release(r.tx, r.account) // a job: what it was about is still open
}

// fetchMessage puts a message on the retry list, as the record that named it.
func (r *replay) fetchMessage(d consumers.DeadLetter) error {
	f := consumers.Fetch{MessageID: d.MessageID, ThreadID: d.ThreadID, Due: r.now, Cause: "replayed"}
	err := r.row(`SELECT history_id FROM wants WHERE account_id = ? AND thread_id = ? AND message_id = ?`,
		[]any{r.account, d.ThreadID, d.MessageID}, hist(&f.HistoryID))
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	if err := r.addFetch(r.account, f); err != nil {
		return err
	}
	_, err = r.exec(`UPDATE accounts SET due = min(due, ?) WHERE id = ?`, mailstore.Millis(r.now), r.account)
	return err
}

// fetchThreads gives the threads that are not whole to the active run, or to a run of their own. An account whose listing has
// not begun gets them from it.
func (r *replay) fetchThreads(batchSize int) error {
	open, err := r.incomplete()
	if err != nil || len(open) == 0 {
		return err
	}
	r.replayed += len(open)
	run, err := r.run(runActive, r.account)
	if errors.Is(err, consumers.ErrNoRun) {
		run, err = r.startRun()
	}
	if err != nil || run.ID == "" {
		return err
	}
	return r.addToRun(run, open, batchSize)
}

// incomplete are the threads of letters that were not stored meanwhile, each once.
func (r *replay) incomplete() ([]string, error) {
	var open []string
	err := r.rows(`SELECT DISTINCT j.value FROM json_each(?2) j WHERE NOT EXISTS (SELECT 1 FROM threads t
		WHERE t.account_id = ?1 AND t.id = j.value AND t.complete = 1) ORDER BY j.value DESC`,
		[]any{r.account, mailstore.IDList(r.threads)}, func(row *sql.Rows) error {
			var id string
			err := row.Scan(&id)
			open = append(open, id)
			return err
		})
	return open, err
}

// startRun starts a run that has nothing to list; none, with an empty id, where a listing is to come anyway.
func (r *replay) startRun() (consumers.Run, error) {
	id := strings.ToLower(rand.Text())
	ms := mailstore.Millis(r.now)
	n, err := r.exec(`INSERT INTO runs (id, account_id, kind, baseline_history_id, listed, absent_queued, due, started_at)
		SELECT ?1, id, ?2, cursor_history_id, 1, 1, ?3, ?3 FROM accounts
		WHERE id = ?4 AND cursor_history_id > ?5 AND state NOT IN ('importing', 'resyncing')`,
		id, consumers.RunReplay, ms, r.account, noHistory)
	if err != nil || n == 0 {
		return consumers.Run{}, err
	}
	return r.run(runByID, id)
}

// addToRun opens the threads again, as batches of the run. One that the run has open already stays where it is.
func (r *replay) addToRun(run consumers.Run, threads []string, batchSize int) error {
	var fetch []string
	listed, failed := 0, 0
	for _, id := range threads {
		var state string
		err := r.row(`SELECT state FROM run_threads WHERE run_id = ? AND thread_id = ?`, []any{run.ID, id}, &state)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			listed++
		case err != nil:
			return err
		case state != "failed":
			continue
		default:
			failed++
			if _, err := r.exec(`DELETE FROM run_threads WHERE run_id = ? AND thread_id = ?`, run.ID, id); err != nil {
				return err
			}
		}
		fetch = append(fetch, id)
	}
	if err := r.addBatches(run, fetch, batchSize); err != nil {
		return err
	}
	_, err := r.exec(`UPDATE runs SET threads_listed = threads_listed + ?, threads_failed = threads_failed - ?, due = ? WHERE id = ?`,
		listed, failed, mailstore.Millis(r.now), run.ID)
	return err
}

// idNumbers is a JSON array of numbers.
func idNumbers(ids []int64) string {
	text := make([]string, len(ids))
	for i, id := range ids {
		text[i] = strconv.FormatInt(id, 10)
	}
	return "[" + strings.Join(text, ",") + "]"
}
