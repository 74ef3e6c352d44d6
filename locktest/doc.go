// Package locktest lets programs test their use of locks without a Redis: under contention, under the loss of a lock,
// and after a pause that was longer than the TTL.
//
//	func TestPayOnce(t *testing.T) {
//		locks := locktest.New(t)
//		service := NewService(locks.Locker, store)
//		...
//		locks.Lose("order:7") // while the service works under that lock
//		...
//	}
//
// The locks are those of package rwlock, over a server inside the test's process, so they do what they do in
// production: they wait, are renewed, are lost, and have tokens. Nothing is left when the test ends.
//
// It works in real time and inside a bubble of testing/synctest. There New belongs inside the bubble, and leases expire
// and are renewed in the bubble's time.
//
// The server interprets the scripts, so its times say nothing about those of a Redis. It has no replicas:
// rwlock.WithReplicas finds none.
package locktest
