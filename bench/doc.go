// Command bench is the library at work: several clients, each with connections and a locker of its own as processes
// have, read and write a few names at once, while one holder is stalled past its lease again and again and then
// writes late.
//
//	go run ./bench                          # three masters inside this process
//	go run ./bench -addr 127.0.0.1:6379     # a real server
//	go run ./bench -addr a:6379,b:6379,c:6379 -for 30s -svg timeline.svg
//
// A checker that knows nothing of the lock's inner life watches: no two leases that exclude each other may believe
// themselves held at one moment, a write's token exceeds all before it and a read's those of all writes, and the
// storage refuses every late write. The exit status is 1 if any of that was violated, if the servers did not last to
// the end, or if the result could not be written; and 2 if the run could not begin.
package main
