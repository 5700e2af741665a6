package worker

import (
	"context"
	"slices"
	"time"

	"github.com/gmailsync/gmailsync/consumers"
)

// repair brings a thread into the mirror as the consumers do, marks what is the mailbox's since then as repaired, and
// leaves the rest open.
func (v *verifier) repair(ctx context.Context, c *comparison) error {
	bring := v.storeThread
	if c.gone {
		bring = v.buryThread
	}
	if err := bring(ctx, c); err != nil {
		return err
	}
	left, err := v.compareStored(ctx, c)
	if err != nil {
		return err
	}
	// Messages newer than the thread's own id survive its snapshot: whether they are gone is for a fetch of each to say.
	for _, d := range left.differences {
		if d.Kind == Extra && !d.InFlight {
			if err := v.buryIfGone(ctx, c, left.stored[d.MessageID]); err != nil {
				return err
			}
		}
	}
	if left, err = v.compareStored(ctx, c); err != nil {
		return err
	}
	for i, d := range c.differences {
		c.differences[i].Repaired = !d.InFlight && !left.differs(d.MessageID)
	}
	return nil
}

// storeThread stores a thread as it was fetched; of an outline first the messages that differ, for 20 units each.
func (v *verifier) storeThread(ctx context.Context, c *comparison) error {
	for _, d := range c.differences {
		if !c.thread.Outline || d.Kind == Extra {
			continue
		}
		m, err := insist(ctx, func() (consumers.Message, error) { return v.mailbox.GetMessage(ctx, d.MessageID) })
		switch {
		case err == nil:
			err = v.apply(ctx, c, consumers.HistoryStep{Messages: []consumers.Message{m}})
		case consumers.FaultOf(err) == consumers.Gone:
			continue // it stays open
		default:
			err = v.unlessAlone(ctx, err) // it stays open, too
		}
		if err != nil {
			return err
		}
	}
	if err := v.storeOutside(ctx, c); err != nil {
		return err
	}
	return v.apply(ctx, c, consumers.HistoryStep{Threads: []consumers.Thread{c.thread}})
}

// storeOutside notes the messages of an outline that are outside the scope, for the outline is stored only where all its
// messages are known: all that is kept of them is what the outline tells. Without a history id it tells no labels.
func (v *verifier) storeOutside(ctx context.Context, c *comparison) error {
	var outside []consumers.Message
	for _, m := range c.thread.Messages {
		if c.thread.Outline && m.HistoryID != 0 && !v.scope.Has(m.Labels) {
			outside = append(outside, m)
		}
	}
	if len(outside) == 0 {
		return nil
	}
	return v.apply(ctx, c, consumers.HistoryStep{Messages: outside})
}

// buryThread deletes what is stored of a thread that the list does not name and whose fetch answered 404.
func (v *verifier) buryThread(ctx context.Context, c *comparison) error {
	for _, d := range c.differences {
		if d.InFlight {
			continue
		}
		if err := v.bury(ctx, c, c.stored[d.MessageID]); err != nil {
			return err
		}
	}
	return nil
}

// compareStored compares the thread that was fetched with what is stored now.
func (v *verifier) compareStored(ctx context.Context, c *comparison) (*comparison, error) {
	now := &comparison{thread: c.thread, gone: c.gone, cursor: c.cursor}
	if err := v.readStored(ctx, now); err != nil {
		return nil, err
	}
	v.differ(now, v.began)
	return now, nil
}

// differs tells that a message differs by more than what is in flight: the worker may store something later meanwhile.
func (c *comparison) differs(message string) bool {
	return slices.ContainsFunc(c.differences, func(d Difference) bool { return d.MessageID == message && !d.InFlight })
}

// buryIfGone deletes a message if its fetch, for 20 units, answers 404.
func (v *verifier) buryIfGone(ctx context.Context, c *comparison, m consumers.Message) error {
	_, err := insist(ctx, func() (consumers.Message, error) { return v.mailbox.GetMessage(ctx, m.ID) })
	switch {
	case err == nil:
		return nil
	case consumers.FaultOf(err) == consumers.Gone:
		return v.bury(ctx, c, m)
	}
	return v.unlessAlone(ctx, err)
}

// bury deletes a message as a history record does that is as old as the row that was read: a newer row stays.
func (v *verifier) bury(ctx context.Context, c *comparison, m consumers.Message) error {
	deleted := consumers.Change{
		HistoryID: m.HistoryID, Kind: consumers.MessageDeleted, MessageID: m.ID, ThreadID: m.ThreadID,
	}
	return v.apply(ctx, c, consumers.HistoryStep{Changes: []consumers.Change{deleted}})
}

// apply stores a step that goes by what c fetched.
func (v *verifier) apply(ctx context.Context, c *comparison, s consumers.HistoryStep) error {
	s.Start = c.cursor
	return v.store.ApplyHistory(ctx, v.result.Account, s, time.Now())
}
