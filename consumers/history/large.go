package history

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/gmailsync/gmailsync/consumers"
)

// partCause begins the cause of a retry list entry for a message of a large thread that was listed with all of its
// messages. Such an entry does not list them again: each failure of one would begin the others' tries anew.
const partCause = "of a large thread: "

func isPart(f consumers.Fetch) bool { return strings.HasPrefix(f.Cause, partCause) }

// parts tells whether the needs are all of a thread that is known to be large.
func parts(needs []need) bool {
	return !slices.ContainsFunc(needs, func(n need) bool { return !n.part })
}

// large fetches the named messages of a thread that is too large to be had whole. If nothing names the others, they go on
// the retry list, which takes them in slices; the thread is complete once an outline finds all of them stored.
func (f *fetcher) large(ctx context.Context, it item) error {
	if !it.lacks {
		return f.singly(ctx, it.needs)
	}
	outline, err := f.mailbox.ThreadOutline(ctx, it.threadID)
	if err != nil {
		return err
	}
	if !parts(it.needs) {
		if err := f.listRest(ctx, it, outline); err != nil {
			return err
		}
	}
	for i := range it.needs {
		it.needs[i].part = true
	}
	if err := f.singly(ctx, it.needs); err != nil {
		return err
	}
	if outline.Unreadable == 0 {
		f.outlines = append(f.outlines, outline)
	}
	return nil
}

// listRest puts the messages of an outline on the retry list that are neither stored nor needed anyway.
func (f *fetcher) listRest(ctx context.Context, it item, outline consumers.Thread) error {
	ids := make([]string, len(outline.Messages))
	for i, m := range outline.Messages {
		ids[i] = m.ID
	}
	stored, err := f.Store.Messages(ctx, f.acct.ID, ids)
	if err != nil {
		return err
	}
	for _, m := range outline.Messages {
		at, have := stored[m.ID]
		needed := slices.ContainsFunc(it.needs, func(n need) bool { return n.messageID == m.ID })
		if needed || have && at >= m.HistoryID {
			continue
		}
		f.step.Retry = append(f.step.Retry, consumers.Fetch{
			MessageID: m.ID, ThreadID: it.threadID, HistoryID: m.HistoryID, Due: time.Now(), Cause: partCause + "not fetched yet",
		})
	}
	return nil
}

// storeOutlines ends large threads. One that lacks a message is left as it is: the message is on the retry list, or given
// up.
func (f *fetcher) storeOutlines(ctx context.Context) error {
	for _, t := range f.outlines {
		err := f.applyStep(ctx, consumers.HistoryStep{Start: f.step.Start, Threads: []consumers.Thread{t}})
		if err != nil {
			return err
		}
	}
	return nil
}

// singly fetches the named messages of a thread that is too large to be had whole. When it stops before the end, what it
// has is stored and not fetched again.
func (f *fetcher) singly(ctx context.Context, needs []need) error {
	for _, n := range needs {
		if f.held > heldLimit {
			return errSlice
		}
		m, err := f.mailbox.GetMessage(ctx, n.messageID)
		switch fault := consumers.FaultOf(err); {
		case err == nil:
			f.worked = true
			f.keep(m)
		case ctx.Err() != nil || fault == consumers.Throttled || fault == consumers.AccountFault:
			return err
		case fault == consumers.Gone:
			f.missing(n)
		default:
			f.failed(n, err)
		}
	}
	return nil
}
