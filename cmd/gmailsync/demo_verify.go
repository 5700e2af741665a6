package main

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gmailsync/gmailsync/gmailquota/gmailsim"
	"github.com/gmailsync/gmailsync/worker"
)

// verify compares every mirror with its simulated mailbox, message by message: ids, thread, labels, headers and the
// decoded bytes of every part. Attachments are fetched on demand, through the guard.
func (d *demo) verify(ctx context.Context) (reportVerify, error) {
	d.screen.line("The mirror is complete; comparing it with the mailboxes, attachments are fetched for it.")
	var sum reportVerify
	for _, acc := range d.accounts {
		r, err := d.verifyAccount(ctx, acc)
		if err != nil {
			return sum, fmt.Errorf("verify %s: %w", acc.name, err)
		}
		sum.Missing += r.Missing
		sum.Extra += r.Extra
		sum.Different += r.Different
	}
	return sum, nil
}

func (d *demo) verifyAccount(ctx context.Context, acc *demoAccount) (reportVerify, error) {
	var r reportVerify
	want := map[string]gmailsim.Snapshot{}
	for _, s := range d.sim.Mailbox(acc.account.Address) {
		want[s.ID] = s
	}
	compared, total := 0, len(want)
	next := time.Now().Add(plainEvery)
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
		compared++
		if now := time.Now(); now.After(next) {
			next = now.Add(plainEvery)
			d.screen.line("%s  compared %d of %d messages", acc.name, compared, total)
			return d.refresh(ctx)
		}
		return nil
	})
	r.Missing = len(want)
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
