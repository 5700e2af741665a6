package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/gmailsync/gmailsync/consumers"
	"github.com/gmailsync/gmailsync/gmailquota"
)

// VerifyOptions says what Verify does beyond comparing the history ids of all threads, which costs 10 units a 500.
type VerifyOptions struct {
	Labels bool // list each label's messages too, 5 units a 500: wrong labels can hide behind a right history id
	Deep   int  // fetch and compare so many of the threads that look the same, chosen at random: 40 units each
	Repair bool // store what differs, and delete what a fetch says is gone
}

// lagWaits are the pauses before threads that may be ahead of the worker are compared again: it stores a change within a
// second, or some seconds where an import is in front of it.
var lagWaits = []time.Duration{time.Second, 3 * time.Second, 6 * time.Second}

// Verify compares an account's mirror with its mailbox as it was when Verify began, as class maintenance, waiting where
// the guard says so. Threads whose history ids differ are fetched and compared whole. What changed since it began, or
// since the worker last read the history, is compared again once a running worker has had time to store it; a change
// later than the beginning that is still not stored is in flight, and no difference.
//
// A repair goes by the store's guards: a row that is newer than what Gmail returned stays. It may run beside a worker.
func (m *Mirror) Verify(ctx context.Context, account string, opt VerifyOptions) (VerifyResult, error) {
	v := &verifier{Mirror: m, opt: opt, result: VerifyResult{Account: account, Differences: []Difference{}}}
	err := v.run(ctx)
	if err != nil && consumers.FaultOf(err) == consumers.AccountFault {
		err = fmt.Errorf("%w: connect the account again, with `gmailsync account add`", err)
	}
	v.result.count()
	return v.result, err
}

// verifier is one comparison under way.
type verifier struct {
	*Mirror
	opt     VerifyOptions
	mailbox consumers.Mailbox
	scope   consumers.Scope
	began   consumers.HistoryID // the mailbox's when it began: what is later is in flight
	listed  map[string]consumers.HistoryID
	result  VerifyResult
}

func (v *verifier) run(ctx context.Context) error {
	var err error
	if v.mailbox, err = v.gmail.Mailbox(ctx, v.result.Account, gmailquota.Maintenance); err != nil {
		return err
	}
	if v.scope, err = v.store.Scope(ctx, v.result.Account); err != nil {
		return err
	}
	profile, err := insist(ctx, func() (consumers.Profile, error) { return v.mailbox.Profile(ctx) })
	if err != nil {
		return err
	}
	v.began = profile.HistoryID
	if err := v.list(ctx); err != nil {
		return err
	}
	suspects, err := v.suspects(ctx)
	if err != nil {
		return err
	}
	waits := lagWaits
	if !v.WorkerRuns() {
		waits = nil
	}
	return v.compareAll(ctx, suspects, waits)
}

// list lists the mailbox's threads.
func (v *verifier) list(ctx context.Context) error {
	v.listed = map[string]consumers.HistoryID{}
	for token := ""; ; {
		page, err := insist(ctx, func() (consumers.ThreadPage, error) { return v.mailbox.ListThreads(ctx, token) })
		if err != nil {
			return fmt.Errorf("list threads: %w", err)
		}
		for _, t := range page.Threads {
			v.listed[t.ID] = max(v.listed[t.ID], t.HistoryID)
		}
		if token = page.Next; token == "" {
			return nil
		}
	}
}

// suspects returns the threads to be fetched, sorted: those whose history id is not the stored one, those that only one
// side has (of those outside the scope only what is listed can differ), those with other labels where that is asked for, and the sample.
func (v *verifier) suspects(ctx context.Context) ([]string, error) {
	stored, err := v.store.ThreadRefs(ctx, v.result.Account)
	if err != nil {
		return nil, err
	}
	outside, err := v.store.OutsideRefs(ctx, v.result.Account)
	if err != nil {
		return nil, err
	}
	differ := map[string]bool{}
	for id, h := range v.listed {
		if stored[id] != h && outside[id] != h {
			differ[id] = true
		}
	}
	v.result.Threads = len(v.listed)
	for id := range stored {
		if _, ok := v.listed[id]; !ok {
			v.result.Threads++
			differ[id] = true
		}
	}
	if v.opt.Labels {
		if err := v.compareLabels(ctx, differ); err != nil {
			return nil, fmt.Errorf("compare labels: %w", err)
		}
	}
	v.sample(differ)
	return slices.Sorted(maps.Keys(differ)), nil
}

// sample adds threads that look the same.
func (v *verifier) sample(differ map[string]bool) {
	if v.opt.Deep == 0 {
		return
	}
	same := make([]string, 0, len(v.listed))
	for id := range v.listed {
		if !differ[id] {
			same = append(same, id)
		}
	}
	rand.Shuffle(len(same), func(i, j int) { same[i], same[j] = same[j], same[i] })
	same = same[:min(v.opt.Deep, len(same))]
	v.result.Sampled = len(same)
	for _, id := range same {
		differ[id] = true
	}
}

// compareAll fetches and compares threads; those that may only be ahead of the worker again after each wait.
func (v *verifier) compareAll(ctx context.Context, threads []string, waits []time.Duration) error {
	for round := 0; len(threads) > 0; round++ {
		last := round == len(waits)
		var again []string
		for _, id := range threads {
			c, err := v.compare(ctx, id)
			if err != nil {
				return err
			}
			if c.lags && !last {
				again = append(again, id)
				continue
			}
			if err := v.settle(ctx, c); err != nil {
				return err
			}
		}
		if threads = again; len(threads) > 0 {
			if err := pause(ctx, waits[round]); err != nil {
				return err
			}
		}
	}
	return nil
}

// settle repairs a thread's differences if that is wanted, and adds them to the result.
func (v *verifier) settle(ctx context.Context, c *comparison) error {
	if v.opt.Repair && c.open() {
		if err := v.repair(ctx, c); errors.Is(err, consumers.ErrOvertaken) {
			c.overtaken()
		} else if err != nil {
			return fmt.Errorf("repair a thread: %w", err)
		}
	}
	v.result.Differences = append(v.result.Differences, c.differences...)
	return nil
}
