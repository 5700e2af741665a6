package history

import (
	"context"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/gmailsync/gmailsync/consumers"
)

// resyncSpan: a history id lasts a week or more, rarely only hours. An older resync says nothing about the cursor.
const resyncSpan = 24 * time.Hour

// labelMemory knows the label ids that the store has heard of, so that an unknown one is noticed. Forgetting costs one
// unit for each account.
type labelMemory struct {
	mu    sync.Mutex
	known map[string]map[string]bool // by account
}

// labelAccounts bounds the memory: some kilobytes for an account.
const labelAccounts = 1000

func (m *labelMemory) unknown(account string, ids map[string]bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id := range ids {
		if !m.known[account][id] {
			return true
		}
	}
	return false
}

func (m *labelMemory) learn(account string, ids map[string]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known == nil || len(m.known) >= labelAccounts {
		m.known = map[string]map[string]bool{}
	}
	m.known[account] = ids
}

// learnLabels reads the account's labels again when a step names one that is not known. It is no part of the step: if it
// fails, the next unknown label tries again.
func (p *pass) learnLabels(ctx context.Context, s consumers.HistoryStep) {
	ids := userLabels(s)
	if !p.labels.unknown(p.acct.ID, ids) {
		return
	}
	labels, err := p.mailbox.Labels(ctx)
	if err == nil {
		err = p.Store.SaveLabels(ctx, p.acct.ID, labels, time.Now())
	}
	if err != nil {
		p.Log.Debug("labels not read", zap.String("account", consumers.ShortID(p.acct.ID)), zap.Error(err))
		return
	}
	// A label that was deleted since stays in ids, so that it is asked for once.
	for _, l := range labels {
		ids[l.ID] = true
	}
	p.labels.learn(p.acct.ID, ids)
}

// userLabels are the labels that a step names, but for the system's own (INBOX, CATEGORY_SOCIAL), which are always there.
func userLabels(s consumers.HistoryStep) map[string]bool {
	ids := map[string]bool{}
	add := func(labels []string) {
		for _, id := range labels {
			if id != strings.ToUpper(id) {
				ids[id] = true
			}
		}
	}
	for _, c := range s.Changes {
		add(c.Labels)
	}
	for _, m := range s.Messages {
		add(m.Labels)
	}
	for _, t := range s.Threads {
		for _, m := range t.Messages {
			add(m.Labels)
		}
	}
	return ids
}
