// Package gmailapi calls Gmail: it is the only place of this project that does, and the only importer of gmail/v1. It
// implements consumers.Mailboxes, owns the retries of a single call, tells what a failed call means, and decodes what
// Gmail returns.
//
// The order of a call is retry → quota → oauth2 → network, so that every attempt is charged and no token expires while
// its call waits. The package must not know where tokens are stored, what a job is, or when a call is due.
package gmailapi
