// Package mailstore holds what every database that keeps the mirror shares: the schema and its migrations, the forms
// in which history ids, times, labels and Gmail's own JSON are stored, and the types that the commands read.
//
// The databases themselves are sub-packages (sqlite). Neither may know Gmail's client, the queue or the quota guard:
// what to store, and when, is decided in package consumers.
package mailstore
