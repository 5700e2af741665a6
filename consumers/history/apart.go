package history

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gmailsync/gmailsync/consumers"
)

// applyStep stores a step. A panic is the step's failure.
func (f *fetcher) applyStep(ctx context.Context, s consumers.HistoryStep) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = consumers.Caught(f.Log, f.acct.ID, p)
		}
	}()
	if err := f.Store.ApplyHistory(ctx, f.acct.ID, s, time.Now()); err != nil {
		return fmt.Errorf("store the changes: %w", err)
	}
	return nil
}

// bury stores the dead letters.
func (f *fetcher) bury(ctx context.Context) error {
	for _, d := range f.dead {
		if err := f.Store.AddDeadLetter(ctx, d); err != nil {
			return fmt.Errorf("store a dead letter: %w", err)
		}
	}
	f.dead = nil
	return nil
}

// storeApart stores each message and thread of a step that failed for itself, so that what cannot be stored fails alone, and
// then the changes. A store that is away takes the changes neither: then nothing has happened, and cause stands.
func (f *fetcher) storeApart(ctx context.Context, cause error) error {
	s := f.step
	if consumers.Removed(cause) || len(s.Messages)+len(s.Threads) == 0 {
		return cause
	}
	f.step.Messages, f.step.Threads = nil, nil
	stored := 0
	for _, m := range s.Messages {
		err := f.applyStep(ctx, consumers.HistoryStep{Start: s.Start, Messages: []consumers.Message{m}})
		f.settleApart(err, &stored, func(_ item, n need) bool { return n.messageID == m.ID })
	}
	for _, t := range s.Threads {
		err := f.applyStep(ctx, consumers.HistoryStep{Start: s.Start, Threads: []consumers.Thread{t}})
		f.settleApart(err, &stored, func(it item, _ need) bool { return it.whole && it.threadID == t.ID })
	}
	if err := f.bury(ctx); err != nil {
		return err
	}
	if err := f.applyStep(ctx, f.step); err != nil {
		return cause
	}
	f.worked = f.worked || stored > 0
	f.moved(f.step.Cursor)
	return f.storeOutlines(ctx)
}

// settleApart counts what was stored; what was not is a failure of its messages, which are no longer fetched.
func (f *fetcher) settleApart(err error, stored *int, of func(item, need) bool) {
	if err == nil {
		*stored++
		return
	}
	for _, it := range f.got {
		for _, n := range it.needs {
			if !of(it, n) {
				continue
			}
			if at := slices.Index(f.step.Fetched, n.messageID); at >= 0 {
				f.step.Fetched = slices.Delete(f.step.Fetched, at, at+1)
				f.failed(n, err)
			}
		}
	}
}
