// Package gmailquota keeps the Gmail calls of any number of processes below Gmail's quota.
//
// Gmail charges each call a price in quota units and limits the units of a minute, for each user and for the whole
// Google project. A [Guard] keeps one token bucket for each user and one for the project in Redis, and decides for each
// call, in one atomic script: admitted now, admitted after a wait (already charged), or denied with the exact wait.
// Package quotahttp puts a Guard under any HTTP client of Gmail.
//
// # Why a small burst
//
// A bucket of capacity C that refills with R units a minute lets at most C + R x (1 + J/60 s) units through in any
// 60 seconds, J being the jitter between admission and arrival. The guard keeps that sum at the limit, so Gmail sees no
// minute above it, however it cuts its minutes (for the project's limit see also [Config]). Everything given to C is taken from R: a burst of 100 of 6,000 leaves
// 98 % for sustained use.
//
// The package must not know any other package of this project, and it never logs: see [Observer] and [Guard.Stats].
package gmailquota
