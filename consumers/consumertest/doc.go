// Package consumertest is for tests of the consumers and of what implements their ports: a suite that every
// consumers.Store must pass, a store in memory that passes it, and a scriptable mailbox in memory.
//
// It must not know SQL, HTTP or Gmail's client.
package consumertest
