//go:build race

package gmailquota_test

// underRace says that the race detector makes everything ten times as slow; it looks for other things than figures.
const underRace = true
