package consumers

import (
	"context"
	"time"

	"github.com/gmailsync/gmailsync/gmailquota"
)

// Mailbox is one account's Gmail. Every call passes the quota guard; every error is a *MailboxError. Safe for
// concurrent use.
type Mailbox interface {
	Profile(ctx context.Context) (Profile, error)
	// Watch asks Gmail to push changes to the configured topic; without a topic it makes no call and returns the zero Watch.
	Watch(ctx context.Context) (Watch, error)
	Labels(ctx context.Context) ([]Label, error)
	// ListThreads returns a page of the threads that the configured scope's query finds, newest first: trash and spam
	// included unless the scope leaves both out.
	ListThreads(ctx context.Context, pageToken string) (ThreadPage, error)
	// GetThread's error is ErrLargeThread, of fault Permanent, for a thread of more than some megabytes, and for one with a
	// message that cannot be read.
	GetThread(ctx context.Context, id string) (Thread, error)
	// ThreadOutline returns a thread whose messages have ids, history ids and labels only. It costs as much as GetThread.
	ThreadOutline(ctx context.Context, id string) (Thread, error)
	GetMessage(ctx context.Context, id string) (Message, error)
	// History returns the changes strictly after start. Fault Gone means start is too old: a resync is needed.
	History(ctx context.Context, start HistoryID, pageToken string) (HistoryPage, error)
}

// Mailboxes opens an account's mailbox; the class is charged for its calls.
type Mailboxes interface {
	Mailbox(ctx context.Context, account string, class gmailquota.Class) (Mailbox, error)
}

// Queue publishes jobs. A nil error means that the job is durable to the extent the queue is.
type Queue interface {
	Publish(ctx context.Context, jobs ...Job) error
}

// State is an account's state.
type State string

// The states. Importing, Live and Resyncing accounts are worked on; the others wait for somebody to act.
const (
	Importing State = "importing" // the first run is not finished
	Live      State = "live"      // mirrored; history keeps it so
	Resyncing State = "resyncing" // the cursor was too old; a full comparison is under way
	Reauth    State = "reauth"    // the grant is revoked; resumes from the old cursor after reconnecting
	Stopped   State = "stopped"   // no mailbox, or permission missing
)

// Active tells whether the consumers work on an account in this state.
func (s State) Active() bool { return s == Importing || s == Live || s == Resyncing }

// Account is one mirrored mailbox.
type Account struct {
	ID           string // stable: the Google sub where known
	Address      string // lower case; a lookup only, never a key, never logged
	State        State
	Reason       string // why the state is what it is; of an active one "incomplete: 1" for that many threads or messages given up
	Cursor       HistoryID
	WatchExpires time.Time // zero: no watch
	HistoryAt    time.Time // when history was last brought up to date
	ResyncAt     time.Time // when the last resync started; zero once history was read since, or the account stopped
	Failed       int       // dead letters
	Scope        Scope     // what is mirrored, with labels as they were configured
}

// RunKind says why a run exists.
type RunKind string

// The kinds of run. Import and resync list the whole mailbox; a resync skips threads whose history id is the stored one. A
// replay lists nothing: it fetches the threads of dead letters, and leaves the account's state alone.
const (
	RunImport RunKind = "import"
	RunResync RunKind = "resync"
	RunReplay RunKind = "replay" // started by ReplayDeadLetters only
)

// Run is a complete listing of one mailbox and the fetching of what it found. At most one is active for an account.
type Run struct {
	ID           string
	Account      string
	Kind         RunKind
	Baseline     HistoryID // 0: not pinned yet
	PageToken    string    // of the page to ask for next
	Listed       bool      // the last page is stored
	AbsentQueued bool      // threads that the listing did not name are queued for a check
	Progress     Progress
}

// Progress counts a run's threads. Listed = Stored + Gone + Failed + Open.
type Progress struct {
	Listed  int // named by the listing (or queued for a check)
	Stored  int // stored, or known to be unchanged
	Gone    int // no longer there when fetched
	Failed  int // given up: dead letters
	Open    int // still to fetch
	Pending int // batches not yet published
	Working int // batches published and not finished
}

// Batch is a slice of a run: up to 25 threads.
type Batch struct {
	ID      int64
	Run     string
	Account string
	Threads []string // those still to fetch
}

// ThreadState is what the store knows of a thread.
type ThreadState struct {
	Complete bool // all of its messages are stored
	Open     bool // the active run still has to fetch it
}

// Fetch is a message that history named and that could not be fetched yet.
type Fetch struct {
	MessageID string
	ThreadID  string
	HistoryID HistoryID // of the record that named it
	Attempts  int
	Due       time.Time
	Cause     string // of the last failure; no address, subject or body
}

// HistoryStep is what one transaction of the history consumer stores. Each row is guarded by its history id: an older
// record never applies over a newer one, so a step may be applied twice.
type HistoryStep struct {
	Start    HistoryID // the cursor from where on it was read, before anything was fetched; 0: unknown
	Changes  []Change  // oldest first
	Messages []Message // fetched since
	Threads  []Thread  // fetched whole
	Gone     []string  // message ids that stayed 404: stored as deleted
	Retry    []Fetch   // fetches that failed: written to the retry list
	Fetched  []string  // message ids to take off the retry list
	Cursor   HistoryID // moves the cursor if greater, which ends the memory of the last resync; an account without one waits for its run's baseline
}

// DeadLetter is work that was given up, with its cause.
type DeadLetter struct {
	ID        int64
	Account   string
	Kind      Kind
	Run       string
	ThreadID  string
	MessageID string
	Cause     string // no address, subject or body
	Attempts  int
	At        time.Time
}

// Store is the database, as far as the consumers need it. Every method is one transaction; every time is passed in.
// Safe for concurrent use. Methods about an account or run that does not exist return ErrNoAccount or ErrNoRun.
type Store interface {
	Account(ctx context.Context, id string) (Account, error)
	// SetState stores why an account stopped or went on. A state that is already set stays unchanged and reports false. An
	// account that stops has no watch any more, as a revoked grant ends it at Gmail.
	SetState(ctx context.Context, account string, s State, reason string) (changed bool, err error)
	SetWatch(ctx context.Context, account string, w Watch) error
	// SaveLabels stores which labels there are. If the account's scope means other labels by its names now, that is a change of
	// the scope (see SetScope).
	SaveLabels(ctx context.Context, account string, labels []Label, now time.Time) error
	// SetScope stores what is mirrored of an account, and reports false if it is stored already. A change is applied to what
	// is stored: a message that is outside now loses its content, the thread of one that is inside now is not complete. A
	// resync then follows, in place of the active run, unless the mailbox is about to be listed anyway.
	//
	// A message outside the scope is stored with its ids and labels alone, and counts as deleted wherever no other thing is
	// said. A label change that brings it inside makes it a message that history has named and that is not stored.
	SetScope(ctx context.Context, account string, s Scope, now time.Time) (changed bool, err error)

	// StartRun returns the account's active run; if there is none it starts one of the given kind, sets the account to
	// Importing or Resyncing and reports true. Of two concurrent calls one starts it.
	StartRun(ctx context.Context, account string, kind RunKind, now time.Time) (Run, bool, error)
	// ActiveRun returns the account's active run, or ErrNoRun.
	ActiveRun(ctx context.Context, account string) (Run, error)
	// PinBaseline stores the run's baseline, once: a later call changes nothing. The account's cursor becomes the
	// baseline where it has none, or where the run is a resync and it is lower.
	PinBaseline(ctx context.Context, run string, baseline HistoryID) error
	// AddPage stores one page of the listing: its threads as batches of at most batchSize, and the token of the next
	// page (empty: the listing is complete). It changes nothing unless pageToken is still the run's PageToken and the
	// run is not Listed, so that a page handled twice is stored once; nor before the run has its baseline, since changes
	// between the two would be lost. A thread listed twice counts once. In a resync a thread that is stored, complete and
	// has the listed history id counts as stored at once.
	AddPage(ctx context.Context, run, pageToken string, page ThreadPage, batchSize int) error
	// Relist begins a run's listing again at its first page, as Gmail refuses pageToken. It changes nothing unless that is
	// still the run's PageToken and the run is not Listed. What was listed stays.
	Relist(ctx context.Context, run, pageToken string) error
	// QueueAbsent queues, once, each stored thread that a fully Listed resync did not name: fetching it tells whether
	// it is gone. It reports how many. Where the account's scope has a query such a thread is outside, and removed without
	// a trace, unless it has changed since the run's baseline.
	QueueAbsent(ctx context.Context, run string, batchSize int) (int, error)
	// OpenBatches moves batches from pending to working until window are working, and returns those it moved. They are
	// due again at due, so that a batch whose job is lost comes back.
	OpenBatches(ctx context.Context, run string, window int, due time.Time) ([]Batch, error)
	// Batch returns a working batch with the threads still to fetch; ok is false if it is finished or unknown.
	Batch(ctx context.Context, account string, batch int64) (b Batch, ok bool, err error)
	// SaveThread stores a snapshot fetched for a batch; of a run that is over nothing is stored, by this and the methods
	// about a batch that follow, since a later run may have looked at the thread before. Messages older than a stored row
	// leave the row alone; stored messages that the snapshot lacks become deleted unless they are newer than it and the
	// run's baseline. A replay's baseline does not count: it is the cursor, and a lagging replica may not have got there. It
	// reports false, and leaves the thread open, if history has named a change newer than the snapshot. Of an outline it
	// stores which messages there are; it reports false if one of them is not stored, or older than the outline says.
	SaveThread(ctx context.Context, b Batch, t Thread, now time.Time) (complete bool, err error)
	// AcceptThread stores a snapshot as SaveThread does and takes it as the whole thread, whatever history has named: for a
	// thread whose own history id never gets there. Named messages that are not stored go on the retry list, due at now.
	AcceptThread(ctx context.Context, b Batch, t Thread, now time.Time) error
	// ThreadGone stores that a batch's thread does not exist: its messages are deleted.
	ThreadGone(ctx context.Context, b Batch, threadID string, now time.Time) error
	// ThreadFailed counts a real failure (never a denial). At maxAttempts the thread becomes a dead letter and the batch
	// goes on without it; then it reports true.
	ThreadFailed(ctx context.Context, b Batch, threadID string, cause string, maxAttempts int, now time.Time) (dead bool, err error)
	// FinishBatch closes a batch with no threads left to fetch (else it changes nothing) and returns its run.
	FinishBatch(ctx context.Context, b Batch) (Run, error)
	// FinishRun closes a run that is Listed, has nothing open and, for a resync, is AbsentQueued; the account becomes
	// Live and its history due at once. It reports whether it did.
	FinishRun(ctx context.Context, run string, now time.Time) (bool, error)

	// Messages tells which of these messages are stored, deleted ones and those outside the scope included, with their
	// history ids. One that is not deleted and on the retry list for a newer record is left out: it is to be fetched again.
	Messages(ctx context.Context, account string, ids []string) (map[string]HistoryID, error)
	// Threads tells what is known of these threads; one that is missing is not known.
	Threads(ctx context.Context, account string, ids []string) (map[string]ThreadState, error)
	// ApplyHistory stores one step. ErrOvertaken, and nothing is stored, if it was read from a cursor older than the baseline of
	// a resync: what changed in between is the resync's to find, and it may have looked at the threads before. A message that is named, not stored and left to the active run is noted as wanted, so
	// that an older snapshot does not count as complete (see SaveThread); its deletion ends that. Where the account's scope
	// has a query, a message that is not stored and whose labels alone changed is outside.
	ApplyHistory(ctx context.Context, account string, s HistoryStep, now time.Time) error
	// DueFetches returns the retry list's entries that are due, oldest first.
	DueFetches(ctx context.Context, account string, now time.Time, limit int) ([]Fetch, error)
	// HistoryDone notes that history is up to date at now, which ends the memory of the last resync, and is due again at next, or when the retry list is, whichever
	// is earlier.
	HistoryDone(ctx context.Context, account string, now, next time.Time) error

	// AddDeadLetter stores a letter, or brings the one about the same work up to date. A letter goes by itself when its thread
	// is stored whole or gone, or its message stored or deleted.
	AddDeadLetter(ctx context.Context, d DeadLetter) error
	// ReplayDeadLetters removes these letters of the account and puts their work back, due at now and with no attempts: a
	// message on the retry list, a thread into a batch of the active run or of a run of its own, a job's open work as it is.
	// It reports how many; work that was done meanwhile, and ids that are not the account's, count for none.
	ReplayDeadLetters(ctx context.Context, account string, ids []int64, batchSize int, now time.Time) (int, error)
	// DropDeadLetters forgets these letters of the account and reports how many there were. What they were about stays
	// incomplete, so that the next resync fetches it.
	DropDeadLetters(ctx context.Context, account string, ids []int64) (int, error)

	// Postpone sets when the sweeper publishes this job again unless its work is finished before. A job being handled is
	// postponed into the future, one that has to wait longer than the lot holds it to the end of its wait.
	Postpone(ctx context.Context, j Job, due time.Time) error
	// DueJobs returns jobs of active accounts whose work is open and due, and postpones each to next: never published,
	// lost, or their wait is over.
	DueJobs(ctx context.Context, now, next time.Time, limit int) ([]Job, error)
	// ReleaseAll makes all open work due at once: for a process that starts as the only one on this store.
	ReleaseAll(ctx context.Context) error
}
