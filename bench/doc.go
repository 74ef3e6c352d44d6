// Command bench runs the library under a mixed load. Several clients, each with connections and a locker of its own
// like a separate process, read and write a few names concurrently. One holder is repeatedly stalled past its lease and
// then writes late.
//
//	go run ./bench                          # three masters inside this process
//	go run ./bench -addr 127.0.0.1:6379     # a real server
//	go run ./bench -addr a:6379,b:6379,c:6379 -for 30s
//
// A judge without access to the lock's internals verifies the rules: no two leases that exclude each other are trusted
// at one moment, a write's token exceeds all before it and a read's token all writes before it, and the storage refuses
// every late write. The exit status is 1 if a rule was violated, if the servers did not last to the end, or if the
// result could not be written; and 2 if the run could not begin.
package main
