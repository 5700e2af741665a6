// Package push is the endpoint that Pub/Sub posts Gmail's notifications to. It proves who sent one, finds the account that
// it is about, and puts a history job into the queue.
//
// A notification is a hint: the address in it selects work, never rights, and its history id is no starting point. The
// package must not know Gmail or how accounts are stored.
package push
