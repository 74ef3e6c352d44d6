// Command chaos attacks locks on real servers and judges the observations of their users.
//
//	go run -C lab ./chaos -for 3m                  # three masters
//	go run -C lab ./chaos -masters 1 -valkey       # one valkey-server
//	go run -C lab ./chaos -seed 7 -faults cut,hold # some faults; -h names them
//	go run -C lab ./chaos -names 1 -forms mutex    # some forms, the same
//	go run -C lab ./chaos -out run.json.gz        # keep the history
//	go run -C lab ./chaos -check run.json.gz      # judge it again
//	go run -C lab ./chaos -deployment sentinel -masters 1
//	go run -C lab ./chaos -deployment cluster -replicas 1
//	go run -C lab ./chaos -deployment embedded     # each script call is compared with its model
//
// Over a failover, exclusion is promised only if grants need all replicas that may be promoted, so it is not judged
// there without -replicas, and the order of tokens is not judged over any failover of a single master. Nor is exclusion
// judged while the clock of a server is set. What a guard accepts is always judged.
//
// Worker processes take locks in every form: leases, several locks at once, RWMutexes with and without linger,
// conversions, leases that are detached and adopted, holds that an operator breaks, nested sections of one owner in two
// processes, lockers that are closed while they are used. A goroutine of each process takes locks that no other process
// uses, so that it can foresee the results of its calls. Every second worker has clients of Dial, the others have
// plain ones. At the same time faults strike servers, links and workers, in an order drawn from a seed. Each worker
// records the times at which it trusted each of its locks, and reads and writes two registers under each lock, one with
// a guard. At the end every lock is taken once more, and the whole record is judged: exclusion, the order of the
// tokens, bounded waits, the order of arrival where no fault strikes, leases that were lost although their masters were
// in reach, quorums that were not found although they were in reach, losses that a release did not tell of, calls that
// did not return what their caller could foresee, tickets that were adopted twice, locks that were granted before a
// minimum was over, the linearizability of the guarded registers, and that nothing is left on the masters.
//
// An embedded server runs in the process of the arena and shows more than a real one: each script call is compared
// with the model of internal/test/scriptfuzz, and the holds of each master are known at every moment. So it is also
// judged whether a quorum had each hold for as long as its client trusted it, whether a hold stood without a client,
// and whether a lock was free while a call waited. A run ends at the first script call that differs.
//
// With -peers it compares lock libraries under the same faults, by registers under their locks:
//
//	go run -C lab ./chaos -peers all -for 3m # docs/comparison.md
//
// The exit status is 1 if a promise of docs/guarantees.md was broken, or if the run could not be made.
package main
