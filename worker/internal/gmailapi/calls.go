package gmailapi

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"google.golang.org/api/gmail/v1"
	"google.golang.org/api/googleapi"

	"github.com/gmailsync/gmailsync/consumers"
	"github.com/gmailsync/gmailsync/gmailquota"
)

const (
	// pageSize is the most that Gmail returns on a page.
	pageSize = 500
	// largeFrom is the size from which a job needs a place for what it fetches, bytes: below it, all worker slots together
	// hold some tens of megabytes.
	largeFrom = 1 << 20
	// threadLimit bounds the answer with a whole thread and the texts that come apart from it, bytes: while it is decoded,
	// packed and stored it is in memory about five times. What is larger comes message by message.
	threadLimit = 4 << 20
	// outlineLimit bounds a thread's outline, bytes: about 100 for a message.
	outlineLimit = 8 << 20
	// messageLimit bounds the answer with one message, bytes: text and HTML of 8 MB in base64. Attachments are not in it.
	messageLimit = 24 << 20
	// contentLimit bounds the answer with one attachment, bytes: Gmail's largest message, 50 MB, in base64. That of a text
	// is bounded by what a message keeps of it.
	contentLimit     = 80 << 20
	textContentLimit = textLimit/3*4 + envelope
	// envelope is what an answer holds beside an attachment, bytes, and some line breaks.
	envelope = 64 << 10
)

// mailbox implements consumers.Mailbox. It is stateless and always speaks of "me": the token says whose mailbox it is.
type mailbox struct {
	*Client
	account string
	class   gmailquota.Class
}

// Profile implements consumers.Mailbox.
func (m *mailbox) Profile(ctx context.Context) (consumers.Profile, error) {
	p, err := call(ctx, m, "getProfile", func(ctx context.Context) (*gmail.Profile, error) {
		return answered(m.service.Users.GetProfile("me").Context(ctx).Do())
	})
	if err != nil {
		return consumers.Profile{}, err
	}
	return consumers.Profile{
		Address: p.EmailAddress, HistoryID: consumers.HistoryID(p.HistoryId), Messages: p.MessagesTotal, Threads: p.ThreadsTotal,
	}, nil
}

// Watch implements consumers.Mailbox.
func (m *mailbox) Watch(ctx context.Context) (consumers.Watch, error) {
	if m.topic == "" {
		return consumers.Watch{}, nil
	}
	w, err := call(ctx, m, "watch", func(ctx context.Context) (*gmail.WatchResponse, error) {
		return answered(m.service.Users.Watch("me", &gmail.WatchRequest{TopicName: m.topic}).Context(ctx).Do())
	})
	if err != nil {
		return consumers.Watch{}, err
	}
	return consumers.Watch{HistoryID: consumers.HistoryID(w.HistoryId), Expires: time.UnixMilli(w.Expiration).UTC()}, nil
}

// answered makes an error of an answer that is null.
func answered[T any](v *T, err error) (*T, error) {
	if err == nil && v == nil {
		err = errAnswer
	}
	return v, err
}

// Labels implements consumers.Mailbox.
func (m *mailbox) Labels(ctx context.Context) ([]consumers.Label, error) {
	list, err := call(ctx, m, "labels.list", func(ctx context.Context) (*gmail.ListLabelsResponse, error) {
		return answered(m.service.Users.Labels.List("me").Context(ctx).Do())
	})
	if err != nil {
		return nil, err
	}
	labels := make([]consumers.Label, len(list.Labels))
	for i, l := range list.Labels {
		labels[i] = consumers.Label{ID: l.Id, Name: l.Name, Type: l.Type}
	}
	return labels, nil
}

// ListThreads implements consumers.Mailbox.
func (m *mailbox) ListThreads(ctx context.Context, pageToken string) (consumers.ThreadPage, error) {
	list, err := call(ctx, m, "threads.list", func(ctx context.Context) (*gmail.ListThreadsResponse, error) {
		list := m.service.Users.Threads.List("me").IncludeSpamTrash(m.spamTrash).MaxResults(pageSize).PageToken(pageToken)
		if m.query != "" {
			list.Q(m.query)
		}
		return answered(list.Fields("threads(id,historyId)", "nextPageToken").Context(ctx).Do())
	})
	if err != nil {
		return consumers.ThreadPage{}, err
	}
	page := consumers.ThreadPage{Next: list.NextPageToken, Threads: make([]consumers.ThreadRef, len(list.Threads))}
	for i, t := range list.Threads {
		page.Threads[i] = consumers.ThreadRef{ID: t.Id, HistoryID: consumers.HistoryID(t.HistoryId)}
	}
	return page, nil
}

// labeled is Client.Labeled.
func (m *mailbox) labeled(ctx context.Context, label, pageToken string) (MessagePage, error) {
	list, err := call(ctx, m, "messages.list", func(ctx context.Context) (*gmail.ListMessagesResponse, error) {
		return answered(m.service.Users.Messages.List("me").LabelIds(label).IncludeSpamTrash(true).MaxResults(pageSize).
			PageToken(pageToken).Fields("messages(id,threadId)", "nextPageToken").Context(ctx).Do())
	})
	if err != nil {
		return MessagePage{}, err
	}
	page := MessagePage{Next: list.NextPageToken, Threads: make(map[string]string, len(list.Messages))}
	for _, ref := range list.Messages {
		page.Threads[ref.Id] = ref.ThreadId
	}
	return page, nil
}

// historyFields leave out each record's second list of its messages.
var historyFields = []googleapi.Field{
	"history(id,messagesAdded(message(id,threadId)),messagesDeleted(message(id,threadId))," +
		"labelsAdded(labelIds,message(id,threadId)),labelsRemoved(labelIds,message(id,threadId)))",
	"nextPageToken", "historyId",
}

// History implements consumers.Mailbox.
func (m *mailbox) History(ctx context.Context, start consumers.HistoryID, pageToken string) (consumers.HistoryPage, error) {
	list, err := call(ctx, m, "history.list", func(ctx context.Context) (*gmail.ListHistoryResponse, error) {
		return answered(m.service.Users.History.List("me").StartHistoryId(uint64(start)).MaxResults(pageSize).PageToken(pageToken).
			Fields(historyFields...).Context(ctx).Do())
	})
	if err != nil {
		return consumers.HistoryPage{}, err
	}
	page := consumers.HistoryPage{Next: list.NextPageToken, Current: consumers.HistoryID(list.HistoryId)}
	for _, record := range list.History {
		page.Changes = append(page.Changes, changes(record)...)
	}
	return page, nil
}

// changes are the effects of one record. A message can be missing from an entry only in a malformed answer.
func changes(r *gmail.History) []consumers.Change {
	var out []consumers.Change
	add := func(kind consumers.ChangeKind, m *gmail.Message, labels []string) {
		if m != nil {
			out = append(out, consumers.Change{
				HistoryID: consumers.HistoryID(r.Id), Kind: kind, MessageID: m.Id, ThreadID: m.ThreadId, Labels: labels,
			})
		}
	}
	for _, c := range r.MessagesAdded {
		add(consumers.MessageAdded, c.Message, nil)
	}
	for _, c := range r.LabelsAdded {
		add(consumers.LabelsAdded, c.Message, c.LabelIds)
	}
	for _, c := range r.LabelsRemoved {
		add(consumers.LabelsRemoved, c.Message, c.LabelIds)
	}
	for _, c := range r.MessagesDeleted {
		add(consumers.MessageDeleted, c.Message, nil)
	}
	return out
}

// GetThread implements consumers.Mailbox.
func (m *mailbox) GetThread(ctx context.Context, id string) (consumers.Thread, error) {
	d, err := call(ctx, m, "threads.get", func(ctx context.Context) (decodedThread, error) {
		body, err := m.get(ctx, "threads/"+url.PathEscape(id)+"?format=full", 0, threadLimit)
		if errors.Is(err, errTooLarge) {
			err = consumers.ErrLargeThread
		}
		if err != nil {
			return decodedThread{}, err
		}
		d, err := decodeThread(id, body)
		if err == nil && (d.unreadable > 0 || len(d.messages) > 1 && int64(len(body))+d.elsewhere() > threadLimit) {
			err = consumers.ErrLargeThread
		}
		return d, err
	})
	if err != nil {
		return consumers.Thread{}, err
	}
	if err := m.place(ctx, d.elsewhere()); err != nil {
		return consumers.Thread{}, classify("messages.attachments.get", err, time.Now())
	}
	t := consumers.Thread{ID: d.id, HistoryID: d.historyID, Messages: make([]consumers.Message, len(d.messages))}
	for i := range d.messages {
		if t.Messages[i], err = m.complete(ctx, &d.messages[i]); err != nil {
			return consumers.Thread{}, err
		}
	}
	return t, nil
}

// outlineFields leave out the snippets.
const outlineFields = "id,historyId,messages(id,threadId,historyId,labelIds)"

// ThreadOutline implements consumers.Mailbox.
func (m *mailbox) ThreadOutline(ctx context.Context, id string) (consumers.Thread, error) {
	return call(ctx, m, "threads.get", func(ctx context.Context) (consumers.Thread, error) {
		body, err := m.get(ctx, "threads/"+url.PathEscape(id)+"?format=minimal&fields="+outlineFields, 0, outlineLimit)
		if err != nil {
			return consumers.Thread{}, err
		}
		return decodeOutline(id, body)
	})
}

// GetMessage implements consumers.Mailbox. A message whose text alone is too large to be held comes with its headers only,
// for another 20 units.
func (m *mailbox) GetMessage(ctx context.Context, id string) (consumers.Message, error) {
	d, err := m.message(ctx, id, "full")
	if errors.Is(err, errTooLarge) {
		if d, err = m.message(ctx, id, "metadata"); err == nil {
			d.message.BodyMissing = true
		}
	}
	if err != nil {
		return consumers.Message{}, err
	}
	return m.complete(ctx, d)
}

func (m *mailbox) message(ctx context.Context, id, format string) (*decoded, error) {
	return call(ctx, m, "messages.get", func(ctx context.Context) (*decoded, error) {
		body, err := m.get(ctx, "messages/"+url.PathEscape(id)+"?format="+format, 0, messageLimit)
		if err != nil {
			return nil, err
		}
		return decodeMessage(id, body)
	})
}

// room is where jobs of the mailbox's class hold large mail: changes never wait for an import's.
func (m *mailbox) room() *consumers.Room {
	if m.class == gmailquota.Backfill {
		return m.imports
	}
	return m.others
}

// place waits until the job of ctx may hold size bytes of mail.
func (m *mailbox) place(ctx context.Context, size int64) error {
	if size <= largeFrom {
		return nil
	}
	return m.room().Enter(ctx)
}

// get returns the answer as it came: gmail/v1 drops the bytes that it decodes, and a mirror keeps all that Gmail
// returned. It is expected to have about size bytes, 0 if that is not known. An answer of more than limit bytes is read no
// further: errTooLarge. A large one needs a place (see consumers.Room).
func (m *mailbox) get(ctx context.Context, path string, size, limit int64) ([]byte, error) {
	if err := m.place(ctx, size); err != nil {
		return nil, err
	}
	separator := "?"
	if strings.Contains(path, "?") {
		separator = "&"
	}
	u := m.endpoint + "gmail/v1/users/me/" + path + separator + "alt=json&prettyPrint=false"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", userAgent)
	resp, err := m.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if err := googleapi.CheckResponse(resp); err != nil {
		return nil, err
	}
	var body bytes.Buffer
	body.Grow(int(min(size, limit) + bytes.MinRead))
	_, err = body.ReadFrom(io.LimitReader(resp.Body, min(largeFrom, limit+1)))
	if err == nil && body.Len() == largeFrom {
		if err := m.room().Enter(ctx); err != nil {
			return nil, err
		}
		_, err = body.ReadFrom(io.LimitReader(resp.Body, limit+1-largeFrom))
	}
	if err == nil && int64(body.Len()) > limit {
		err = errTooLarge
	}
	return body.Bytes(), err
}

// content returns the decoded bytes of an attachment by its id of the moment; size is what they are said to be, limit how
// large the answer may be. It does without gmail/v1, which would hold them three times.
func (m *mailbox) content(ctx context.Context, messageID, attachmentID string, size, limit int64) ([]byte, error) {
	return call(ctx, m, "messages.attachments.get", func(ctx context.Context) ([]byte, error) {
		path := "messages/" + url.PathEscape(messageID) + "/attachments/" + url.PathEscape(attachmentID)
		body, err := m.get(ctx, path, size/3*4+envelope, limit)
		if err != nil {
			return nil, err
		}
		return decodeContent(body)
	})
}

func (m *mailbox) parts(ctx context.Context, messageID string) ([]Part, error) {
	return call(ctx, m, "messages.get", func(ctx context.Context) ([]Part, error) {
		body, err := m.get(ctx, "messages/"+url.PathEscape(messageID)+"?format=full", 0, contentLimit)
		if err != nil {
			return nil, err
		}
		return Parts(body)
	})
}

func (m *mailbox) attachment(ctx context.Context, messageID, partID string) ([]byte, error) {
	parts, err := m.parts(ctx, messageID)
	if err != nil {
		return nil, err
	}
	for _, p := range parts {
		switch {
		case p.PartID != partID:
		case p.AttachmentID != "":
			return m.content(ctx, messageID, p.AttachmentID, p.Size, contentLimit)
		default:
			return p.Data, nil
		}
	}
	return nil, &consumers.MailboxError{Op: "messages.attachments.get", Fault: consumers.Gone, Reason: "no such part"}
}

// complete fetches the body text that Gmail did not send along.
func (m *mailbox) complete(ctx context.Context, d *decoded) (consumers.Message, error) {
	if err := m.place(ctx, d.missing()); err != nil {
		return consumers.Message{}, classify("messages.attachments.get", err, time.Now())
	}
	for _, t := range d.elsewhere {
		if !d.fits(t.mimeType, t.size) {
			d.message.BodyMissing = true
			continue
		}
		data, err := m.paidFor(ctx, d.message.ID, t)
		switch {
		case err == nil:
			d.addText(t.mimeType, t.contentType, data)
		case consumers.FaultOf(err) == consumers.Gone || consumers.FaultOf(err) == consumers.Permanent:
			d.message.BodyMissing = true
		default:
			return consumers.Message{}, err
		}
	}
	return d.finish(), nil
}

// paidFor fetches text of a message that has been charged already: it waits for its turn, since giving up would mean to
// pay for the message again.
func (m *mailbox) paidFor(ctx context.Context, messageID string, t elsewhere) ([]byte, error) {
	for until := time.Now().Add(textPatience); ; {
		data, err := m.content(ctx, messageID, t.attachmentID, t.size, textContentLimit)
		wait, throttled := consumers.WaitOf(err)
		if !throttled || time.Now().Add(wait).After(until) {
			return data, err
		}
		if sleep(ctx, wait) != nil {
			return nil, err
		}
	}
}
