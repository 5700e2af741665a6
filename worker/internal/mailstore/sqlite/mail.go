package sqlite

import (
	"database/sql"
	"errors"
	"time"

	"github.com/gmailsync/gmailsync/consumers"
	"github.com/gmailsync/gmailsync/worker/internal/mailstore"
)

// packed is a message ready to be stored: text cleaned, Gmail's JSON compressed. It is made outside the transaction,
// so that nobody waits for it.
type packed struct {
	consumers.Message
	blob []byte
}

func packMessages(list []consumers.Message) []packed {
	rows := make([]packed, len(list))
	for i, m := range list {
		rows[i] = packed{mailstore.CleanMessage(m), mailstore.Compress(m.Raw)}
	}
	return rows
}

// threadRow is the row of a thread. The rules that move it stand here; everything else only reads and writes it.
type threadRow struct {
	history  consumers.HistoryID // last known change
	snapshot consumers.HistoryID // newest whole snapshot stored
	complete bool
}

// seen notes a change.
func (r *threadRow) seen(h consumers.HistoryID) { r.history = max(r.history, h) }

// thread reads a thread's row; known is false if there is none.
func (t *tx) thread(account, id string) (r threadRow, known bool, err error) {
	err = t.row(`SELECT history_id, snapshot_history_id, complete FROM threads WHERE account_id = ? AND id = ?`,
		[]any{account, id}, hist(&r.history), hist(&r.snapshot), &r.complete)
	if errors.Is(err, sql.ErrNoRows) {
		return threadRow{}, false, nil
	}
	return r, err == nil, err
}

// saveThreadRow writes the row and counts the thread's live messages: with the last one gone the thread is deleted.
func (t *tx) saveThreadRow(account, id string, r threadRow) error {
	_, err := t.exec(`INSERT INTO threads (account_id, id, history_id, snapshot_history_id, complete, message_count)
		VALUES (?1, ?2, ?3, ?4, ?5, (SELECT count(*) FROM messages WHERE account_id = ?1 AND thread_id = ?2 AND deleted = 0))
		ON CONFLICT (account_id, id) DO UPDATE SET history_id = excluded.history_id,
			snapshot_history_id = excluded.snapshot_history_id, complete = excluded.complete,
			message_count = excluded.message_count`,
		account, id, mailstore.HistoryText(r.history), mailstore.HistoryText(r.snapshot), r.complete)
	return err
}

// stored is what the guards need to know of a message's row.
type stored struct {
	history consumers.HistoryID
	deleted bool
	outside bool // of the scope; then it is deleted too
}

func (t *tx) threadMessages(account, thread string) (map[string]stored, error) {
	have := map[string]stored{}
	err := t.rows(`SELECT id, history_id, deleted, outside FROM messages WHERE account_id = ? AND thread_id = ?`,
		[]any{account, thread}, func(r *sql.Rows) error {
			var id string
			var m stored
			err := r.Scan(&id, hist(&m.history), &m.deleted, &m.outside)
			have[id] = m
			return err
		})
	return have, err
}

// saveSnapshot stores a thread as it stood at its history id, fetched when the mailbox was past floor; rows are its packed
// messages. It tells whether the
// thread is complete with it: nothing is wanted that it is too old for.
func (t *tx) saveSnapshot(account string, thread consumers.Thread, rows []packed, floor consumers.HistoryID) (bool, error) {
	row, _, err := t.thread(account, thread.ID)
	if err != nil {
		return false, err
	}
	have, err := t.threadMessages(account, thread.ID)
	if err != nil {
		return false, err
	}
	for i := range rows {
		rows[i].ThreadID = thread.ID
		m, known := have[rows[i].ID]
		if thread.Outline {
			if !known || m.history < rows[i].HistoryID {
				return false, nil
			}
		} else if err := t.saveMessage(account, &rows[i], known); err != nil {
			return false, err
		}
		delete(have, rows[i].ID)
	}
	for id, m := range have {
		if m.deleted && !m.outside || m.history > max(thread.HistoryID, floor) {
			continue
		}
		if err := t.deleteMessage(account, thread.ID, id, max(m.history, thread.HistoryID)); err != nil {
			return false, err
		}
	}
	row.seen(thread.HistoryID)
	complete, err := t.settleWants(account, thread)
	if err != nil {
		return false, err
	}
	if complete {
		row.complete, row.snapshot = true, max(row.snapshot, thread.HistoryID)
		if err := t.dropThreadLetters(account, thread.ID); err != nil {
			return false, err
		}
	}
	return complete, t.saveThreadRow(account, thread.ID, row)
}

const upsertMessage = `INSERT INTO messages (account_id, id, thread_id, history_id, internal_date, size_estimate, label_ids,
		rfc_message_id, from_header, to_header, cc_header, subject, date_header, snippet, cleaned, body_missing,
		body_text, body_html, raw)
	VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
	ON CONFLICT (account_id, id) DO UPDATE SET thread_id = excluded.thread_id, history_id = excluded.history_id,
		deleted = 0, outside = 0,
		internal_date = excluded.internal_date, size_estimate = excluded.size_estimate, label_ids = excluded.label_ids,
		rfc_message_id = excluded.rfc_message_id, from_header = excluded.from_header, to_header = excluded.to_header,
		cc_header = excluded.cc_header, subject = excluded.subject, date_header = excluded.date_header,
		snippet = excluded.snippet, cleaned = excluded.cleaned, body_missing = excluded.body_missing,
		body_text = excluded.body_text, body_html = excluded.body_html, raw = excluded.raw
	WHERE excluded.history_id >= messages.history_id`

// saveMessage stores a live message unless the stored row is newer. A deletion has a history id above all that the
// message had before, so an equal id is never an older snapshot of a deleted message. known is false if the caller
// found no row in the message's thread. Of a message outside the scope ids and labels are stored.
func (t *tx) saveMessage(account string, m *packed, known bool) error {
	rule, err := t.rule(account)
	if err != nil {
		return err
	}
	if !rule.Has(m.Labels) {
		return t.saveOutside(account, m.ThreadID, m.ID, m.HistoryID, m.Labels)
	}
	n, err := t.exec(upsertMessage, account, m.ID, m.ThreadID, mailstore.HistoryText(m.HistoryID), nullTime(m.InternalDate),
		m.Size, mailstore.LabelText(m.Labels), m.RFCMessageID, m.From, m.To, m.Cc, m.Subject, nullTime(m.Date), m.Snippet,
		m.Cleaned, m.BodyMissing, m.Text, m.HTML, m.blob)
	if err != nil || n == 0 {
		return err
	}
	if known {
		if err := t.deleteAttachments(account, m.ID); err != nil {
			return err
		}
	}
	for _, a := range m.Attachments {
		if _, err := t.exec(`INSERT INTO attachments (account_id, message_id, part_id, filename, mime_type, content_id, inline, size)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (account_id, message_id, part_id) DO UPDATE SET
			filename = excluded.filename, mime_type = excluded.mime_type, content_id = excluded.content_id,
			inline = excluded.inline, size = excluded.size`,
			account, m.ID, a.PartID, a.Filename, a.MIMEType, a.ContentID, a.Inline, a.Size); err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) deleteAttachments(account, message string) error {
	_, err := t.exec(`DELETE FROM attachments WHERE account_id = ? AND message_id = ?`, account, message)
	return err
}

// deleteMessage leaves a row without content, also for a message that was never stored. The caller has checked that
// no newer row is there.
func (t *tx) deleteMessage(account, thread, id string, at consumers.HistoryID) error {
	if _, err := t.exec(`INSERT INTO messages (account_id, id, thread_id, history_id, deleted) VALUES (?, ?, ?, ?, 1)
		ON CONFLICT (account_id, id) DO UPDATE SET history_id = excluded.history_id, deleted = 1, outside = 0,
			label_ids = '[]', `+erase,
		account, id, thread, mailstore.HistoryText(at)); err != nil {
		return err
	}
	return t.deleteAttachments(account, id)
}

// saveOutside leaves of a message outside the scope its ids and labels, unless a newer row is there.
func (t *tx) saveOutside(account, thread, id string, at consumers.HistoryID, labels []string) error {
	n, err := t.exec(`INSERT INTO messages (account_id, id, thread_id, history_id, label_ids, deleted, outside) VALUES (?, ?, ?, ?, ?, 1, 1)
		ON CONFLICT (account_id, id) DO UPDATE SET thread_id = excluded.thread_id, history_id = excluded.history_id,
			label_ids = excluded.label_ids, deleted = 1, outside = 1, `+erase+`
		WHERE excluded.history_id >= messages.history_id`,
		account, id, thread, mailstore.HistoryText(at), mailstore.LabelText(labels))
	if err != nil || n == 0 {
		return err
	}
	return t.deleteAttachments(account, id)
}

func nullTime(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMilli()
}
