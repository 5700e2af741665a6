// Package quotahttp guards the Gmail calls of an HTTP client: each request is priced by its verb and path and passes a
// gmailquota.Guard before it is sent.
//
//	client := &http.Client{Transport: &quotahttp.Transport{Guard: guard, Base: oauth}}
//	gmail.NewService(ctx, option.WithHTTPClient(client))
//
// A batch is charged the sum of its calls and counts as so many under way: with gmailquota's defaults at most 10 calls and
// 100 units, or it fails with a *gmailquota.PriceError.
//
// The order is retry → quota → oauth2 → network: every attempt is charged, and no token expires while its call waits.
// The package must not know Gmail's own client, and it never retries.
package quotahttp
