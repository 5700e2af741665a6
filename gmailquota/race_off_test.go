//go:build !race

package gmailquota_test

const underRace = false
