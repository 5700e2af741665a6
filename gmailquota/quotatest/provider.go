package quotatest

import "github.com/gmailsync/gmailsync/gmailquota/quotaplan"

// Meter is quotaplan.Meter, a model of how a provider may count; the models are its own too. They are quotaplan's because
// it computes with them outside of tests as well.
type Meter = quotaplan.Meter

// FixedMinute is quotaplan.FixedMinute.
type FixedMinute = quotaplan.FixedMinute

// SlidingMinute is quotaplan.SlidingMinute.
type SlidingMinute = quotaplan.SlidingMinute

// TokenBucket is quotaplan.TokenBucket.
type TokenBucket = quotaplan.TokenBucket

// Meters is quotaplan.Meters.
func Meters(limit int64) []Meter { return quotaplan.Meters(limit) }
