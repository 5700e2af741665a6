package gmailquota

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Callers that wait for Redis at the same moment share a run of the script. Who finds nobody asking asks at once, for
// itself alone. Who comes while somebody asks queues; when that run has ended the first of the queue asks for those behind
// it too, and when enough of them wait somebody asks before. So a lone caller waits for nobody, and no caller for longer
// than a run. Whose turn has not come after RedisTimeout is answered as if Redis were away.

const (
	// maxCombined is how many decisions share a run at most: it bounds for how long Redis serves nobody else, to some
	// 200 µs, and more would save little.
	maxCombined = 16
	// enough is how many that wait do not wait for a run under way to end, so that Redis has something to do while this
	// process reads its answer; of fewer, each would cost more.
	enough = 8
	// maxRuns are under way at most.
	maxRuns = 3
	// answered is how many numbers the script answers for a decision; two more follow the last.
	answered = 8
)

// question is a decision that a caller wants from Redis, and the answer.
type question struct {
	key, request string
	since        time.Time     // it queues
	turn         chan struct{} // gets one value: there is an answer, or it is this caller's turn to ask
	leads        bool          // it is; guarded by combiner.mu

	answer *[answered + 2]int64
	err    error
}

type combiner struct {
	patience time.Duration

	mu     sync.Mutex
	asking int // runs under way
	queue  []*question
}

// join returns true if the caller is to ask at once; otherwise q is queued.
func (c *combiner) join(q *question) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.due(len(c.queue) + 1) {
		c.asking++
		return true
	}
	q.turn, q.since = make(chan struct{}, 1), time.Now()
	c.queue = append(c.queue, q)
	return false
}

// due tells whether a run is to begin when so many wait.
func (c *combiner) due(waiting int) bool {
	return waiting > 0 && c.asking == 0 || waiting >= enough && c.asking < maxRuns
}

// take returns the questions of the next run: q and those behind it.
func (c *combiner) take(q *question) []*question {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := min(len(c.queue), maxCombined-1)
	all := append([]*question{q}, c.queue[:n]...)
	c.queue = slices.Delete(c.queue, 0, n)
	return all
}

// pass lets the next of the queue ask.
func (c *combiner) pass() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.passLocked()
}

func (c *combiner) passLocked() {
	late, last := 0, time.Now().Add(-c.patience)
	for ; late < len(c.queue) && c.queue[late].since.Before(last); late++ {
		c.queue[late].err = errCrowd
		c.queue[late].turn <- struct{}{}
	}
	c.queue = slices.Delete(c.queue, 0, late)
	c.asking--
	if c.due(len(c.queue)) {
		c.asking++
		next := c.queue[0]
		c.queue = slices.Delete(c.queue, 0, 1)
		next.leads = true
		next.turn <- struct{}{}
	}
}

// leave is for a caller that waits no longer. What was sent cannot be called back.
func (c *combiner) leave(q *question) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if q.leads {
		c.passLocked()
		return
	}
	if i := slices.Index(c.queue, q); i >= 0 {
		c.queue = slices.Delete(c.queue, i, i+1)
	}
}

// ask returns what the script answers to a request for the user's key, alone or with others. When ctx ends there may be
// a charge that nobody knows of, as when an answer is lost.
func (g *Guard) ask(ctx context.Context, key, request string) (*[answered + 2]int64, error) {
	if g.breaker.away() {
		return nil, errBreaker // or callers would queue behind the one that probes
	}
	c, q := &g.combiner, &question{key: key, request: request}
	if !c.join(q) {
		select {
		case <-q.turn:
		case <-ctx.Done():
			c.leave(q)
			return nil, context.Cause(ctx)
		}
		if q.answer != nil || q.err != nil {
			return q.answer, q.err
		}
	}
	g.lead(ctx, c.take(q))
	return q.answer, q.err
}

// lead asks for several callers and hands out the answers, also when the client panics: the panic is the first caller's.
func (g *Guard) lead(ctx context.Context, all []*question) {
	for _, q := range all {
		q.err = errNoAnswer
	}
	defer func() {
		g.combiner.pass()
		for _, other := range all[1:] {
			other.turn <- struct{}{}
		}
	}()
	g.askFor(ctx, all)
}

var errNoAnswer = errors.New("the Redis client panicked")

// askFor is one run of the script. What others asked does not end with the context of the one that asks for them.
func (g *Guard) askFor(ctx context.Context, all []*question) {
	if len(all) > 1 {
		ctx = context.WithoutCancel(ctx)
	}
	keys, args := make([]string, 1, 1+len(all)), make([]any, 0, len(all))
	keys[0] = g.projectKey
	for _, q := range all { // each after the number of its key
		k := slices.Index(keys, q.key)
		if k < 0 {
			k, keys = len(keys), append(keys, q.key)
		}
		args = append(args, fmt.Sprintf("%02d %s", k+1, q.request))
	}
	numbers, err := g.run(ctx, "acquire", keys, args...)
	if err != nil && len(all) > 1 && moving(err) {
		g.askApart(ctx, all)
		return
	}
	if want := answered*len(all) + 2; err == nil && len(numbers) != want {
		err = fmt.Errorf("the script answered %d numbers, not %d", len(numbers), want)
	}
	if err == nil {
		g.counters.decisions.Add(int64(len(all)))
	}
	for i, q := range all {
		if q.err = err; err == nil {
			q.answer = new([answered + 2]int64)
			copy(q.answer[:answered], numbers[i*answered:])
			copy(q.answer[answered:], numbers[len(all)*answered:])
		}
	}
}

// askApart asks for one after the other, as one's key that is on its way to another node keeps no other from an answer. All
// of it is to take no longer than a run may.
func (g *Guard) askApart(ctx context.Context, all []*question) {
	ctx, cancel := context.WithTimeout(ctx, g.cfg.RedisTimeout)
	defer cancel()
	for i := range all {
		g.askFor(ctx, all[i:i+1])
	}
}
