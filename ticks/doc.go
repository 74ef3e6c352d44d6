// Package ticks runs a job once per tick, in one of many processes. A tick is claimed in Redis by the time at which it
// is due, which is the same in all processes:
//
//	t, err := ticks.New(client)
//	if err != nil {
//		return err
//	}
//	for due := range t.Every(ctx, time.Minute) {
//		if _, err := t.Do(ctx, "report", due, report); err != nil {
//			log.Print(err)
//		}
//	}
//
// [Ticks.Every] is for a program that has no scheduler. With one, call [Ticks.Do] in the job, in each process.
//
// # What is promised
//
// A tick runs at most once, while the server forgets nothing. That depends on no clock: processes may be apart by
// hours, be paused, and repeat a claim whose answer was lost. After a failover that has lost the claim the tick may run
// again.
//
// A tick is missed if the process that has claimed it is killed, or its work fails; if no process reaches the server
// in time; and if all that ask for it come after a later tick was claimed. With Every the last case needs a pause,
// because Every waits by the server's clock.
//
// The claim makes a fence of the tick: resource "ticks/" and the job's name, and the due time in microseconds as its
// token. The context of the work carries it. So a run that was paused can be refused by the storage once a later tick
// has written. Data in the same Redis, written by package redisguard under keys with the hash tag {job}, refuses it
// from the claim of the later tick on.
//
// # In Redis
//
// A job has two hashes without expiry, ticks:{job} and fencing:{job}:ticks/job. HGETALL ticks:{job} shows the newest
// tick that was claimed, and the host and process that claimed it. The server must not evict them: see [redisguard].
// When a job is gone, delete both.
//
// It works on one Redis, behind Sentinel and in a Cluster. Several masters that decide together cannot claim a tick:
// docs/integrations.md has the recipe by a lock for them.
//
// [redisguard]: https://pkg.go.dev/github.com/seed74116694/fencelock/fencing/redisguard
package ticks
