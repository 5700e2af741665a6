package worker

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/gmailsync/gmailsync/consumers"
	"github.com/gmailsync/gmailsync/worker/internal/gmailapi"
	"github.com/gmailsync/gmailsync/worker/internal/mailstore"
)

// comparison is one thread, as Gmail returned it and as it is stored.
type comparison struct {
	thread      consumers.Thread
	gone        bool                // a fetch of it answered 404
	cursor      consumers.HistoryID // the worker's before the fetch: a resync since then overtakes it
	stored      map[string]consumers.Message
	differences []Difference
	lags        bool // a difference may be one of time only: compare it again
}

// open tells that something differs that is not in flight.
func (c *comparison) open() bool {
	return slices.ContainsFunc(c.differences, func(d Difference) bool { return !d.InFlight && d.Kind != Unreadable })
}

// compare fetches a thread and compares it whole with what is stored of it. The store is read first: what the worker
// stores between the two is then older than the fetch, and what looks missing or changed is later than the beginning.
func (v *verifier) compare(ctx context.Context, id string) (*comparison, error) {
	acct, err := v.store.Account(ctx, v.result.Account)
	if err != nil {
		return nil, err
	}
	c := &comparison{thread: consumers.Thread{ID: id}, cursor: acct.Cursor}
	if err := v.readStored(ctx, c); err != nil {
		return nil, err
	}
	v.result.Fetched++
	thread, err := v.fetch(ctx, id)
	switch fault := consumers.FaultOf(err); {
	case err == nil && thread.Unreadable > 0: // which of the stored messages it lacks is not known
		c.differences = []Difference{{ThreadID: id, Kind: Unreadable}}
		return c, nil
	case err == nil:
		c.thread = thread
	case fault == consumers.Gone:
		c.gone = true
	default:
		if err := v.unlessAlone(ctx, err); err != nil {
			return nil, fmt.Errorf("compare a thread: %w", err)
		}
		c.differences = []Difference{{ThreadID: id, Kind: Unreadable}}
		return c, nil
	}
	v.differ(c, acct.Cursor)
	return c, nil
}

// fetch returns a thread whole, also what is outside the scope; of a large one the outline: its content is not compared.
func (v *verifier) fetch(ctx context.Context, id string) (consumers.Thread, error) {
	thread, err := insist(ctx, func() (consumers.Thread, error) { return v.mailbox.GetThread(ctx, id) })
	if errors.Is(err, consumers.ErrLargeThread) {
		v.result.Fetched++
		thread, err = insist(ctx, func() (consumers.Thread, error) { return v.mailbox.ThreadOutline(ctx, id) })
	}
	return thread, err
}

// unlessAlone returns nil for a call's failure that is its one thread's or message's, so that the comparison goes on
// without it: it can never succeed, or it failed again and again though the mailbox is reachable.
func (v *verifier) unlessAlone(ctx context.Context, err error) error {
	switch consumers.FaultOf(err) {
	case consumers.Permanent:
		return nil
	case consumers.Passing:
		if ctx.Err() != nil {
			return err
		}
		_, away := insist(ctx, func() (struct{}, error) { return struct{}{}, consumers.Reachable(ctx, v.mailbox) })
		return away
	}
	return err
}

func (v *verifier) readStored(ctx context.Context, c *comparison) error {
	list, err := v.store.ThreadMessages(ctx, v.result.Account, c.thread.ID)
	if err != nil {
		return err
	}
	c.stored = make(map[string]consumers.Message, len(list))
	for _, m := range list {
		c.stored[m.ID] = m
	}
	return nil
}

// differ finds the differences of a thread. One may be of time only if the mailbox's side is later than the cursor, which
// the worker has not read yet; and a message that Gmail lacks may have been deleted since it was read.
func (v *verifier) differ(c *comparison, cursor consumers.HistoryID) {
	c.differences, c.lags = nil, false
	mailbox := map[string]bool{}
	for _, want := range c.thread.Messages {
		if !v.scope.Has(want.Labels) {
			continue
		}
		mailbox[want.ID] = true
		have, ok := c.stored[want.ID]
		kind := Missing
		switch {
		case ok && !c.thread.Outline && !sameContent(have, want):
			c.add(want.ID, Content, false) // no change in the mailbox does that
			continue
		case ok && mailstore.LabelText(have.Labels) == mailstore.LabelText(want.Labels):
			continue
		case ok:
			kind = Labels
		}
		at := max(want.HistoryID, have.HistoryID)
		c.add(want.ID, kind, at > v.began)
		c.lags = c.lags || at > min(v.began, cursor)
	}
	_, listed := v.listed[c.thread.ID]
	for _, id := range sortedIDs(c.stored) {
		if !mailbox[id] {
			later := c.stored[id].HistoryID > v.began || c.thread.HistoryID > v.began || c.gone && listed
			c.add(id, Extra, later)
			c.lags = true
		}
	}
}

func (c *comparison) add(message string, kind DifferenceKind, inFlight bool) {
	d := Difference{ThreadID: c.thread.ID, MessageID: message, Kind: kind, InFlight: inFlight}
	c.differences = append(c.differences, d)
}

// overtaken notes that a resync is to find what differs.
func (c *comparison) overtaken() {
	for i := range c.differences {
		c.differences[i].InFlight = true
	}
}

func sortedIDs(messages map[string]consumers.Message) []string {
	ids := make([]string, 0, len(messages))
	for id := range messages {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// sameContent compares what never changes in a message: the columns but its labels, and the parts as Gmail returned them,
// but for the attachment ids, which differ from fetch to fetch.
func sameContent(have, want consumers.Message) bool {
	haveParts, haveErr := gmailapi.Parts(have.Raw)
	wantParts, wantErr := gmailapi.Parts(want.Raw)
	return haveErr == nil && wantErr == nil && slices.EqualFunc(haveParts, wantParts, samePart) &&
		reflect.DeepEqual(columns(have), columns(mailstore.CleanMessage(want)))
}

func samePart(a, b gmailapi.Part) bool {
	return a.PartID == b.PartID && a.MIMEType == b.MIMEType && a.Filename == b.Filename && a.Size == b.Size &&
		slices.Equal(a.Headers, b.Headers) && bytes.Equal(a.Data, b.Data)
}

// columns returns the message with only what its columns tell of the content, in one form for equal content.
func columns(m consumers.Message) consumers.Message {
	m.HistoryID, m.Labels, m.Raw = 0, nil, nil
	m.InternalDate, m.Date = m.InternalDate.UTC(), m.Date.UTC()
	m.Attachments = append([]consumers.Attachment{}, m.Attachments...)
	slices.SortFunc(m.Attachments, func(a, b consumers.Attachment) int { return cmp.Compare(a.PartID, b.PartID) })
	return m
}
