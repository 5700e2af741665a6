package threadbatch

import (
	"sync"
	"time"

	"github.com/gmailsync/gmailsync/consumers"
)

// setAside knows which threads of a batch failed, were not found, or came out of date, and when each may be tried again. A
// batch comes back often, whenever its quota wait is over; without this a thread would use up its attempts within seconds of
// a passing fault. It is in memory only: a restart tries at once.
type setAside struct {
	mu      sync.Mutex
	batches map[int64]map[string]failure
}

type failure struct {
	n     int // in a row, of any kind
	stale int // answers older than what history names
	gone  int // 404
	until time.Time
}

// maxSetAside bounds the memory; batches that another process finished are never taken out otherwise.
const maxSetAside = 1000

// failed notes a failure of a thread and returns when it may be tried again.
func (s *setAside) failed(batch int64, thread string, now time.Time) time.Time {
	return s.note(batch, thread, now, func(*failure) {}).until
}

// stale notes an answer that is older than what history names, and returns how many there were.
func (s *setAside) stale(batch int64, thread string, now time.Time) int {
	return s.note(batch, thread, now, func(f *failure) { f.stale++ }).stale
}

// notFound notes a 404, and returns how many there were.
func (s *setAside) notFound(batch int64, thread string, now time.Time) int {
	return s.note(batch, thread, now, func(f *failure) { f.gone++ }).gone
}

func (s *setAside) note(batch int64, thread string, now time.Time, count func(*failure)) failure {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.batches == nil || (s.batches[batch] == nil && len(s.batches) >= maxSetAside) {
		s.batches = map[int64]map[string]failure{}
	}
	if s.batches[batch] == nil {
		s.batches[batch] = map[string]failure{}
	}
	f := s.batches[batch][thread]
	f.n++
	count(&f)
	f.until = now.Add(consumers.Backoff(f.n))
	s.batches[batch][thread] = f
	return f
}

// until tells when a thread may be tried again; zero if it has not failed.
func (s *setAside) until(batch int64, thread string) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.batches[batch][thread].until
}

// forget ends the memory of a batch.
func (s *setAside) forget(batch int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.batches, batch)
}
