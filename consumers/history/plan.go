package history

import (
	"context"
	"slices"

	"github.com/gmailsync/gmailsync/consumers"
)

// need is a message that has to be fetched.
type need struct {
	messageID string
	threadID  string
	historyID consumers.HistoryID // of the record that named it
	attempts  int                 // failed ones so far
	added     bool                // the record added it: it is new in its thread
	index     int                 // of the change that asks for it
	held      bool                // no retry list keeps it, as the same page deletes the message: its page has to wait
	part      bool                // of a large thread whose other messages are stored or on the retry list
}

// item is one fetch: a message, or a whole thread where that is needed or costs no more.
type item struct {
	threadID string
	whole    bool
	lacks    bool // messages that nothing names may not be stored, and no run will fetch them
	needs    []need
	index    int // of the first change that asks for it
}

// plan tells what a page asks to be fetched, in the order of its changes.
func (p *pass) plan(ctx context.Context, changes []consumers.Change) ([]item, error) {
	needs, err := p.needs(ctx, changes)
	if err != nil {
		return nil, err
	}
	if p.acct.Scope.Query != "" {
		needs = keep(needs, func(n need) bool { return n.added })
	}
	passed := passedBy(changes, needs)
	if len(needs)+len(passed) == 0 {
		return nil, nil
	}
	threads, err := p.Store.Threads(ctx, p.acct.ID, threadIDs(append(passed, needs...)))
	if err != nil {
		return nil, err
	}
	passed = keep(passed, func(n need) bool { t := threads[n.threadID]; return !t.Complete && !t.Open })
	items := group(append(withoutRuns(needs, threads), passed...), threads)
	slices.SortFunc(items, func(x, y item) int { return x.index - y.index })
	return items, nil
}

// passedBy are the threads, each as the need for its first message, to which a message was added that is deleted again. It
// needs no fetch, but if that was while a run listed the mailbox, it had put its thread in front of what was still to be
// listed: a thread with older messages that the listing has missed, and that nothing else names. A thread that begins on
// this page has none.
func passedBy(changes []consumers.Change, needs []need) []need {
	gone, named := map[string]bool{}, map[string]bool{}
	for _, id := range deleted(changes) {
		gone[id] = true
	}
	for _, n := range needs {
		named[n.threadID] = true
	}
	var passed []need
	for i, c := range changes {
		if c.Kind != consumers.MessageAdded || named[c.ThreadID] {
			continue
		}
		if begins := c.MessageID == c.ThreadID; begins || gone[c.MessageID] {
			named[c.ThreadID] = true
			if !begins {
				passed = append(passed, need{
					messageID: c.ThreadID, threadID: c.ThreadID, historyID: c.HistoryID, index: i, held: gone[c.ThreadID],
				})
			}
		}
	}
	return passed
}

// needs are the messages that the changes name and that are neither stored nor deleted by a later change. Each is named
// once, by its first change.
func (p *pass) needs(ctx context.Context, changes []consumers.Change) ([]need, error) {
	skip := map[string]bool{}
	for _, id := range deleted(changes) {
		skip[id] = true
	}
	var needs []need
	var ids []string
	for i, c := range changes {
		if skip[c.MessageID] {
			continue
		}
		skip[c.MessageID] = true
		ids = append(ids, c.MessageID)
		needs = append(needs, need{messageID: c.MessageID, threadID: c.ThreadID, historyID: c.HistoryID, added: c.Kind == consumers.MessageAdded, index: i})
	}
	if len(needs) == 0 {
		return nil, nil
	}
	stored, err := p.Store.Messages(ctx, p.acct.ID, ids)
	if err != nil {
		return nil, err
	}
	return keep(needs, func(n need) bool { _, ok := stored[n.messageID]; return !ok }), nil
}

// withoutRuns leaves out label changes of threads that the active run has open and will fetch. The store marks the thread
// when it applies the change, so that an older snapshot does not count. A new message is fetched all the same: nobody wants
// to wait for an import to see it.
func withoutRuns(needs []need, threads map[string]consumers.ThreadState) []need {
	return keep(needs, func(n need) bool { return n.added || !threads[n.threadID].Open })
}

// group makes the cheapest fetches of the needs. messages.get costs half of threads.get in both price lists, so two
// messages of a thread are worth the whole. A thread that is not stored whole is fetched whole, except where its run will do
// that anyway and where the message is the thread's first.
func group(needs []need, threads map[string]consumers.ThreadState) []item {
	byThread := map[string]int{}
	var items []item
	for _, n := range needs {
		i, ok := byThread[n.threadID]
		if !ok {
			i = len(items)
			byThread[n.threadID] = i
			items = append(items, item{threadID: n.threadID, index: n.index})
		}
		items[i].needs = append(items[i].needs, n)
	}
	for i := range items {
		it := &items[i]
		first := it.needs[0]
		t, known := threads[it.threadID]
		opens := !known && first.added && first.messageID == it.threadID
		it.lacks = !(t.Complete || t.Open || opens)
		it.whole = len(it.needs) > 1 || it.lacks
	}
	return items
}

func threadIDs(needs []need) []string {
	seen := map[string]bool{}
	var ids []string
	for _, n := range needs {
		if !seen[n.threadID] {
			seen[n.threadID] = true
			ids = append(ids, n.threadID)
		}
	}
	return ids
}

func keep(needs []need, want func(need) bool) []need {
	var out []need
	for _, n := range needs {
		if want(n) {
			out = append(out, n)
		}
	}
	return out
}
