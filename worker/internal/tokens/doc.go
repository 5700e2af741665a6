// Package tokens gives access tokens: one source for all accounts, which keeps the tokens encrypted in the store and
// refreshes each account's once, however many calls and processes ask for it.
//
// It talks to the OAuth token endpoint and to the store's port. It must not know Gmail, nor decide what happens to an
// account whose grant is revoked: it only says so.
package tokens
