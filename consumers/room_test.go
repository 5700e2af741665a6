package consumers

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// A job has one place however often it enters, and the next job gets it when the first one has stored what it held.
func TestRoomHoldsOneJobUntilItLetsGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		room := NewRoom(1)
		first, second := WithPlace(t.Context()), WithPlace(t.Context())
		for range 3 {
			if err := room.Enter(first); err != nil {
				t.Fatal(err)
			}
		}
		entered := make(chan error, 1)
		go func() { entered <- room.Enter(second) }()
		synctest.Wait()
		if len(entered) > 0 {
			t.Fatal("two jobs are in a room for one")
		}
		LetGo(first)
		LetGo(first)
		if err := <-entered; err != nil {
			t.Fatal(err)
		}
		waiting, cancel := context.WithTimeout(WithPlace(t.Context()), time.Second)
		defer cancel()
		if err := room.Enter(waiting); err == nil {
			t.Error("a job whose context has ended is in")
		}
		if err := room.Enter(t.Context()); err != nil {
			t.Errorf("what is no job is not counted: %v", err)
		}
		LetGo(second)
	})
}
