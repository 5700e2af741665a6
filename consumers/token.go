package consumers

import "time"

// Sealed is one account's OAuth tokens as they are stored: encrypted, with a version for compare-and-swap, so that of
// two processes that refresh at the same moment one wins and the other reads what the winner stored.
type Sealed struct {
	Refresh []byte    // the refresh token, encrypted
	Access  []byte    // the last access token, encrypted; empty: none
	Expires time.Time // of the access token, as its issuer said; zero with an empty Access
	Version int64     // grows by one with each save
}
