package sqlite

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gmailsync/gmailsync/consumers"
)

// storeTexts stores messages m0, m1, … of an account, each of n bytes of text, with these labels.
func storeTexts(t *testing.T, s *Store, account string, at consumers.HistoryID, messages, n int, labels ...string) {
	t.Helper()
	var step consumers.HistoryStep
	for i := range messages {
		id := fmt.Sprintf("m%03d", i)
		step.Messages = append(step.Messages, consumers.Message{
			ID: id, ThreadID: id, HistoryID: at, Labels: labels, Text: strings.Repeat("x", n), Raw: []byte(`{"id":"` + id + `"}`),
		})
	}
	if err := s.ApplyHistory(t.Context(), account, step, suiteTime); err != nil {
		t.Fatal(err)
	}
}

// Large messages are read one by one: what is stored while the first is looked at is seen in the second.
func TestEachMessageHoldsFewLargeMessages(t *testing.T) {
	s := openStore(t)
	if err := s.AddAccount(t.Context(), consumers.Account{ID: "a", Address: "a@example.com"}, consumers.Sealed{}); err != nil {
		t.Fatal(err)
	}
	storeTexts(t, s, "a", 100, 3, pageBytes)
	seen := 0
	err := s.EachMessage(t.Context(), "a", func(m consumers.Message) error {
		if seen++; seen == 1 {
			storeTexts(t, s, "a", 101, 3, pageBytes, "LATER")
		} else if !slices.Contains(m.Labels, "LATER") {
			t.Errorf("message %d was read before the first was done with", seen)
		}
		return nil
	})
	if err != nil || seen != 3 {
		t.Errorf("%d messages, %v", seen, err)
	}
}

// Pages end neither early nor twice, whatever ends them.
func TestEachMessageSeesEachOnce(t *testing.T) {
	s := openStore(t)
	if err := s.AddAccount(t.Context(), consumers.Account{ID: "a", Address: "a@example.com"}, consumers.Sealed{}); err != nil {
		t.Fatal(err)
	}
	const n = 2*page + 1
	storeTexts(t, s, "a", 100, n, 100)
	var ids []string
	collect := func(m consumers.Message) error {
		ids = append(ids, m.ID)
		return nil
	}
	if err := s.EachMessage(t.Context(), "a", collect); err != nil || len(ids) != n || len(slices.Compact(ids)) != n {
		t.Errorf("%d messages, %v", len(ids), err)
	}
	enough := errors.New("enough")
	if err := s.EachMessage(t.Context(), "a", func(consumers.Message) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("%v, want the function's error", err)
	}
}
