package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"time"

	"github.com/gmailsync/gmailsync/consumers"
	"github.com/gmailsync/gmailsync/worker/internal/mailstore"
)

// page is how many messages EachMessage reads at once, and pageBytes how much of their text and JSON from which it reads no
// further. Between pages no read transaction is open: one that stays open keeps the WAL file from being reset.
const (
	page      = 200
	pageBytes = 4 << 20
)

// errPageFull ends a page early.
var errPageFull = errors.New("the page is full")

const selectMessages = `SELECT id, thread_id, history_id, internal_date, size_estimate, label_ids, rfc_message_id, from_header,
	to_header, cc_header, subject, date_header, snippet, cleaned, body_missing, body_text, body_html, raw
	FROM messages WHERE account_id = ? AND deleted = 0`

// EachMessage calls fn for each message that is not deleted, ordered by id, whole. Messages that are stored or deleted
// meanwhile may be seen or not. An error of fn ends it and is returned.
func (s *Store) EachMessage(ctx context.Context, account string, fn func(consumers.Message) error) error {
	if _, err := s.Account(ctx, account); err != nil {
		return err
	}
	last := ""
	for {
		list, err := s.messagePage(ctx, account, last)
		if err != nil {
			return err
		}
		for i := range list {
			last = list[i].ID
			if err := fn(list[i]); err != nil {
				return err
			}
			list[i] = consumers.Message{} // what is done with is not held until the end of the page
		}
		if len(list) == 0 {
			return nil
		}
	}
}

func (s *Store) messagePage(ctx context.Context, account, after string) ([]consumers.Message, error) {
	return s.messages(ctx, pageBytes, ` AND id > ? ORDER BY id LIMIT ?`, account, after, page)
}

// ThreadMessages returns a thread's messages that are not deleted, ordered by id, whole; none for an unknown thread.
func (s *Store) ThreadMessages(ctx context.Context, account, thread string) ([]consumers.Message, error) {
	return s.messages(ctx, math.MaxInt, ` AND thread_id = ? ORDER BY id`, account, thread)
}

// messages reads whole messages of an account, until most bytes of them are there.
func (s *Store) messages(ctx context.Context, most int, which string, account string, args ...any) ([]consumers.Message, error) {
	var list []consumers.Message
	var ids []string
	at := map[string]int{}
	held := 0
	err := s.rows(ctx, selectMessages+which, append([]any{account}, args...), func(r *sql.Rows) error {
		m, err := scanMessage(r)
		at[m.ID] = len(list)
		list = append(list, m)
		ids = append(ids, m.ID)
		if held += len(m.Raw) + len(m.Text) + len(m.HTML); err == nil && held >= most {
			err = errPageFull
		}
		return err
	})
	if err != nil && !errors.Is(err, errPageFull) || len(list) == 0 {
		return nil, err
	}
	err = s.rows(ctx, `SELECT message_id, part_id, filename, mime_type, content_id, inline, size FROM attachments
		WHERE account_id = ? AND message_id IN (SELECT value FROM json_each(?)) ORDER BY message_id, part_id`,
		[]any{account, mailstore.IDList(ids)}, func(r *sql.Rows) error {
			var id string
			var a consumers.Attachment
			err := r.Scan(&id, &a.PartID, &a.Filename, &a.MIMEType, &a.ContentID, &a.Inline, &a.Size)
			if i, ok := at[id]; ok {
				list[i].Attachments = append(list[i].Attachments, a)
			}
			return err
		})
	return list, err
}

func scanMessage(r *sql.Rows) (consumers.Message, error) {
	var m consumers.Message
	var internal, date sql.NullInt64
	var labels string
	var blob sql.RawBytes
	err := r.Scan(&m.ID, &m.ThreadID, hist(&m.HistoryID), &internal, &m.Size, &labels, &m.RFCMessageID, &m.From, &m.To,
		&m.Cc, &m.Subject, &date, &m.Snippet, &m.Cleaned, &m.BodyMissing, &m.Text, &m.HTML, &blob)
	if err != nil {
		return m, err
	}
	if internal.Valid {
		m.InternalDate = time.UnixMilli(internal.Int64).UTC()
	}
	if date.Valid {
		m.Date = time.UnixMilli(date.Int64).UTC()
	}
	if m.Labels, err = mailstore.ParseLabels(labels); err != nil {
		return m, err
	}
	m.Raw, err = mailstore.Decompress(blob)
	return m, err
}

// ThreadRefs returns the threads that are not deleted, with the history ids of their last known changes.
func (s *Store) ThreadRefs(ctx context.Context, account string) (map[string]consumers.HistoryID, error) {
	return s.threadRefs(ctx, `SELECT id, history_id FROM threads WHERE account_id = ? AND message_count > 0`, account)
}

// OutsideRefs is ThreadRefs for the threads of which only messages outside the scope are known.
func (s *Store) OutsideRefs(ctx context.Context, account string) (map[string]consumers.HistoryID, error) {
	return s.threadRefs(ctx, `SELECT id, history_id FROM threads t WHERE account_id = ? AND message_count = 0 AND EXISTS
		(SELECT 1 FROM messages m WHERE m.account_id = t.account_id AND m.thread_id = t.id AND m.deleted = 1 AND m.outside = 1)`, account)
}

func (s *Store) threadRefs(ctx context.Context, query, account string) (map[string]consumers.HistoryID, error) {
	refs := map[string]consumers.HistoryID{}
	err := s.rows(ctx, query, []any{account}, func(r *sql.Rows) error {
		var id string
		var h consumers.HistoryID
		err := r.Scan(&id, hist(&h))
		refs[id] = h
		return err
	})
	return refs, err
}

// MessageRefs returns the messages that are not deleted, ordered by id.
func (s *Store) MessageRefs(ctx context.Context, account string) ([]mailstore.MessageRef, error) {
	var refs []mailstore.MessageRef
	err := s.rows(ctx, `SELECT id, thread_id, history_id, label_ids FROM messages WHERE account_id = ? AND deleted = 0 ORDER BY id`,
		[]any{account}, func(r *sql.Rows) error {
			var m mailstore.MessageRef
			var labels string
			err := r.Scan(&m.ID, &m.ThreadID, hist(&m.HistoryID), &labels)
			if err == nil {
				m.Labels, err = mailstore.ParseLabels(labels)
			}
			refs = append(refs, m)
			return err
		})
	return refs, err
}

// DeadLetters returns the account's dead letters, oldest first; those of all accounts for an empty id.
func (s *Store) DeadLetters(ctx context.Context, account string) ([]consumers.DeadLetter, error) {
	var list []consumers.DeadLetter
	err := s.rows(ctx, `SELECT id, account_id, kind, run_id, thread_id, message_id, cause, attempts, at FROM dead_letters
		WHERE ?1 = '' OR account_id = ?1 ORDER BY id`, []any{account}, func(r *sql.Rows) error {
		var d consumers.DeadLetter
		var at int64
		err := r.Scan(&d.ID, &d.Account, &d.Kind, &d.Run, &d.ThreadID, &d.MessageID, &d.Cause, &d.Attempts, &at)
		d.At = mailstore.Time(at)
		list = append(list, d)
		return err
	})
	return list, err
}

// Progress returns the progress of the account's active run, or of its last listing; all zero before the first.
func (s *Store) Progress(ctx context.Context, account string) (consumers.Progress, error) {
	run, err := s.readRun(ctx, ` WHERE account_id = ? ORDER BY finished_at = 0 DESC, kind = 'replay', started_at DESC, rowid DESC LIMIT 1`, account)
	if errors.Is(err, consumers.ErrNoRun) {
		_, err = s.Account(ctx, account)
	}
	return run.Progress, err
}

// Counts returns how many threads and messages of the account are stored and not deleted.
func (s *Store) Counts(ctx context.Context, account string) (mailstore.Counts, error) {
	var c mailstore.Counts
	err := s.row(ctx, `SELECT count(*), COALESCE(sum(message_count), 0) FROM threads WHERE account_id = ? AND message_count > 0`,
		[]any{account}, &c.Threads, &c.Messages)
	return c, err
}
