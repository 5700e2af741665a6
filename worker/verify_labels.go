package worker

import (
	"context"

	"github.com/gmailsync/gmailsync/consumers"
	"github.com/gmailsync/gmailsync/worker/internal/gmailapi"
)

// compareLabels lists the messages of each label and adds to differ the threads of messages that have it on one side
// only.
func (v *verifier) compareLabels(ctx context.Context, differ map[string]bool) error {
	labels, err := insist(ctx, func() ([]consumers.Label, error) { return v.mailbox.Labels(ctx) })
	if err != nil {
		return err
	}
	listed := map[string]map[string]string{} // by label: thread ids by message id
	for _, l := range labels {
		if listed[l.ID], err = v.labeled(ctx, l.ID); err != nil {
			return err
		}
	}
	// Read after the listings, so that the worker has had as much time as they took.
	stored, err := v.store.MessageRefs(ctx, v.result.Account)
	if err != nil {
		return err
	}
	for _, m := range stored {
		for _, l := range m.Labels {
			if _, ok := listed[l][m.ID]; !ok {
				differ[m.ThreadID] = true
			}
			delete(listed[l], m.ID)
		}
	}
	for _, messages := range listed {
		for _, thread := range messages {
			differ[thread] = true
		}
	}
	return nil
}

// labeled lists the messages of one label.
func (v *verifier) labeled(ctx context.Context, label string) (map[string]string, error) {
	all := map[string]string{}
	for token := ""; ; {
		page, err := insist(ctx, func() (gmailapi.MessagePage, error) {
			return v.gmail.Labeled(ctx, v.result.Account, label, token)
		})
		if consumers.FaultOf(err) == consumers.Gone {
			return all, nil // deleted since the labels were listed
		}
		if err != nil {
			return nil, err
		}
		for id, thread := range page.Threads {
			all[id] = thread
		}
		if token = page.Next; token == "" {
			return all, nil
		}
	}
}
