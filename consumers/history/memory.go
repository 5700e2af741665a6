package history

import (
	"context"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/gmailsync/gmailsync/consumers"
)

// resyncMemory knows when this process started an account's last resync, until history has been read again. It is in
// memory only: after a restart one more resync may run before the alarm.
type resyncMemory struct {
	mu sync.Mutex
	at map[string]time.Time
}

// resyncMemorySpan: a history id lasts a week or more, rarely only hours. An older resync says nothing about the cursor.
const resyncMemorySpan = 24 * time.Hour

func (m *resyncMemory) note(account string, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.at == nil {
		m.at = map[string]time.Time{}
	}
	m.at[account] = now
}

func (m *resyncMemory) clear(account string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.at, account)
}

func (m *resyncMemory) recent(account string, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	at, ok := m.at[account]
	return ok && now.Sub(at) < resyncMemorySpan
}

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
		err = p.Store.SaveLabels(ctx, p.acct.ID, labels)
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
