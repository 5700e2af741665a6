// Package consumers holds what the three consumers (initial sync, thread batch, history) share: the jobs that travel
// through the queue, the outcome of handling one, the ports to the outside (Mailbox, Store, Queue), and the runner
// that hands jobs to a handler and brings back later what was denied.
//
// The database is the truth, a job is a hint: every handler can be given any job twice, late or out of order.
//
// The package must not know Pub/Sub, SQL, HTTP or the types of Gmail's client: those live in worker/internal behind
// the ports.
package consumers
