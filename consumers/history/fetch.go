package history

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/gmailsync/gmailsync/consumers"
)

const (
	// A message that history names may not be readable for some seconds, or may be deleted since: three tries, two
	// seconds apart, tell.
	goneAttempts = 3
	goneWait     = 2 * time.Second

	// maxInARow is how many fetches in a row may fail before the rest of a page is left for later: it is hardly these messages'
	// fault, and each try costs units.
	maxInARow = 3

	// retryLimit is how much of the retry list one pass takes on before it looks for new changes.
	retryLimit = 25

	// heldLimit is how much fetched mail a pass holds before it stores it and gives up its slot, bytes.
	heldLimit = 4 << 20
)

// errSlice ends a pass whose slice of time is over.
var errSlice = errors.New("the slice of time is over")

// fetcher fetches items and gathers what is to be stored of them.
type fetcher struct {
	*pass
	step consumers.HistoryStep
	// outlines of large threads: they are stored after the step, as they say what is stored.
	outlines []consumers.Thread
	held     int // bytes fetched and not stored yet
	dead     []consumers.DeadLetter
	got      []item // what was asked for: what came of it is in step
}

// all works through the items. It returns how many are accounted for (fetched, or on the retry list) and why it stopped
// before the end: a throttle, an account's fault, the end of ctx or of the slice, or a Gmail that is away.
func (f *fetcher) all(ctx context.Context, items []item) (done int, stopped error) {
	failures := 0
	for i, it := range items {
		if f.sliceOver() || f.held > heldLimit {
			return i, errSlice
		}
		f.got = append(f.got, it)
		err := f.one(ctx, it)
		switch fault := consumers.FaultOf(err); {
		case err == nil:
			f.worked = true
			failures = 0
		case ctx.Err() != nil:
			return i, ctx.Err()
		case errors.Is(err, errSlice):
			return i, err
		case fault == consumers.Throttled || fault == consumers.AccountFault:
			return i, err
		case fault == consumers.Gone:
			for _, n := range it.needs {
				f.missing(n)
			}
		default:
			if failures == 0 {
				if away := consumers.Reachable(ctx, f.mailbox); away != nil {
					return i, away
				}
			}
			if it.needs[0].held {
				return i, err
			}
			for _, n := range it.needs {
				f.failed(n, err)
			}
			if failures++; failures == maxInARow {
				return i + 1, err
			}
		}
	}
	return len(items), nil
}

// one fetches an item. A thread that lacks a message that history named is as good as a 404 for that message. A panic is
// this item's failure.
func (f *fetcher) one(ctx context.Context, it item) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = consumers.Caught(f.Log, f.acct.ID, p)
		}
	}()
	if !it.whole {
		m, err := f.mailbox.GetMessage(ctx, it.needs[0].messageID)
		if err == nil {
			f.keep(m)
		}
		return err
	}
	if parts(it.needs) {
		return f.large(ctx, it)
	}
	t, err := f.mailbox.GetThread(ctx, it.threadID)
	if errors.Is(err, consumers.ErrLargeThread) {
		return f.large(ctx, it)
	}
	if err != nil {
		return err
	}
	for _, m := range t.Messages {
		f.held += size(m)
	}
	f.step.Threads = append(f.step.Threads, t)
	has := map[string]bool{}
	for _, m := range t.Messages {
		has[m.ID] = true
	}
	for _, n := range it.needs {
		if has[n.messageID] {
			f.step.Fetched = append(f.step.Fetched, n.messageID)
		} else {
			f.missing(n)
		}
	}
	return nil
}

func (f *fetcher) keep(m consumers.Message) {
	f.step.Messages = append(f.step.Messages, m)
	f.step.Fetched = append(f.step.Fetched, m.ID)
	f.held += size(m)
}

// size is about what a message holds, bytes.
func size(m consumers.Message) int { return len(m.Raw) + len(m.Text) + len(m.HTML) }

// missing is for a message that answered 404.
func (f *fetcher) missing(n need) {
	if n.attempts+1 >= goneAttempts {
		f.step.Gone = append(f.step.Gone, n.messageID)
		f.step.Fetched = append(f.step.Fetched, n.messageID)
		return
	}
	f.again(n, goneWait, "not found")
}

// failed is for a message whose fetch failed for a reason of its own.
func (f *fetcher) failed(n need, cause error) {
	if n.attempts+1 < f.cfg.MaxAttempts {
		f.again(n, consumers.Backoff(n.attempts+1), cause.Error())
		return
	}
	f.step.Fetched = append(f.step.Fetched, n.messageID)
	f.dead = append(f.dead, consumers.DeadLetter{
		Account: f.acct.ID, Kind: consumers.History, ThreadID: n.threadID, MessageID: n.messageID,
		Cause: cause.Error(), Attempts: n.attempts + 1, At: time.Now(),
	})
	f.Log.Error("message given up, see the dead letters", zap.String("account", consumers.ShortID(f.acct.ID)), zap.Error(cause))
}

func (f *fetcher) again(n need, wait time.Duration, cause string) {
	if n.part {
		cause = partCause + cause
	}
	f.step.Retry = append(f.step.Retry, consumers.Fetch{
		MessageID: n.messageID, ThreadID: n.threadID, HistoryID: n.historyID,
		Attempts: n.attempts + 1, Due: time.Now().Add(wait), Cause: cause,
	})
}

// store writes the step, also while the process stops: what was fetched is paid for. A dead letter is written first: a crash
// in between leaves it twice rather than not at all.
func (f *fetcher) store(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), applyTimeout)
	defer cancel()
	defer consumers.LetGo(ctx)
	if err := f.bury(ctx); err != nil {
		return err
	}
	f.step.Start = f.cursor
	s := f.step
	if len(s.Changes)+len(s.Messages)+len(s.Threads)+len(s.Gone)+len(s.Retry)+len(s.Fetched) == 0 && s.Cursor <= f.cursor {
		return nil
	}
	if err := f.applyStep(ctx, s); errors.Is(err, consumers.ErrOvertaken) {
		return err
	} else if err != nil {
		return f.storeApart(ctx, err)
	}
	f.worked = true
	f.moved(s.Cursor)
	return f.storeOutlines(ctx)
}

// retries works on the retry list, in a slice of time of its own. Only a throttle, an account's fault and the end of ctx
// keep new changes from being read afterwards.
func (p *pass) retries(ctx context.Context) error {
	due, err := p.Store.DueFetches(ctx, p.acct.ID, time.Now(), retryLimit)
	if err != nil || len(due) == 0 {
		return err
	}
	ids := make([]string, len(due))
	needs := make([]need, len(due))
	for i, d := range due {
		ids[i] = d.MessageID
		needs[i] = need{messageID: d.MessageID, threadID: d.ThreadID, historyID: d.HistoryID, attempts: d.Attempts, part: isPart(d)}
	}
	stored, err := p.Store.Messages(ctx, p.acct.ID, ids)
	if err != nil {
		return err
	}
	threads, err := p.Store.Threads(ctx, p.acct.ID, threadIDs(needs))
	if err != nil {
		return err
	}
	f := fetcher{pass: p}
	missing := keep(needs, func(n need) bool {
		_, have := stored[n.messageID]
		if have {
			f.step.Fetched = append(f.step.Fetched, n.messageID)
		}
		return !have
	})
	_, stopped := f.all(ctx, group(missing, threads))
	if err := f.store(ctx); err != nil {
		return err
	}
	if fault := consumers.FaultOf(stopped); ctx.Err() != nil || fault == consumers.Throttled || fault == consumers.AccountFault {
		return stopped
	}
	return nil
}
