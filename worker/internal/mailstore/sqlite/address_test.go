package sqlite

import (
	"errors"
	"testing"

	"github.com/gmailsync/gmailsync/consumers"
)

// elie222/inbox-zero#3663, sinamics/ztnet#882: an address is a lookup only. It may be spelled in other letter cases, change,
// or go to somebody else; the account is its id, and so are its rows.
func TestAnAccountIsItsIDWhateverItsAddressIs(t *testing.T) {
	s := openStore(t)
	add := func(id, address string) {
		t.Helper()
		if err := s.AddAccount(t.Context(), consumers.Account{ID: id, Address: address}, consumers.Sealed{}); err != nil {
			t.Fatal(err)
		}
	}
	// want looks an address up; no id is for one that nobody has.
	want := func(address, id string) {
		t.Helper()
		a, err := s.AccountByAddress(t.Context(), address)
		if a.ID != id || (id == "") != errors.Is(err, consumers.ErrNoAccount) {
			t.Errorf("%s is account %q, %v; want %q", address, a.ID, err, id)
		}
	}
	mirrored(t, s, "1") // with mail, at 1@example.com
	add("1", "Ann.B@Example.com")
	want("ann.b@example.com", "1")
	want("ANN.B@EXAMPLE.COM", "1")
	want("annb@example.com", "")
	want("ann.b+x@example.com", "")
	want("1@example.com", "")

	add("2", "ann.b@example.com") // somebody else has the address now
	want("Ann.B@example.com", "2")
	add("1", "ann.c@example.com")
	want("ann.c@example.com", "1")
	want("ann.b@example.com", "2")

	for id, mail := range map[string]bool{"1": true, "2": false} {
		live, err := s.live(t.Context(), id)
		if err != nil || (len(live) > 0) != mail {
			t.Errorf("account %s has %d messages, %v; want some: %v", id, len(live), err, mail)
		}
	}
	all, err := s.Accounts(t.Context())
	if err != nil || len(all) != 2 || all[0].Cursor == 0 || all[1].Cursor != 0 {
		t.Errorf("accounts %+v, %v; want the first with its old cursor, the second with none", all, err)
	}
}
