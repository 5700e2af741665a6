package consumertest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gmailsync/gmailsync/consumers"
)

// randomSteps is how long a random course is before everybody is left to finish.
const randomSteps = 40

// randomSuite lets two history consumers and two thread batch workers of one account, none of which knows of the
// others, work at once, while the mailbox changes, steps come twice and history expires. Each stops between what it
// read from the mailbox and what it stores, and any of the others goes on then. Every other course has a scope, which
// changes. When the dust has settled the store must hold what the mailbox holds, as if all had been done in order.
//
// elie222/inbox-zero#1292, bulwarkmail/legacy-proxy#10
func randomSuite(t *testing.T, open func(t *testing.T) Fixture) {
	fixture := open(t)
	for seed := range uint64(interleavings) {
		c := newCourse(t, fixture, seed)
		for range randomSteps {
			c.step()
		}
		c.settle()
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// course is one random course of one account.
type course struct {
	*env
	id      string
	rng     *rand.Rand
	box     *Mailbox
	actors  []func()
	batches []consumers.Batch
	past    []consumers.HistoryStep
	calm    bool // no more faults: the end must be reached
	scope   consumers.Scope
}

func newCourse(t *testing.T, f Fixture, seed uint64) *course {
	c := &course{
		env: &env{T: t, Fixture: f, ctx: t.Context()}, id: fmt.Sprintf("random-%d", seed),
		rng: rand.New(rand.NewPCG(seed, 1)), box: NewMailbox("ann@example.com"),
	}
	c.box.PageSize = 3
	c.box.OldThreadIDs = seed%3 == 0
	c.must(c.AddAccount(c.ctx, c.id, c.id+"@example.com"))
	for range 6 {
		c.mutate()
	}
	c.actors = []func(){
		c.mutate, c.mutate, c.lister(), c.historian(), c.historian(), c.batcher(), c.batcher(), c.repeat, c.expire,
	}
	if seed%2 == 1 {
		c.rescope()
		c.actors = append(c.actors, c.rescope)
	}
	return c
}

func (c *course) step() { c.actors[c.rng.IntN(len(c.actors))]() }

func (c *course) chance(percent int) bool { return !c.calm && c.rng.IntN(100) < percent }

// mutate changes the mailbox in one way.
func (c *course) mutate() {
	live := c.box.Live()
	if len(live) == 0 || c.rng.IntN(3) == 0 {
		m := consumers.Message{}
		if len(live) > 0 && c.rng.IntN(2) == 0 {
			m.ThreadID = live[c.rng.IntN(len(live))].ThreadID
		}
		c.box.Add(m)
		return
	}
	id := live[c.rng.IntN(len(live))].ID
	labels := []string{"A", "B", "UNREAD"}
	i := c.rng.IntN(3)
	switch c.rng.IntN(4) {
	case 0:
		c.box.Delete(id)
	case 1:
		c.box.Relabel(id, labels[i:i+1], labels[(i+1)%3:(i+1)%3+1])
	case 2:
		c.box.Relabel(id, labels[i:i+1], nil)
	default:
		c.box.Relabel(id, nil, labels[i:i+1])
	}
}

// expire makes history too old, now and then; the next one who asks starts a resync.
func (c *course) expire() {
	if c.chance(10) {
		c.box.ExpireHistory()
	}
}

// rescope has another part of the mailbox mirrored, now and then.
func (c *course) rescope() {
	if len(c.past) > 0 && !c.chance(15) {
		return
	}
	scopes := []consumers.Scope{{}, {LabelsIn: []string{"A", "B"}}, {LabelsOut: []string{"A"}}, {LabelsIn: []string{"UNREAD"}, LabelsOut: []string{"B"}}}
	c.scope = scopes[c.rng.IntN(len(scopes))]
	_, err := c.Store.SetScope(c.ctx, c.id, c.scope, now)
	c.must(err)
}

// repeat applies an earlier step again.
func (c *course) repeat() {
	if len(c.past) > 0 {
		c.applyStep(c.past[c.rng.IntN(len(c.past))])
	}
}

func (c *course) applyStep(step consumers.HistoryStep) {
	if err := c.Store.ApplyHistory(c.ctx, c.id, step, now); !errors.Is(err, consumers.ErrOvertaken) {
		c.must(err)
	}
}

// lister is the initial sync: baseline, pages, the check of absent threads, the end.
func (c *course) lister() func() {
	var page *consumers.ThreadPage
	var asked consumers.Run
	return func() {
		if page != nil { // read some steps ago; its run may be over
			c.must(c.Store.AddPage(c.ctx, asked.ID, asked.PageToken, *page, 2))
			page = nil
			return
		}
		a, err := c.Store.Account(c.ctx, c.id)
		c.must(err)
		run, err := c.Store.ActiveRun(c.ctx, c.id)
		if err != nil {
			c.wantErr(err, consumers.ErrNoRun)
			if a.State == consumers.Importing {
				_, _, err = c.Store.StartRun(c.ctx, c.id, consumers.RunImport, now)
				c.must(err)
			}
			return
		}
		switch {
		case run.Baseline == 0:
			p, err := c.box.Profile(c.ctx)
			c.must(err)
			c.must(c.Store.PinBaseline(c.ctx, run.ID, p.HistoryID))
		case !run.Listed:
			got, err := c.box.ListThreads(c.ctx, run.PageToken)
			c.must(err)
			page, asked = &got, run
		case run.Kind == consumers.RunResync && !run.AbsentQueued:
			_, err := c.Store.QueueAbsent(c.ctx, run.ID, 2)
			c.must(err)
		default:
			_, err := c.Store.FinishRun(c.ctx, run.ID, now)
			c.must(err)
		}
	}
}

// batcher works a batch; a second one may hold the same.
func (c *course) batcher() func() {
	var held consumers.Batch
	var got *consumers.Thread
	var gone bool
	stale := map[string]int{}
	return func() {
		if got != nil {
			if gone {
				c.must(c.Store.ThreadGone(c.ctx, held, got.ID, now))
			} else if stale[got.ID] == 2 {
				c.must(c.Store.AcceptThread(c.ctx, held, *got, now))
			} else if complete, err := c.Store.SaveThread(c.ctx, held, *got, now); err != nil || !complete {
				c.must(err)
				stale[got.ID]++
			}
			got = nil
			return
		}
		var ok bool
		if held, ok = c.pickBatch(); !ok {
			return
		}
		if len(held.Threads) == 0 {
			_, err := c.Store.FinishBatch(c.ctx, held)
			c.must(err)
			return
		}
		id := held.Threads[c.rng.IntN(len(held.Threads))]
		th, err := c.box.GetThread(c.ctx, id)
		gone = err != nil
		th.ID = id
		got = &th
	}
}

// pickBatch opens batches and returns one that is working.
func (c *course) pickBatch() (consumers.Batch, bool) {
	run, err := c.Store.ActiveRun(c.ctx, c.id)
	if err != nil {
		c.wantErr(err, consumers.ErrNoRun)
		return consumers.Batch{}, false
	}
	opened, err := c.Store.OpenBatches(c.ctx, run.ID, 2, now)
	c.must(err)
	c.batches = append(c.batches, opened...)
	for len(c.batches) > 0 {
		i := c.rng.IntN(len(c.batches))
		b, ok, err := c.Store.Batch(c.ctx, c.id, c.batches[i].ID)
		c.must(err)
		if ok {
			return b, true
		}
		c.batches = slices.Delete(c.batches, i, i+1)
	}
	return consumers.Batch{}, false
}

// historian follows the history from the stored cursor, page by page.
func (c *course) historian() func() {
	var start consumers.HistoryID
	var token string
	var step *consumers.HistoryStep
	return func() {
		if step != nil {
			c.applyStep(*step)
			c.past = append(c.past, *step)
			step = nil
			return
		}
		if token == "" {
			a, err := c.Store.Account(c.ctx, c.id)
			c.must(err)
			start = a.Cursor
		}
		if start == 0 {
			return
		}
		page, err := c.box.History(c.ctx, start, token)
		token = ""
		if err != nil {
			if consumers.FaultOf(err) == consumers.Gone {
				_, _, err = c.Store.StartRun(c.ctx, c.id, consumers.RunResync, now)
				c.must(err)
			}
			return
		}
		token = page.Next
		changes := page.Changes
		if n := len(changes); c.chance(20) && n > 0 { // denied in mid-page: only whole records count
			end := changes[c.rng.IntN(n)].HistoryID
			for n > 0 && changes[n-1].HistoryID > end {
				n--
			}
			changes, token = changes[:n], ""
			page.Current, page.Next = end, "cut"
		}
		planned := c.plan(changes)
		planned.Cursor = page.Current
		if n := len(changes); page.Next != "" && n > 0 {
			planned.Cursor = changes[n-1].HistoryID
		}
		planned.Start = start
		step = &planned
	}
}

// plan fetches what a page's changes need, and what is on the retry list.
func (c *course) plan(changes []consumers.Change) consumers.HistoryStep {
	step := consumers.HistoryStep{Changes: changes}
	later, err := c.Store.DueFetches(c.ctx, c.id, now.Add(24*time.Hour), 5)
	c.must(err)
	deleted := map[string]bool{}
	var ids, threads []string
	for _, f := range later {
		threads = append(threads, f.ThreadID)
	}
	for _, ch := range changes {
		ids, threads = append(ids, ch.MessageID), append(threads, ch.ThreadID)
		deleted[ch.MessageID] = deleted[ch.MessageID] || ch.Kind == consumers.MessageDeleted
	}
	have, err := c.Store.Messages(c.ctx, c.id, ids)
	c.must(err)
	states, err := c.Store.Threads(c.ctx, c.id, threads)
	c.must(err)
	for _, f := range later {
		c.fetch(&step, f, states[f.ThreadID])
	}
	for _, ch := range changes {
		_, known := have[ch.MessageID]
		if ch.Kind != consumers.MessageAdded || known || deleted[ch.MessageID] || states[ch.ThreadID].Open && c.chance(50) {
			continue
		}
		c.fetch(&step, consumers.Fetch{MessageID: ch.MessageID, ThreadID: ch.ThreadID, HistoryID: ch.HistoryID, Due: now}, states[ch.ThreadID])
	}
	return step
}

// fetch gets a message, alone or with its thread, or notes that it could not. Alone is enough only where the rest of the
// thread is stored or will be fetched by the run: a thread to which new mail came while it was being listed may have
// moved past the listing.
func (c *course) fetch(step *consumers.HistoryStep, f consumers.Fetch, thread consumers.ThreadState) {
	f.Attempts++
	f.Cause = "503 backendError"
	if c.chance(20) {
		step.Retry = append(step.Retry, f)
		return
	}
	if !thread.Complete && !thread.Open || c.chance(30) {
		if th, err := c.box.GetThread(c.ctx, f.ThreadID); err == nil {
			step.Threads = append(step.Threads, th)
			step.Fetched = append(step.Fetched, f.MessageID)
			return
		}
	}
	m, err := c.box.GetMessage(c.ctx, f.MessageID)
	switch {
	case err == nil:
		step.Messages = append(step.Messages, m)
		step.Fetched = append(step.Fetched, f.MessageID)
	case f.Attempts < 2:
		step.Retry = append(step.Retry, f)
	default:
		step.Gone = append(step.Gone, f.MessageID)
	}
}

// settle lets everybody work until nothing is left, and compares.
func (c *course) settle() {
	c.calm = true
	for range 400 {
		for _, actor := range c.actors[2:7] {
			actor()
		}
		if c.quiet() {
			c.compare()
			return
		}
	}
	a, _ := c.Store.Account(c.ctx, c.id)
	run, _ := c.Store.ActiveRun(c.ctx, c.id)
	c.Errorf("still not quiet: account %+v, run %+v, mailbox at %d", a, run, c.box.HistoryID())
}

func (c *course) quiet() bool {
	a, err := c.Store.Account(c.ctx, c.id)
	c.must(err)
	fetches, err := c.Store.DueFetches(c.ctx, c.id, now.Add(24*time.Hour), 1)
	c.must(err)
	return a.State == consumers.Live && a.Cursor == c.box.HistoryID() && len(fetches) == 0
}

func (c *course) compare() {
	type row struct {
		Thread string
		Labels []string
	}
	rows := func(list []consumers.Message) map[string]row {
		m := map[string]row{}
		for _, x := range list {
			m[x.ID] = row{x.ThreadID, x.Labels}
		}
		return m
	}
	live, err := c.Live(c.ctx, c.id)
	c.must(err)
	inside := slices.DeleteFunc(c.box.Live(), func(m consumers.Message) bool { return !c.scope.Has(m.Labels) })
	if d := cmp.Diff(rows(inside), rows(live), cmpopts.EquateEmpty()); d != "" {
		c.Errorf("the store (+) is not the mailbox (-):\n%s", d)
	}
}
