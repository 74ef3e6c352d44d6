// Package testredis gives tests a Redis to work against, and ways to break the link to it. It is test support: only
// tests, bench and lab import it.
//
// # Two servers
//
// [Mini] is an in-process server without a listener for a testing/synctest bubble. Its clock is the bubble's, so keys
// expire and TIME moves in fake time. [Server] is a real redis-server or valkey-server process on a free loopback port;
// [Skewed] is one whose clock can be set. A [Deployment] is a Redis as clients find it: a Server, [TLS], [Sentinel] or
// [Cluster], or the servers of an [Authority], each with a certificate of its own.
//
//	synctest.Test(t, func(t *testing.T) {
//		mini := testredis.NewMini(t)
//		link := mini.NewLink()     // one link per client, so that each can be broken alone
//		client := link.Client(t)   // closed by t.Cleanup; mini.Client(t) where the link is not needed
//		...
//		link.Blackhole(testredis.Both)
//	})
//
//	srv := testredis.Start(t)      // skips without the binary, fails if CI=true
//	cluster := testredis.StartCluster(t, testredis.Valkey(t), 1)
//	client, err := rwlock.Dial("", cluster.Option())
//
// # One set of faults
//
// A [Link] stands between clients and a server. [Proxy] is the same thing with a TCP listener in front, for real
// servers, so every fault exists in both worlds. In a deployment, where clients learn the addresses from the servers, a
// link of [NewLink] carries every connection of its clients.
//
// Faults that aim at single commands match the whole command, its name as the client wrote it: see [Named]. Those with
// Next in their name return a channel that is closed when they strike. The functions given to a link run on its
// goroutines, so they fail a test by t.Errorf, never by t.FailNow.
package testredis
