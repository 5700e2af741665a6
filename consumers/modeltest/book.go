package modeltest

import (
	"fmt"
	"sync"

	"github.com/gmailsync/gmailsync/consumers"
	"github.com/gmailsync/gmailsync/consumers/consumertest"
)

// maxStale is how often one run asks for a thread that history says is newer than Gmail's answer (see threadbatch).
const maxStale = 4

// thing is a thread or a message that was fetched.
type thing struct{ account, op, id string }

// book keeps what was fetched, and what of it was stored: a fetch that was lost on the way may be repeated.
type book struct {
	mu      sync.Mutex
	fetches map[thing]int
	stores  map[thing]int
	runs    map[string]int // by account
}

func newBook() *book {
	return &book{fetches: map[thing]int{}, stores: map[thing]int{}, runs: map[string]int{}}
}

func (b *book) fetched(account, op, id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fetches[thing{account, op, id}]++
}

func (b *book) stored(account, op, id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stores[thing{account, op, id}]++
}

func (b *book) step(account string, s consumers.HistoryStep) {
	for _, t := range s.Threads {
		b.stored(account, consumertest.OpGetThread, t.ID)
	}
	for _, m := range s.Messages {
		b.stored(account, consumertest.OpGetMessage, m.ID)
	}
}

func (b *book) ran(account string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.runs[account]++
}

// check tells of the first thing that was fetched more often than can be explained: by the runs, by the changes of a thread
// after which an answer may be out of date, by what was fetched and lost, and by a second worker that did the same at once.
func (b *book) check(workers int, changes func(account, thread string) int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for th, n := range b.fetches {
		reasons := 1 + b.runs[th.account]
		if th.op == consumertest.OpGetThread {
			c := changes(th.account, th.id)
			reasons = b.runs[th.account]*(1+min(c, 1)*(maxStale-1)) + c
		}
		lost := n - min(n, b.stores[th])
		if n > reasons*workers+lost {
			return fmt.Errorf("%s of %s: fetched %d times, explained are %d and %d that were lost",
				th.op, th.id, n, reasons*workers, lost)
		}
	}
	return nil
}
