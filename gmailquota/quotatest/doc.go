// Package quotatest has what tests of a quota guard need: a Redis whose time the test moves, real or in the process,
// models of how a provider may meter its minutes, and a conformance suite for gmailquota.Guard on any Redis.
//
// The package must not know how the guard keeps its state, only that its script reads the time with TIME.
package quotatest
