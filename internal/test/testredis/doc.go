// Package testredis gives tests a Redis to work against, and ways to break the link to it.
//
// It is test support: only tests and the bench command import it.
//
// # Two servers
//
// [Mini] is an in-process server without a listener for a testing/synctest bubble. Its clock is the
// bubble's, so keys expire and TIME moves in fake time:
//
//	synctest.Test(t, func(t *testing.T) {
//		mini := testredis.NewMini(t)
//		link := mini.NewLink()     // one link per client, so that each can be broken alone
//		client := link.Client(t)   // closed by t.Cleanup; mini.Client(t) where the link is not needed
//		...
//		link.Blackhole(testredis.Both)
//	})
//
//	mini.Calls("EVALSHA")          // commands that reached the server, over all links
//	mini.ResetCalls()
//	mini.FlushAll(); mini.FlushScripts()
//	mini.Crash(); mini.Recover()   // connections cut and refused in between; keys and scripts lost
//	mini.Stop(); mini.Recover()    // the same without loss
//	mini.Freeze(); mini.Thaw()     // like SIGSTOP and SIGCONT
//	mini.Skew(d)                   // the server's clock is d ahead of the bubble's (d < 0: behind)
//	mini.Snapshot(); mini.Rollback(s)
//	mini.StallCommits()            // a durable log stands still: replies to scripts wait, messages pass
//	mini.ResumeCommits()           // or mini.LoseCommits(), a failover to what was committed before
//	mini.NewProcess()              // INFO shows another run id, as after a restart
//	mini.Demote(); mini.Promote()  // a replica refuses writes
//	mini.Swap(other)               // each answers at the other's address
//	mini.OnScript(f)               // f runs each script call, and sees its reply and messages
//	mini.Miniredis()               // the *miniredis.Miniredis itself
//
// [Server] is a real redis-server or valkey-server process on a free loopback port:
//
//	srv := testredis.Start(t)                        // skips without the binary, fails if CI=true
//	for _, bin := range testredis.Binaries() { srv := testredis.StartBinary(t, bin, "--maxmemory", "3mb") }
//	srv.Addr(); srv.Port(); srv.Binary(); srv.Client(t); srv.Option()
//	srv.Kill(); srv.Restart(); srv.Freeze(); srv.Thaw()
//	reply, err := srv.Command("SET", "k", "v")       // string, int64, nil or []any
//	srv.ResetStats(); srv.Stats()["evalsha"].Calls; srv.Info("server")["run_id"]
//	replica.ReplicaOf(srv)
//	skewed := testredis.StartSkewed(t); skewed.Skew(-time.Hour); skewed.Stand(at)   // needs gcc, see Require
//
// A [Deployment] is a Redis as clients find it: a Server, or one of these, on the binary that is named:
//
//	binary := testredis.Valkey(t)                    // skips without it; or one of Binaries()
//	sentinel := testredis.StartSentinel(t, binary)   // a master, two replicas, three sentinels
//	cluster := testredis.StartCluster(t, binary, 1)  // three masters, each with one replica
//	tls := testredis.StartTLS(t, binary)             // speaks TLS at tls.TLSAddr()
//	ca := testredis.NewAuthority(t)                  // ca.Start, ca.StartSentinel, ca.StartCluster: a certificate each
//	client, err := rwlock.Dial("", sentinel.Option())
//	sentinel.Failover(); sentinel.KillMaster()       // both return the new master
//	sentinel.DownAfter(time.Second); sentinel.Master().Kill(); sentinel.AwaitMaster(old)
//	cluster.Failover(master); cluster.NodeTimeout(time.Second); cluster.AwaitTakeover(killed)
//	cluster.Owner(cluster.Slot(key)); cluster.ReplicaOf(master)
//	move := cluster.BeginMove(slot, to); move.Key(key); move.End()
//	cluster := cluster.For(t)                        // in a parallel subtest: what fails ends the subtest
//
// # One set of faults
//
// A [Link] stands between clients and a server. [Proxy] is the same thing with a TCP listener in
// front, for real servers, so every fault exists in both worlds:
//
//	proxy := testredis.NewProxy(t, srv.Addr())       // proxy.Addr(), proxy.Client(t), proxy.Option()
//	proxy.LeadTo(other.Addr())                       // new connections alone
//	addr := testredis.StartHAProxy(t, srv, other)    // leads to whichever of them is a master
//
// In a deployment, where clients learn the addresses from the servers, a link carries every connection of its clients:
//
//	link := testredis.NewLink(t, cluster.Option()); client, err := rwlock.Dial("", link.Option())
//
//	link.Cut()                        // closes all connections; new ones are accepted
//	link.Refuse()                     // new connections are refused
//	link.Blackhole(dir)               // ToServer, ToClient, Both: bytes vanish, connections stay open
//	link.Hold(dir)                    // bytes wait and arrive after Restore, as after retransmission
//	link.Restore()                    // ends Refuse, Blackhole and Hold; delays stay
//	link.Delay(d); link.DelayDir(dir, d); link.DelayFunc(dir, f)
//
// Faults that aim at single commands (those named Next return a channel that is closed when they strike):
//
//	link.DropNextReply(match)         // runs on the server, then the connection is cut instead of a reply
//	link.MuteNextReply(match)         // runs on the server, then that connection stays open and silent
//	link.DelayNextReply(match, d)     // runs on the server, the reply and what follows it come d later
//	link.DropNextCommand(match)       // the connection is cut before the command reaches the server
//	link.DropPushes(match)            // pub/sub messages that vanish, for as long as match is set
//	link.Duplicate(match, check)      // each matching command runs twice; check, if any, sees both replies
//	link.OnCommand(f)                 // f sees each command just before the server does
//	link.Calls(name); link.ResetCalls(); link.Conns()
//
// match gets the whole command, its name as the client wrote it: see [Named]. The functions given to a
// link run on its goroutines, so they fail a test by t.Errorf, never by t.FailNow.
package testredis
