// Package gmailsim is a simulated Gmail: the REST API, the OAuth token endpoint, watch with signed push notifications,
// and a meter of its own. It exists to judge programs that use Gmail, so it is strict where Gmail is strict and keeps
// its own price tables; it must not know the quota guard, nor anything else of this project.
//
// Everything is kept in memory. A Server is an http.Handler for any number of accounts of one Google project:
//
//	/gmail/v1/users/{me or address}/…   the API, with upload and batch at Gmail's own paths
//	/token, /certs                      OAuth token endpoint; keys that sign its ID tokens and the push notifications
//	/_sim/…                             the control interface, for programs that cannot call the Go methods
//
// A Gmail call passes, in this order: authentication, request checks, the meter, injected faults, and the mailbox.
// A request that fails a check costs nothing; one that an injected fault answers costs its price.
package gmailsim
