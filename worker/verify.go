package worker

import (
	"context"
	"fmt"
	"slices"

	"github.com/gmailsync/gmailsync/consumers"
	"github.com/gmailsync/gmailsync/gmailquota"
	"github.com/gmailsync/gmailsync/worker/internal/mailstore"
)

// VerifyResult counts the messages by which a mirror and its mailbox differ.
type VerifyResult struct {
	Account   string `json:"account"`
	Threads   int    `json:"threads"`   // compared by their history ids, 10 units a 500
	Fetched   int    `json:"fetched"`   // of them, whose history ids differed: compared message by message, 40 units each
	Missing   int    `json:"missing"`   // messages of the mailbox that the mirror lacks
	Extra     int    `json:"extra"`     // messages of the mirror that the mailbox lacks
	Different int    `json:"different"` // messages of the same thread with other labels; in another thread counts as missing and extra
}

// Equal tells that no difference was found.
func (r VerifyResult) Equal() bool { return r.Missing == 0 && r.Extra == 0 && r.Different == 0 }

// Verify compares an account's mirror with its mailbox, as class maintenance, waiting where the guard says so. A
// change that arrives meanwhile can count as a difference until the worker has stored it; run it again to see.
func (m *Mirror) Verify(ctx context.Context, account string) (VerifyResult, error) {
	r, err := m.verify(ctx, account)
	if err != nil && consumers.FaultOf(err) == consumers.AccountFault {
		err = fmt.Errorf("%w: connect the account again, with `gmailsync account add`", err)
	}
	return r, err
}

func (m *Mirror) verify(ctx context.Context, account string) (VerifyResult, error) {
	r := VerifyResult{Account: account}
	mailbox, err := m.gmail.Mailbox(ctx, account, gmailquota.Maintenance)
	if err != nil {
		return r, err
	}
	scope, err := m.store.Scope(ctx, account)
	if err != nil {
		return r, err
	}
	stored, err := m.store.ThreadRefs(ctx, account)
	if err != nil {
		return r, err
	}
	outside, err := m.store.OutsideRefs(ctx, account)
	if err != nil {
		return r, err
	}
	differ, err := differing(ctx, mailbox, stored, outside, &r)
	if err != nil {
		return r, err
	}
	messages, err := m.messagesOf(ctx, account, differ)
	if err != nil {
		return r, err
	}
	for _, id := range differ {
		t, err := insist(ctx, func() (consumers.Thread, error) { return mailbox.GetThread(ctx, id) })
		if err != nil && consumers.FaultOf(err) != consumers.Gone {
			return r, fmt.Errorf("compare a thread: %w", err)
		}
		r.Fetched++
		inside := slices.DeleteFunc(t.Messages, func(m consumers.Message) bool { return !scope.Has(m.Labels) })
		r.compare(inside, messages[id])
	}
	return r, nil
}

// differing lists the mailbox's threads and returns, sorted, those whose history id is not the stored one, and those
// that only one side has. Of threads outside the scope only those that are listed can differ.
func differing(ctx context.Context, mailbox consumers.Mailbox, stored, outside map[string]consumers.HistoryID, r *VerifyResult) ([]string, error) {
	listed := map[string]bool{}
	var differ []string
	for token := ""; ; {
		page, err := insist(ctx, func() (consumers.ThreadPage, error) { return mailbox.ListThreads(ctx, token) })
		if err != nil {
			return nil, fmt.Errorf("list threads: %w", err)
		}
		for _, t := range page.Threads {
			if listed[t.ID] {
				continue
			}
			listed[t.ID] = true
			if stored[t.ID] != t.HistoryID && outside[t.ID] != t.HistoryID {
				differ = append(differ, t.ID)
			}
		}
		if token = page.Next; token == "" {
			break
		}
	}
	for id := range stored {
		if !listed[id] {
			listed[id] = true
			differ = append(differ, id)
		}
	}
	r.Threads = len(listed)
	slices.Sort(differ)
	return differ, nil
}

// messagesOf returns the stored messages of some threads, by thread and message id.
func (m *Mirror) messagesOf(ctx context.Context, account string, threads []string) (map[string]map[string]mailstore.MessageRef, error) {
	byThread := map[string]map[string]mailstore.MessageRef{}
	for _, id := range threads {
		byThread[id] = map[string]mailstore.MessageRef{}
	}
	if len(threads) == 0 {
		return byThread, nil
	}
	refs, err := m.store.MessageRefs(ctx, account)
	if err != nil {
		return nil, err
	}
	for _, ref := range refs {
		if of, ok := byThread[ref.ThreadID]; ok {
			of[ref.ID] = ref
		}
	}
	return byThread, nil
}

func (r *VerifyResult) compare(mailbox []consumers.Message, mirror map[string]mailstore.MessageRef) {
	for _, want := range mailbox {
		have, ok := mirror[want.ID]
		switch {
		case !ok:
			r.Missing++
		case !slices.Equal(have.Labels, want.Labels):
			r.Different++
		}
		delete(mirror, want.ID)
	}
	r.Extra += len(mirror)
}
