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
//
// Where Gmail's behavior is not documented, or where it would be costly to copy, the simulator has its own:
//
//   - A message joins the thread that holds or names one of its references and has its subject; the thread's id is that
//     of its first message.
//   - A message/rfc822 part is an attachment whose data is the whole inner message, and has the inner message's tree as
//     its one part. Parts with a file name, parts that are no text, and long text have an attachmentId.
//   - Header values are unfolded but not decoded, bodies keep their character set, and nothing is normalized: format=raw
//     is what went in, to the byte.
//   - A user over the limit gets 403 rateLimitExceeded, a project 429, too many calls at a time 429; none of them says
//     when to come back. Injected faults can.
//   - settings.* and resumable uploads do not exist.
package gmailsim
