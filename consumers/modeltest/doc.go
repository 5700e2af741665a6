// Package modeltest holds the consumers against a model: random sequences of what happens in mailboxes and to workers, on
// virtual time, after each of which the mirror must be the mailbox. It runs over any store that a Fixture describes.
package modeltest
