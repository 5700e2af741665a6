package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gmailsync/gmailsync/gmailquota/gmailsim"
	"github.com/gmailsync/gmailsync/worker"
)

// verify compares every mirror with its simulated mailbox, message by message: ids, thread, labels, headers and the
// decoded bytes of every part. Attachments are fetched on demand, through the guard.
func (d *demo) verify(ctx context.Context) (reportVerify, error) {
	d.screen.line("The mirror is complete; comparing it with the mailboxes, attachments are fetched for it.")
	results := make([]reportVerify, len(d.accounts))
	compare, comparing := errgroup.WithContext(ctx)
	for i, acc := range d.accounts {
		compare.Go(func() (err error) {
			if results[i], err = d.verifyAccount(comparing, acc); err != nil {
				return fmt.Errorf("verify %s: %w", acc.name, err)
			}
			return nil
		})
	}
	done := make(chan error, 1)
	go func() { done <- compare.Wait() }()
	if err := d.showUntil(ctx, done); err != nil {
		return reportVerify{}, err
	}
	var sum reportVerify
	for _, r := range results {
		sum.Missing += r.Missing
		sum.Extra += r.Extra
		sum.Different += r.Different
	}
	return sum, nil
}

// showUntil keeps the screen fresh until done tells how it ended.
func (d *demo) showUntil(ctx context.Context, done <-chan error) error {
	tick := time.NewTicker(demoRefresh)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			return errors.Join(err, d.refresh(ctx))
		case <-tick.C:
			if err := d.refresh(ctx); err != nil {
				return errors.Join(err, <-done)
			}
		}
	}
}

func (d *demo) verifyAccount(ctx context.Context, acc *demoAccount) (reportVerify, error) {
	var r reportVerify
	want := map[string]gmailsim.Snapshot{}
	for _, s := range d.sim.Mailbox(acc.account.Address) {
		want[s.ID] = s
	}
	acc.toCompare.Store(int64(len(want)))
	err := d.worker.Mirror().EachMessage(ctx, acc.id, func(m worker.Message) error {
		s, ok := want[m.ID]
		if !ok {
			r.Extra++
			return nil
		}
		delete(want, m.ID)
		equal, err := d.equalMessage(ctx, acc, m, s)
		if err != nil {
			return err
		}
		if !equal {
			r.Different++
		}
		acc.compared.Add(1)
		return nil
	})
	r.Missing = len(want)
	acc.toCompare.Store(0)
	return r, err
}

func (d *demo) equalMessage(ctx context.Context, acc *demoAccount, m worker.Message, s gmailsim.Snapshot) (bool, error) {
	labels := slices.Sorted(slices.Values(s.Labels))
	if m.ThreadID != s.ThreadID || !slices.Equal(slices.Sorted(slices.Values(m.LabelIDs)), labels) ||
		!slices.EqualFunc(m.Headers, s.Headers, equalHeader) || len(m.Parts) != len(s.Parts) {
		return false, nil
	}
	for i, p := range m.Parts {
		q := s.Parts[i]
		if p.PartID != q.PartID || p.MIMEType != q.MIMEType || p.Filename != q.Filename ||
			!slices.EqualFunc(p.Headers, q.Headers, equalHeader) {
			return false, nil
		}
		data := p.Data
		if p.OnDemand {
			var err error
			if data, err = d.worker.Mirror().Attachment(ctx, acc.id, m.ID, p.PartID); err != nil {
				return false, err
			}
		}
		if !bytes.Equal(data, q.Data) {
			return false, nil
		}
	}
	return true, nil
}

func equalHeader(a worker.Header, b gmailsim.Header) bool {
	return a.Name == b.Name && a.Value == b.Value
}
