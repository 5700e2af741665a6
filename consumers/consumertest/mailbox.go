package consumertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/gmailsync/gmailsync/consumers"
	"github.com/gmailsync/gmailsync/gmailquota"
)

// The names of the calls, as Fault.Op and Calls know them: Gmail's own.
const (
	OpProfile     = "users.getProfile"
	OpWatch       = "users.watch"
	OpLabels      = "labels.list"
	OpListThreads = "threads.list"
	OpGetThread   = "threads.get"
	OpGetMessage  = "messages.get"
	// OpThreadOutline is a threads.get as well.
	OpThreadOutline = "threads.get minimal"
	OpHistory       = "history.list"
)

// Fault makes calls fail. Faults are tried in the order in which they were injected.
type Fault struct {
	Op    string // one of the Op names; empty: every call
	ID    string // the thread or message asked for, the page token, or history's start id; empty: every one
	Skip  int    // let that many matching calls pass first
	Times int    // fail that many calls; 0: all that follow
	Err   error  // *consumers.MailboxError with an empty Op gets the call's
}

// Mailbox is a mailbox in memory with threads, labels and history, and a consumers.Mailbox of it. What happens in it is
// said by Add, Relabel and Delete. Safe for concurrent use; the exported fields are set before it is used.
type Mailbox struct {
	Address      string
	PageSize     int       // threads, and history records, a page; default 100
	LargeThread  int       // threads of so many messages are too large for GetThread; 0: none is
	WatchExpires time.Time // zero: there is no topic, so no watch
	LabelList    []consumers.Label
	// OldThreadIDs: a thread's history id is that of its newest message, so that it falls behind the records of what was
	// deleted. Gmail does not say which it is.
	OldThreadIDs bool
	// Found, if set, is the query: a thread is listed if one of its messages is found.
	Found func(consumers.Message) bool
	// OnCall, if set, runs before each call is answered, so that a test can change the mailbox in mid-course.
	OnCall func(op, id string)

	mu       sync.Mutex
	history  consumers.HistoryID
	floor    consumers.HistoryID // oldest start that history.list still answers
	nextID   uint64
	imported uint64 // messages that came by Import
	messages map[string]consumers.Message
	threads  map[string]*boxThread
	records  []consumers.Change
	faults   []*Fault
	calls    map[[2]string]int
}

type boxThread struct {
	history consumers.HistoryID
	order   uint64 // of its newest message
}

// firstID is where message ids begin; what Import brings stands before it in the order of threads.
const firstID = 0x1000

// NewMailbox returns an empty mailbox whose history id is 1000.
func NewMailbox(address string) *Mailbox {
	return &Mailbox{
		Address: address, PageSize: 100, history: 1000, floor: 1, nextID: firstID,
		messages: map[string]consumers.Message{}, threads: map[string]*boxThread{}, calls: map[[2]string]int{},
	}
}

// Add puts a message into the mailbox and returns it as stored. An empty ID gets the next one, an empty ThreadID begins
// a thread, empty labels are INBOX and UNREAD.
func (m *Mailbox) Add(msg consumers.Message) consumers.Message {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.add(msg)
}

func (m *Mailbox) add(msg consumers.Message) consumers.Message {
	m.nextID++
	m.history++
	if msg.ID == "" {
		msg.ID = fmt.Sprintf("%016x", m.nextID)
	}
	if msg.ThreadID == "" {
		msg.ThreadID = msg.ID
	}
	if msg.Labels == nil {
		msg.Labels = []string{"INBOX", "UNREAD"}
	}
	if msg.InternalDate.IsZero() {
		msg.InternalDate = time.UnixMilli(1_700_000_000_000 + int64(m.nextID)).UTC()
	}
	if msg.Raw == nil {
		msg.Raw = []byte(`{"id":"` + msg.ID + `"}`)
	}
	msg.HistoryID = m.history
	m.messages[msg.ID] = msg
	m.threads[msg.ThreadID] = &boxThread{m.history, m.nextID}
	m.record(consumers.MessageAdded, msg, nil)
	return msg
}

// Relabel adds and removes labels of a message, as one history record.
func (m *Mailbox) Relabel(id string, add, remove []string) consumers.HistoryID {
	m.mu.Lock()
	defer m.mu.Unlock()
	msg, ok := m.messages[id]
	if !ok {
		return m.history
	}
	m.history++
	msg.HistoryID = m.history
	msg.Labels = slices.DeleteFunc(slices.Clone(msg.Labels), func(l string) bool { return slices.Contains(remove, l) })
	msg.Labels = slices.Compact(slices.Sorted(slices.Values(append(msg.Labels, add...))))
	m.messages[id] = msg
	m.threads[msg.ThreadID].history = m.history
	if len(add) > 0 {
		m.record(consumers.LabelsAdded, msg, add)
	}
	if len(remove) > 0 {
		m.record(consumers.LabelsRemoved, msg, remove)
	}
	return m.history
}

// Delete deletes a message for good; its thread goes with the last one.
func (m *Mailbox) Delete(id string) consumers.HistoryID {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.messages[id]; ok {
		m.history++
		m.remove(id)
	}
	return m.history
}

// remove deletes a message, as part of the current history record.
func (m *Mailbox) remove(id string) {
	msg, ok := m.messages[id]
	if !ok {
		return
	}
	delete(m.messages, id)
	m.record(consumers.MessageDeleted, msg, nil)
	th := m.threads[msg.ThreadID]
	th.history = m.history
	if m.OldThreadIDs {
		th.history = 0
		for _, left := range m.inThread(msg.ThreadID) {
			th.history = max(th.history, left.HistoryID)
		}
	}
	if len(m.inThread(msg.ThreadID)) == 0 {
		delete(m.threads, msg.ThreadID)
	}
}

// Import puts a message into the mailbox as Add does, but its thread is the oldest of all: a listing that is under way
// shows it last.
func (m *Mailbox) Import(msg consumers.Message) consumers.Message {
	m.mu.Lock()
	defer m.mu.Unlock()
	msg = m.add(msg)
	m.imported++
	m.threads[msg.ThreadID].order = firstID - m.imported
	return msg
}

// Replace is what editing or sending a draft does: in one history record the message goes and another one of its thread
// comes.
func (m *Mailbox) Replace(id string, labels []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if old, ok := m.messages[id]; ok {
		m.add(consumers.Message{ThreadID: old.ThreadID, Labels: labels})
		m.remove(id)
	}
}

// DeleteAll deletes messages for good in one history record.
func (m *Mailbox) DeleteAll(ids ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.history++
	for _, id := range ids {
		m.remove(id)
	}
}

func (m *Mailbox) record(kind consumers.ChangeKind, msg consumers.Message, labels []string) {
	m.records = append(m.records, consumers.Change{
		HistoryID: m.history, Kind: kind, MessageID: msg.ID, ThreadID: msg.ThreadID, Labels: slices.Clone(labels),
	})
}

// ExpireHistory makes every start before the current history id too old.
func (m *Mailbox) ExpireHistory() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.floor = m.history
}

// HistoryID returns the mailbox's current history id.
func (m *Mailbox) HistoryID() consumers.HistoryID {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.history
}

// Live returns all messages, ordered by id: what a mirror must hold.
func (m *Mailbox) Live() []consumers.Message {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sorted(func(consumers.Message) bool { return true })
}

// Changes counts the history's changes of a thread, since the mailbox was made.
func (m *Mailbox) Changes(thread string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, c := range m.records {
		if c.ThreadID == thread {
			n++
		}
	}
	return n
}

func (m *Mailbox) inThread(id string) []consumers.Message {
	return m.sorted(func(msg consumers.Message) bool { return msg.ThreadID == id })
}

func (m *Mailbox) sorted(keep func(consumers.Message) bool) []consumers.Message {
	var list []consumers.Message
	for _, msg := range m.messages {
		if keep(msg) {
			msg.Labels = slices.Sorted(slices.Values(msg.Labels))
			list = append(list, msg)
		}
	}
	slices.SortFunc(list, func(x, y consumers.Message) int {
		if x.ID < y.ID {
			return -1
		}
		return 1
	})
	return list
}

// Inject adds a fault.
func (m *Mailbox) Inject(f Fault) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.faults = append(m.faults, &f)
}

// Heal removes all faults.
func (m *Mailbox) Heal() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.faults = nil
}

// Calls counts the calls of one name, failed ones included; with ids only those that asked for one of them.
func (m *Mailbox) Calls(op string, ids ...string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for key, calls := range m.calls {
		if key[0] == op && (len(ids) == 0 || slices.Contains(ids, key[1])) {
			n += calls
		}
	}
	return n
}

// enter counts a call and returns the error that it is to have. On nil the mailbox is locked.
func (m *Mailbox) enter(ctx context.Context, op, id string) error {
	if m.OnCall != nil {
		m.OnCall(op, id)
	}
	if err := ctx.Err(); err != nil {
		return &consumers.MailboxError{Op: op, Fault: consumers.Passing, Err: err}
	}
	m.mu.Lock()
	m.calls[[2]string{op, id}]++
	for i, f := range m.faults {
		if f.Op != "" && f.Op != op || f.ID != "" && f.ID != id {
			continue
		}
		if f.Skip > 0 {
			f.Skip--
			continue
		}
		if f.Times > 0 {
			if f.Times--; f.Times == 0 {
				m.faults = slices.Delete(m.faults, i, i+1)
			}
		}
		m.mu.Unlock()
		return withOp(f.Err, op)
	}
	return nil
}

func withOp(err error, op string) error {
	var me *consumers.MailboxError
	if errors.As(err, &me) && me.Op == "" {
		named := *me
		named.Op = op
		return &named
	}
	return err
}

func notFound(op string) error {
	return &consumers.MailboxError{Op: op, Fault: consumers.Gone, Status: 404, Reason: "notFound"}
}

func badRequest(op string) error {
	return &consumers.MailboxError{Op: op, Fault: consumers.Permanent, Status: 400, Reason: "invalidArgument"}
}

// Profile implements consumers.Mailbox.
func (m *Mailbox) Profile(ctx context.Context) (consumers.Profile, error) {
	if err := m.enter(ctx, OpProfile, ""); err != nil {
		return consumers.Profile{}, err
	}
	defer m.mu.Unlock()
	return consumers.Profile{Address: m.Address, HistoryID: m.history,
		Messages: int64(len(m.messages)), Threads: int64(len(m.threads))}, nil
}

// Watch implements consumers.Mailbox.
func (m *Mailbox) Watch(ctx context.Context) (consumers.Watch, error) {
	if m.WatchExpires.IsZero() {
		return consumers.Watch{}, nil
	}
	if err := m.enter(ctx, OpWatch, ""); err != nil {
		return consumers.Watch{}, err
	}
	defer m.mu.Unlock()
	return consumers.Watch{HistoryID: m.history, Expires: m.WatchExpires}, nil
}

// Labels implements consumers.Mailbox.
func (m *Mailbox) Labels(ctx context.Context) ([]consumers.Label, error) {
	if err := m.enter(ctx, OpLabels, ""); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	return slices.Clone(m.LabelList), nil
}

// ListThreads implements consumers.Mailbox. A page token names the last thread shown, so it survives insertions.
func (m *Mailbox) ListThreads(ctx context.Context, pageToken string) (consumers.ThreadPage, error) {
	if err := m.enter(ctx, OpListThreads, pageToken); err != nil {
		return consumers.ThreadPage{}, err
	}
	defer m.mu.Unlock()
	before := ^uint64(0)
	if pageToken != "" {
		n, err := strconv.ParseUint(pageToken, 10, 64)
		if err != nil {
			return consumers.ThreadPage{}, badRequest(OpListThreads)
		}
		before = n
	}
	var ids []string
	for id, th := range m.threads {
		if th.order < before && (m.Found == nil || slices.ContainsFunc(m.inThread(id), m.Found)) {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(x, y string) int {
		if m.threads[x].order > m.threads[y].order {
			return -1
		}
		return 1
	})
	var page consumers.ThreadPage
	for _, id := range ids[:min(m.PageSize, len(ids))] {
		page.Threads = append(page.Threads, consumers.ThreadRef{ID: id, HistoryID: m.threads[id].history})
		page.Next = strconv.FormatUint(m.threads[id].order, 10)
	}
	if len(ids) <= m.PageSize {
		page.Next = ""
	}
	return page, nil
}

// GetThread implements consumers.Mailbox.
func (m *Mailbox) GetThread(ctx context.Context, id string) (consumers.Thread, error) {
	if err := m.enter(ctx, OpGetThread, id); err != nil {
		return consumers.Thread{}, err
	}
	defer m.mu.Unlock()
	th, ok := m.threads[id]
	if !ok {
		return consumers.Thread{}, notFound(OpGetThread)
	}
	if n := len(m.inThread(id)); m.LargeThread > 0 && n >= m.LargeThread {
		return consumers.Thread{}, &consumers.MailboxError{Op: OpGetThread, Fault: consumers.Permanent, Err: consumers.ErrLargeThread}
	}
	return consumers.Thread{ID: id, HistoryID: th.history, Messages: m.inThread(id)}, nil
}

// ThreadOutline implements consumers.Mailbox.
func (m *Mailbox) ThreadOutline(ctx context.Context, id string) (consumers.Thread, error) {
	if err := m.enter(ctx, OpThreadOutline, id); err != nil {
		return consumers.Thread{}, err
	}
	defer m.mu.Unlock()
	th, ok := m.threads[id]
	if !ok {
		return consumers.Thread{}, notFound(OpThreadOutline)
	}
	outline := consumers.Thread{ID: id, HistoryID: th.history, Outline: true}
	for _, msg := range m.inThread(id) {
		outline.Messages = append(outline.Messages, consumers.Message{
			ID: msg.ID, ThreadID: msg.ThreadID, HistoryID: msg.HistoryID, Labels: msg.Labels,
		})
	}
	return outline, nil
}

// GetMessage implements consumers.Mailbox.
func (m *Mailbox) GetMessage(ctx context.Context, id string) (consumers.Message, error) {
	if err := m.enter(ctx, OpGetMessage, id); err != nil {
		return consumers.Message{}, err
	}
	defer m.mu.Unlock()
	msg, ok := m.messages[id]
	if !ok {
		return consumers.Message{}, notFound(OpGetMessage)
	}
	msg.Labels = slices.Sorted(slices.Values(msg.Labels))
	return msg, nil
}

// History implements consumers.Mailbox. All changes of one record are on one page.
func (m *Mailbox) History(ctx context.Context, start consumers.HistoryID, pageToken string) (consumers.HistoryPage, error) {
	if err := m.enter(ctx, OpHistory, start.String()); err != nil {
		return consumers.HistoryPage{}, err
	}
	defer m.mu.Unlock()
	if start < m.floor {
		return consumers.HistoryPage{}, notFound(OpHistory)
	}
	after := start
	if pageToken != "" {
		var err error
		if after, err = consumers.ParseHistoryID(pageToken); err != nil || after < start {
			return consumers.HistoryPage{}, badRequest(OpHistory)
		}
	}
	page := consumers.HistoryPage{Current: m.history}
	records := 0
	for _, c := range m.records {
		if c.HistoryID <= after {
			continue
		}
		if n := len(page.Changes); n == 0 || page.Changes[n-1].HistoryID != c.HistoryID {
			if records++; records > m.PageSize {
				page.Next = page.Changes[n-1].HistoryID.String()
				break
			}
		}
		page.Changes = append(page.Changes, c)
	}
	return page, nil
}

// Mailboxes opens mailboxes in memory by account id.
type Mailboxes map[string]*Mailbox

// Mailbox implements consumers.Mailboxes.
func (all Mailboxes) Mailbox(_ context.Context, account string, _ gmailquota.Class) (consumers.Mailbox, error) {
	m, ok := all[account]
	if !ok {
		return nil, &consumers.MailboxError{Op: "open", Fault: consumers.AccountFault, State: consumers.Stopped, Reason: "no such mailbox"}
	}
	return m, nil
}
