//go:build race

package consumertest

// interleavings is how many random courses each store is put through: fewer under the race detector, which makes SQLite
// ten times slower and looks for something else.
const interleavings = 100
