// Package quotaplan says what a quota limit and a burst give, before anything runs: how much of the limit is used, and
// what a provider would refuse, however it meters its minutes. [gmailquota.Explain] has the part that needs no simulation.
//
// The package must not know how the guard decides: it lets calls through the guard's own buckets, or through a [Window],
// and counts what arrives.
package quotaplan
