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
// minute above it, however it cuts its minutes (for the project's limit see also [Config]). Everything given to C is
// taken from R: a burst of 100 of 6,000 leaves 98 % for sustained use. [Explain] has this arithmetic for any limit.
//
// # Bursts measured
//
//	limit  burst  refill      use  fixed minutes  sliding minute    bucket
//	 6000    100    5880   98.0 %              0               0         0
//	 6000    150    5830   97.2 %              0               0         0
//	 6000    240    5740   95.7 %              0               0         0
//	 6000    400    5581   93.0 %              0               0         0
//	 6000    600    5382   89.7 %              0               0    0.51 %
//	 6000   1500    4485   74.7 %              0               0   14.30 %
//	 6000   3000    2990   49.8 %              0               0   32.76 %
//	 6000   6000    6000  100.0 %        17.42 %         34.40 %   39.26 %
//	 6000 window       -   98.7 %              0               0   88.91 %
//	15000    100   14850   99.0 %              0               0         0
//	15000    250   14700   98.0 %              0               0         0
//	15000    600   14352   95.7 %              0               0         0
//	15000   1500   13455   89.7 %              0               0    0.59 %
//	15000   3000   11960   79.7 %              0               0    9.43 %
//	15000  15000   15000  100.0 %        18.02 %         33.88 %   40.68 %
//	15000 window       -   99.0 %              0               0   89.58 %
//
// Made by a simulation on virtual time, package quotaplan: what is used of the limit by a demand without end, and which
// part of the calls is refused by a provider that counts in fixed minutes, in a sliding one, or by a bucket of its own
// that holds a tenth of the limit and is refilled each second, while the demand comes and goes. Two demands, prices 40
// and 10 and prices from 1 to 100; of both the worse figure. The last rows of each limit are a bucket of the whole limit
// that refills with the whole limit, and a window as below. The default is 100, the dearest price: nothing less could be,
// and nothing more is gained by a larger one but a faster start.
//
// # Why no sliding window
//
// A ledger of the last 60 seconds, exact in slots of half a second, allows the whole limit at once after a rest and uses
// 98.7 % of 6,000 without end ([github.com/gmailsync/gmailsync/gmailquota/quotaplan.Window]). It was made as a second
// algorithm of the core and the script, and is not built in. For a user with calls in each half second of the minute Redis
// took 2.6 to 2.8 x the processor time of one limit of redis_rate (the bucket 2.2 to 2.6 x in the same six runs, on two
// busy cores; the bar is 2.5) and some 400 bytes more. It is right only if Gmail counts minutes: the provider's bucket of
// the table refuses nine of ten calls. And once an import has used up the minute, a push waits for up to a minute instead
// of one call's refill.
//
// The package must not know any other package of this project, and it never logs: see [Observer] and [Guard.Stats].
package gmailquota
