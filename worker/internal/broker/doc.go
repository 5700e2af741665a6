// Package broker carries jobs over Pub/Sub: Google's, an emulator's, or a server inside the process.
//
// It moves bytes. It must not know what a job means, which account it is for or when it should come back: a message
// stays leased until the receiver acknowledges it or gives it back, and delays are the receiver's business.
package broker
