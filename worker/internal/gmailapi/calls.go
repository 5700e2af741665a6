package gmailapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"time"

	"google.golang.org/api/gmail/v1"
	"google.golang.org/api/googleapi"

	"github.com/gmailsync/gmailsync/consumers"
	"github.com/gmailsync/gmailsync/gmailquota"
)

const (
	// pageSize is the most that Gmail returns on a page.
	pageSize = 500
	// answerLimit bounds one answer in memory, bytes. A thread has some hundreds of messages at most, and attachments are
	// not in it; one that is larger is no thread that a mirror could serve either.
	answerLimit = 256 << 20
	// threadLimit bounds the answer with a whole thread, bytes: while it is decoded, packed and stored it is in memory about
	// five times, in every worker slot. What is larger comes message by message.
	threadLimit = 4 << 20
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
		body, err := m.get(ctx, "threads/"+url.PathEscape(id), "full", threadLimit)
		if errors.Is(err, errTooLarge) {
			err = consumers.ErrLargeThread
		}
		if err != nil {
			return decodedThread{}, err
		}
		return decodeThread(id, body)
	})
	if err != nil {
		return consumers.Thread{}, err
	}
	t := consumers.Thread{ID: d.id, HistoryID: d.historyID, Messages: make([]consumers.Message, len(d.messages))}
	for i := range d.messages {
		if t.Messages[i], err = m.complete(ctx, &d.messages[i]); err != nil {
			return consumers.Thread{}, err
		}
	}
	return t, nil
}

// ThreadOutline implements consumers.Mailbox.
func (m *mailbox) ThreadOutline(ctx context.Context, id string) (consumers.Thread, error) {
	d, err := call(ctx, m, "threads.get", func(ctx context.Context) (decodedThread, error) {
		body, err := m.get(ctx, "threads/"+url.PathEscape(id), "minimal", answerLimit)
		if err != nil {
			return decodedThread{}, err
		}
		return decodeThread(id, body)
	})
	if err != nil {
		return consumers.Thread{}, err
	}
	t := consumers.Thread{ID: d.id, HistoryID: d.historyID, Messages: make([]consumers.Message, len(d.messages)), Outline: true}
	for i := range d.messages {
		m := d.messages[i].message
		t.Messages[i] = consumers.Message{ID: m.ID, ThreadID: m.ThreadID, HistoryID: m.HistoryID, Labels: m.Labels}
	}
	return t, nil
}

// GetMessage implements consumers.Mailbox.
func (m *mailbox) GetMessage(ctx context.Context, id string) (consumers.Message, error) {
	d, err := call(ctx, m, "messages.get", func(ctx context.Context) (*decoded, error) {
		body, err := m.get(ctx, "messages/"+url.PathEscape(id), "full", answerLimit)
		if err != nil {
			return nil, err
		}
		return decodeMessage(id, body)
	})
	if err != nil {
		return consumers.Message{}, err
	}
	return m.complete(ctx, d)
}

// get returns the answer as it came: gmail/v1 drops the bytes that it decodes, and a mirror keeps all that Gmail
// returned. An answer of more than limit bytes is read no further: errTooLarge.
func (m *mailbox) get(ctx context.Context, path, format string, limit int64) ([]byte, error) {
	u := m.endpoint + "gmail/v1/users/me/" + path + "?alt=json&format=" + format + "&prettyPrint=false"
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
	body, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if err == nil && int64(len(body)) > limit {
		err = errTooLarge
	}
	return body, err
}

// content returns the decoded bytes of an attachment by its id of the moment.
func (m *mailbox) content(ctx context.Context, messageID, attachmentID string) ([]byte, error) {
	return call(ctx, m, "messages.attachments.get", func(ctx context.Context) ([]byte, error) {
		body, err := answered(m.service.Users.Messages.Attachments.Get("me", messageID, attachmentID).Context(ctx).Do())
		if err != nil {
			return nil, err
		}
		return decodeBase64(body.Data)
	})
}

func (m *mailbox) parts(ctx context.Context, messageID string) ([]Part, error) {
	return call(ctx, m, "messages.get", func(ctx context.Context) ([]Part, error) {
		body, err := m.get(ctx, "messages/"+url.PathEscape(messageID), "full", answerLimit)
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
			return m.content(ctx, messageID, p.AttachmentID)
		default:
			return p.Data, nil
		}
	}
	return nil, &consumers.MailboxError{Op: "messages.attachments.get", Fault: consumers.Gone, Reason: "no such part"}
}

// complete fetches the body text that Gmail did not send along.
func (m *mailbox) complete(ctx context.Context, d *decoded) (consumers.Message, error) {
	for _, t := range d.elsewhere {
		data, err := m.paidFor(ctx, d.message.ID, t.attachmentID)
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
func (m *mailbox) paidFor(ctx context.Context, messageID, attachmentID string) ([]byte, error) {
	for until := time.Now().Add(textPatience); ; {
		data, err := m.content(ctx, messageID, attachmentID)
		wait, throttled := consumers.WaitOf(err)
		if !throttled || time.Now().Add(wait).After(until) {
			return data, err
		}
		if sleep(ctx, wait) != nil {
			return nil, err
		}
	}
}
