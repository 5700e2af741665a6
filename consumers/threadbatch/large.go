package threadbatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gmailsync/gmailsync/consumers"
)

// errSlice ends a handling in the middle of a large thread.
var errSlice = errors.New("the slice of time is over, in a large thread")

// maxLarge bounds how many outlines are kept.
const maxLarge = 100

// thread fetches a thread. One that is too large for that comes as its outline, once each of its messages is stored on
// its own: 40 units for the try, 40 for the outline, 20 for each message. A handling that has to stop in the middle goes
// on where it was; after a restart, at the cost of another try and outline, since what is stored is not fetched again.
func (h *Handler) thread(ctx context.Context, mailbox consumers.Mailbox, b consumers.Batch, id string) (consumers.Thread, error) {
	outline, known := h.large.get(b.ID, id)
	if !known {
		t, err := mailbox.GetThread(ctx, id)
		if !errors.Is(err, consumers.ErrLargeThread) {
			return t, err
		}
		consumers.LetGo(ctx) // nothing of the try is kept
		if outline, err = mailbox.ThreadOutline(ctx, id); err != nil {
			return outline, err
		}
		h.large.keep(b.ID, id, outline)
	}
	return h.messages(ctx, mailbox, b, outline)
}

// errUnreadable is for a thread with a message whose id the answer does not tell.
var errUnreadable = errors.New("a message of the thread cannot be read")

// messages stores those of an outline that are not stored, one by one: the thread becomes complete with the outline
// only. A message that is gone meanwhile is left out of it. One that fails, though Gmail is there, keeps none of the others
// from being stored; the thread fails with it.
func (h *Handler) messages(ctx context.Context, mailbox consumers.Mailbox, b consumers.Batch, t consumers.Thread) (consumers.Thread, error) {
	ids := make([]string, len(t.Messages))
	for i, m := range t.Messages {
		ids[i] = m.ID
	}
	have, err := h.Store.Messages(ctx, b.Account, ids)
	if err != nil {
		return t, err
	}
	whole := t
	whole.Messages = nil
	var failed error
	if t.Unreadable > 0 {
		failed = errUnreadable
	}
	var bad []consumers.Message
	start, progress := time.Now(), false
	for _, m := range t.Messages {
		if at, stored := have[m.ID]; !stored || at < m.HistoryID {
			if time.Since(start) >= consumers.Slice {
				h.large.keep(b.ID, t.ID, last(t, bad))
				if len(bad) > 0 && !progress {
					return t, failed
				}
				return t, errSlice
			}
			err := h.message(ctx, mailbox, b, t.ID, m.ID)
			if consumers.FaultOf(err) == consumers.Gone && err != nil {
				if h.aside.notFound(b.ID, t.ID, time.Now()) < maxGone {
					return t, errNotFound
				}
				continue
			}
			if err != nil {
				if ctx.Err() != nil || !countable(err) || len(bad) == 0 && consumers.Reachable(ctx, mailbox) != nil {
					return t, err
				}
				failed, bad = err, append(bad, m)
				continue
			}
			progress = true
		}
		whole.Messages = append(whole.Messages, m)
	}
	return whole, failed
}

// last is the outline with the messages that failed at its end: they do not use up the next slice before the others' turn.
func last(t consumers.Thread, bad []consumers.Message) consumers.Thread {
	failed := map[string]bool{}
	for _, m := range bad {
		failed[m.ID] = true
	}
	t.Messages = slices.DeleteFunc(slices.Clone(t.Messages), func(m consumers.Message) bool { return failed[m.ID] })
	t.Messages = append(t.Messages, bad...)
	return t
}

// message fetches and stores one message of a large thread. A panic is this message's failure.
func (h *Handler) message(ctx context.Context, mailbox consumers.Mailbox, b consumers.Batch, thread, id string) (err error) {
	defer consumers.LetGo(ctx)
	defer func() {
		if p := recover(); p != nil {
			err = consumers.Caught(h.Log, b.Account, p)
		}
	}()
	m, err := mailbox.GetMessage(ctx, id)
	if err != nil {
		return err
	}
	m.ThreadID = thread
	step := consumers.HistoryStep{Messages: []consumers.Message{m}}
	if err := h.Store.ApplyHistory(ctx, b.Account, step, time.Now()); err != nil {
		return fmt.Errorf("store a message of a large thread: %w", err)
	}
	return nil
}

// largeThreads keeps the outlines of the large threads under way, so that a denial in the middle costs no second one. It
// is in memory only. The zero value is empty; safe for concurrent use.
type largeThreads struct {
	mu       sync.Mutex
	outlines map[largeKey]consumers.Thread
}

type largeKey struct {
	batch  int64
	thread string
}

func (l *largeThreads) get(batch int64, thread string) (consumers.Thread, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t, ok := l.outlines[largeKey{batch, thread}]
	return t, ok
}

func (l *largeThreads) keep(batch int64, thread string, outline consumers.Thread) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.outlines == nil || len(l.outlines) >= maxLarge {
		l.outlines = map[largeKey]consumers.Thread{}
	}
	l.outlines[largeKey{batch, thread}] = outline
}

// forget ends the memory of a thread whose outline was stored, or turned out to be too old.
func (l *largeThreads) forget(batch int64, thread string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.outlines, largeKey{batch, thread})
}

// forgetBatch ends the memory of a batch's threads, also of those that were given up.
func (l *largeThreads) forgetBatch(batch int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k := range l.outlines {
		if k.batch == batch {
			delete(l.outlines, k)
		}
	}
}
