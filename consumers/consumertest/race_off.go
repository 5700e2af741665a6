//go:build !race

package consumertest

// interleavings is how many random courses each store is put through.
const interleavings = 1000
