package quotatest

import "github.com/gmailsync/gmailsync/gmailquota/quotaplan"

// The models of how a provider may meter are quotaplan's, which computes with them outside of tests too.
type (
	Meter         = quotaplan.Meter
	FixedMinute   = quotaplan.FixedMinute
	SlidingMinute = quotaplan.SlidingMinute
	TokenBucket   = quotaplan.TokenBucket
)

// Meters is quotaplan.Meters.
func Meters(limit int64) []Meter { return quotaplan.Meters(limit) }
