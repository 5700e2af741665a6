package gmailsim

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"
)

// mailbox is one account's mail. Its fields are guarded by mu.
type mailbox struct {
	address string // lower case
	sub     string
	now     func() time.Time
	changed func(*mailbox) // called, with mu held, after each change that a watch is to be told of

	mu        sync.Mutex
	messages  map[string]*message
	order     []*message // by date and id, oldest first
	threads   map[string]*thread
	byRef     map[string][]*thread // Message-IDs that a thread holds or refers to
	labels    map[string]*label
	nextLabel int
	drafts    map[string]*message
	nextDraft int64
	sequence  int64 // for message ids

	historyID uint64
	floor     uint64 // history before this id is forgotten
	history   []record
	retention time.Duration // 0: for ever

	refreshToken string
	grants       int  // how often access was given
	revoked      bool // until the next grant
	gets         map[string]int
	watch        watch
}

// message is a message in one mailbox.
type message struct {
	*content
	id        string
	number    uint64 // the id as a number
	thread    *thread
	labels    []string // sorted
	date      int64    // internalDate, milliseconds since the epoch
	historyID uint64   // of the last record that changed it
	added     uint64   // history id at which it came
}

// thread is a conversation; it exists as long as it has messages.
type thread struct {
	id        string
	subject   string
	refs      []string   // keys in byRef
	messages  []*message // by date and id, oldest first
	historyID uint64     // of the last record that changed it, deletions included
}

// firstHistoryID lies so that an account passes from 999 to 1000 soon: comparing ids as text then goes wrong.
const firstHistoryID = 900

func newMailbox(address string, now func() time.Time, retention time.Duration, changed func(*mailbox)) *mailbox {
	box := &mailbox{
		address: address, sub: subject(address), now: now, changed: changed, retention: retention,
		messages: map[string]*message{}, threads: map[string]*thread{}, byRef: map[string][]*thread{},
		labels: map[string]*label{}, drafts: map[string]*message{}, gets: map[string]int{},
		historyID: firstHistoryID, floor: firstHistoryID,
	}
	for _, id := range systemLabels {
		box.labels[id] = &label{ID: id, Name: id, Type: "system"}
	}
	return box
}

// nextHistoryID moves the mailbox's history id on, by steps that differ, as Gmail's do.
func (b *mailbox) nextHistoryID() uint64 {
	b.historyID += 1 + b.historyID%7
	return b.historyID
}

// addition says how a message comes into a mailbox.
type addition struct {
	content *content
	labels  []string
	date    time.Time
	thread  *thread // nil: found by references and subject
	silent  bool    // no history: it was always there
}

func (b *mailbox) add(a addition) *message {
	m := &message{content: a.content, labels: slices.Clone(a.labels), date: a.date.UnixMilli()}
	slices.Sort(m.labels)
	m.labels = slices.Compact(m.labels)
	m.number = b.newNumber(m.date)
	m.id = fmt.Sprintf("%016x", m.number)
	m.added = b.nextHistoryID()
	m.historyID = m.added

	t := a.thread
	if t == nil {
		t = b.findThread(a.content)
	}
	if t == nil {
		t = &thread{id: m.id, subject: a.content.subject}
		b.threads[t.id] = t
	}
	m.thread = t
	t.historyID = m.added
	t.messages = insertOrdered(t.messages, m)
	b.order = insertOrdered(b.order, m)
	b.messages[m.id] = m
	for _, ref := range append([]string{a.content.messageID}, a.content.refs...) {
		if ref != "" && !slices.Contains(b.byRef[ref], t) {
			b.byRef[ref] = append(b.byRef[ref], t)
			t.refs = append(t.refs, ref)
		}
	}
	if a.silent {
		b.floor = m.added
		b.history = nil
	} else {
		b.record(record{id: m.added, kind: messageAdded, message: m.id, thread: t.id, labels: m.labels})
	}
	return m
}

// newNumber makes an id of Gmail's form: the date in milliseconds and 20 bits to tell messages apart. Ids are unique in
// a mailbox only; mailboxes that are loaded alike get the same ones.
func (b *mailbox) newNumber(date int64) uint64 {
	const first, last = int64(1) << 36, int64(1)<<43 - 1 // keeps ids below 2^63 and as long as Gmail's
	for {
		b.sequence++
		n := uint64(min(max(date, first), last))<<20 | uint64(b.sequence*7919)&(1<<20-1)
		if b.messages[fmt.Sprintf("%016x", n)] == nil {
			return n
		}
	}
}

// findThread returns the thread that holds or names one of the message's references and has its subject.
func (b *mailbox) findThread(c *content) *thread {
	for _, ref := range append([]string{c.messageID}, c.refs...) {
		for _, t := range b.byRef[ref] {
			if t.subject == c.subject && b.threads[t.id] == t {
				return t
			}
		}
	}
	return nil
}

func compareMessages(a, b *message) int {
	return cmp.Or(cmp.Compare(a.date, b.date), cmp.Compare(a.number, b.number))
}

func insertOrdered(list []*message, m *message) []*message {
	i, _ := slices.BinarySearchFunc(list, m, compareMessages)
	return slices.Insert(list, i, m)
}

func removeOrdered(list []*message, m *message) []*message {
	if i, ok := slices.BinarySearchFunc(list, m, compareMessages); ok {
		return slices.Delete(list, i, i+1)
	}
	return list
}

// relabel adds and removes labels; what changes nothing leaves no record.
func (b *mailbox) relabel(m *message, add, remove []string) {
	var added, removed []string
	labels := slices.Clone(m.labels)
	for _, l := range add {
		if i, has := slices.BinarySearch(labels, l); !has && !slices.Contains(remove, l) {
			labels = slices.Insert(labels, i, l)
			added = append(added, l)
		}
	}
	if len(added) > 0 {
		m.labels = slices.Clone(labels)
		b.touch(m, labelAdded, added)
	}
	for _, l := range remove {
		if i, has := slices.BinarySearch(labels, l); has {
			labels = slices.Delete(labels, i, i+1)
			removed = append(removed, l)
		}
	}
	if len(removed) > 0 {
		m.labels = labels
		b.touch(m, labelRemoved, removed)
	}
}

func (b *mailbox) touch(m *message, kind historyKind, changed []string) {
	id := b.nextHistoryID()
	m.historyID, m.thread.historyID = id, id
	b.record(record{id: id, kind: kind, message: m.id, thread: m.thread.id, labels: m.labels, changed: changed})
}

func (b *mailbox) trash(m *message)   { b.relabel(m, []string{"TRASH"}, []string{"INBOX"}) }
func (b *mailbox) untrash(m *message) { b.relabel(m, nil, []string{"TRASH"}) }

// remove deletes a message for good. Its thread goes with the last one.
func (b *mailbox) remove(m *message) {
	delete(b.messages, m.id)
	for id, draft := range b.drafts {
		if draft == m {
			delete(b.drafts, id)
		}
	}
	b.order = removeOrdered(b.order, m)
	t := m.thread
	t.messages = removeOrdered(t.messages, m)
	t.historyID = b.nextHistoryID()
	if len(t.messages) == 0 {
		b.forget(t)
	}
	b.record(record{id: t.historyID, kind: messageDeleted, message: m.id, thread: t.id, labels: m.labels})
}

func (b *mailbox) forget(t *thread) {
	delete(b.threads, t.id)
	for _, ref := range t.refs {
		left := slices.DeleteFunc(b.byRef[ref], func(other *thread) bool { return other == t })
		if b.byRef[ref] = left; len(left) == 0 {
			delete(b.byRef, ref)
		}
	}
}

func (m *message) has(label string) bool {
	_, ok := slices.BinarySearch(m.labels, label)
	return ok
}

// hidden tells what lists leave out unless they are asked for it.
func (m *message) hidden() bool { return m.has("TRASH") || m.has("SPAM") }

func formatID(n uint64) string { return strconv.FormatUint(n, 10) }
