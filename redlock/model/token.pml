/* token.pml: exclusion and the token of one lock on three independent masters.
 *
 * There is no clock. A grant may end at any moment; a message is executed at any later moment, after its grant
 * has ended or its client has given up too, or never. A crashed client is one that takes no further step.
 * README.md says why that covers the queue, the hand-off and the yield of a grant, and what is left out.
 *
 * -DHOLDS=k            acquisitions: 2 (default) or 3
 * -DREADERS            each is a read or a write; without it all are writes
 * -DKINDS=k            with READERS: bit h of k says that hold h, in the order of starting, is a read
 * -DGUARD              with READERS and ANY_TIME: holders, and those who were, come to a storage that checks tokens
 * -DDUPS=k             k acquires are executed a second time (raises: any number of times, always)
 * -DSTART=k            counters start at any of 0..k, with the largest token reported that such a past allows
 * -DPROPOSALS=k        each acquisition proposes any of 0..k; a master's cap may make it ignore the proposal
 * -DLOSSES=k           k times a master loses its data: all of it, or with -DROLLBACK (k = 1) it comes back with a
 *                      snapshot; it then abstains, and its values go on from what its clock has passed (floor.pml)
 * -DUNNOTICED          with ROLLBACK: it comes back with its marker, and has no vote; it abstains from when that is noticed
 * -DFORK               C has a promoted copy, D, and some clients have D in the place of C
 * -DRENEW              with ROLLBACK: a renewal counts where the snapshot has the hold with its token
 * -DREGAIN             a hold that is valid is acquired again where it is gone (-DREPEATED: more than once)
 * -DREGAINS=k          ... k times at most
 * -DREGAIN_LOWERS      ... and the counter goes back to that token, where the grant that it names stands there
 * -DRELEASE_LOWERS     the release of a valid hold sets the counter back in the same way
 * -DCLOCK=k            the masters' clock allows values up to 1..k, and passes them one by one; a counter is set back
 *                      only from beyond that, and no further than to that (without CLOCK from anywhere, to the token)
 * -DJUMPS=k            with CLOCK: k times a master's clock is far ahead for a moment, and its counter stays there
 * -DYIELDS=k           with REGAIN: k times a contender offers a grant to others, and the offer comes at any time
 * -DBLOCK=k            a write is granted k values at once, a block, and all of them are its tokens
 * -DSHRINK             ... or fewer, as a master likes: one that is whole would run ahead of its clock
 * -DUPGRADE            with KINDS=1: while the read, hold 0, is valid, hold 1 asks to write in its place; with KINDS=2
 *                      a read in the place of a write; hold 2 is another write
 * -DADOPT=k            hold 0 is detached, and holds 1 to k adopt it; another hold is a write beside them
 * -DDETACHED_FIRST     with ADOPT: hold 0 has been detached before the first step
 * -DSILENT             the third master receives no request to acquire or to release
 * -DFORGED             with ADOPT: an adopter may begin before hold 0 is detached: it has the token, and not the secret
 *                      of the mark; without FORGED each master has the mark, and each adopter the secret
 * -DBREAK              with ADOPT: an operator breaks hold 0
 * -DANY_TIME           a token may be reported without asking whether the hold is still valid
 * -DEXPIRED_STAYS      with ROLLBACK: what had run out before the loss has run out after it
 * -DLEAN               no late answers, raises executed at most once, releases as expiries (for the large cases)
 * -DGOAL               refuted by a run in which both of two acquisitions report
 * Shortcuts, each of which is refuted unless README.md says otherwise:
 * -DNO_RAISE           report the largest answer, at once
 * -DRAISE_UNHELD       raise a master where the hold is gone
 * -DRAISE_COUNTED      raise a write where the counter has reached the token
 * -DREAD_EQUAL         a read's value may equal that of the last write
 * -DCOUNT_ABOVE        count a master whose value is above the token
 * -DCHECK_FIRST        ask for validity before the raise
 * -DDECIDE_TWICE       form the token anew from later answers, and keep what was counted for the first one
 * -DNO_FLOOR           after a loss the counter goes on from what is left of it
 * -DFLOOR_IF_ABSENT    ... is set to the clock only where no counter is left
 * -DNO_ABSTENTION      a master votes again at once after a loss
 * -DONE_REGISTER       the storage keeps one register for reads and writes
 * -DRENEW_LAPSED       a renewal counts whether or not the client's trust in that grant has run out before
 * -DSETTLE_UNNOTICED   with UNNOTICED: a release lets a waiter in before the restart is noticed (HOLDS=2)
 * -DFORK_VOTES         with FORK: D votes
 * -DHEAR_ABSTAINING    a master that abstains tells a client that waits of the grant that came with the snapshot
 * -DSAME_ID            a master does not tell a regain of this quarantine from one of the last (LOSSES=2)
 * -DREGAIN_ABSTAINING  regain on a master that abstains, whether or not the client trusts in its own grant there
 * -DREGAIN_BUSY        regain where another hold stands
 * -DREGAIN_OFFERED     with YIELDS: regain though this very value was offered there
 * -DLOWERS_UNNAMED     with REGAIN_LOWERS or RELEASE_LOWERS: ... whatever grant of the hold stands
 * -DLOWERS_GONE        with REGAIN_LOWERS: ... also where none stands
 * -DLOWERS_TO_TOKEN    with CLOCK: ... to the token, however far that is behind the clock
 * -DREGAIN_UNCONFIRMED regain for a hold that is not valid any more
 * -DBLOCK_UNMINTED     a master counts the first value of a block only
 * -DBLOCK_ASSUMED      with SHRINK: the client takes every block to be whole
 * -DUPGRADE_UNHELD     with UPGRADE: the write is reported though the read is not valid any more
 * -DADOPT_UNTAKEN      an adopter does not wait for the release of hold 0
 * -DADOPT_HAD_ANY      an adopter counts masters that did not have hold 0 when they were to release it
 * -DADOPT_RIVALS       a master does not know who adopts
 * -DADOPT_UNMARKED     with FORGED: a master does not look for the mark
 * -DADOPT_ANY_MARK     ... does not compare the secret with the mark
 * -DADOPT_SAME_TOKEN   the token of a reader that adopts need not be larger than that of hold 0
 * -DADOPT_NO_TOMBSTONE the release of hold 0 leaves no tombstone
 * -DADOPT_BREAK_UNTOLD the answer to that release does not tell that hold 0 was broken
 * -DNO_TOMBSTONE       a release leaves no tombstone while a regain may be on its way
 */
#include "token_state.pml"
#include "token_block.pml"
#include "token_loss.pml"
#include "token_lower.pml"
#include "token_master.pml"
#include "token_client.pml"
#include "token_adopt.pml"
#include "token_regain.pml"
#include "token_guard.pml"

proctype Hold(byte h) {
  bit  acquire[MASTERS];  /* on its way, or waiting in the queue */
  bit  raise[MASTERS];    /* on its way */
  byte answer[MASTERS];   /* what the master granted, if the client gets to hear it in time */
#if BLOCK > 1
  byte first[MASTERS];    /* of the block whose last value the answer is */
#endif
  byte token;             /* of a block the last */
  byte before;            /* the largest token reported before the attempt began; for a read, by writers */
#ifdef PROPOSALS
  byte proposal;
#endif
#ifdef YIELDS
  byte offered[MASTERS];  /* the largest value that the client has offered */
  bit  yield[MASTERS];    /* the offer, on its way */
#endif
#ifdef ADOPT
  bit  release[MASTERS];  /* on its way, of the hold that this one adopts */
  bit  had[MASTERS];      /* the answer that it stood there until then */
#endif
end: do
  :: start(h)
  :: executeAcquire(h,0) :: executeAcquire(h,1) :: executeAcquire(h,2)
  :: decide(h)
  :: executeRaise(h,0) :: executeRaise(h,1) :: executeRaise(h,2)
  :: report(h)
#ifndef LEAN
  :: late(h,0) :: late(h,1) :: late(h,2)
#endif
#if !defined(LEAN) || defined(NO_TOMBSTONE)
  :: finish(h)
#endif
  :: remove(h,0) :: remove(h,1) :: remove(h,2)
#if LOSSES > 0 && defined(ROLLBACK) && defined(RENEW)
  :: renew(h,0) :: renew(h,1) :: renew(h,2)
#endif
#ifdef SETTLE_UNNOTICED
  :: settle(h,0) :: settle(h,1) :: settle(h,2)
#endif
#if LOSSES > 0 && defined(ROLLBACK) && defined(HEAR_ABSTAINING)
  :: hear(h,0) :: hear(h,1) :: hear(h,2)
#endif
#ifdef REGAIN
  :: askAgain(h,0) :: askAgain(h,1) :: askAgain(h,2)
  :: executeRegain(h,0) :: executeRegain(h,1) :: executeRegain(h,2)
#ifdef YIELDS
  :: offer(h,0) :: offer(h,1) :: offer(h,2)
  :: executeYield(h,0) :: executeYield(h,1) :: executeYield(h,2)
#endif
#ifdef REGAIN_UNCONFIRMED
  :: resume(h)
#endif
#ifdef NO_TOMBSTONE
  :: executeRelease(h,0) :: executeRelease(h,1) :: executeRelease(h,2)
#endif
#endif
#ifdef RELEASE_LOWERS
  :: leaveNamed(h)
  :: executeNamed(h,0) :: executeNamed(h,1) :: executeNamed(h,2)
#endif
#ifdef GUARD
  :: operate(h)
#endif
#ifdef ADOPT
  :: detach(h) :: take(h)
#ifdef FORGED
  :: executeMark(h,0) :: executeMark(h,1) :: executeMark(h,2)
#endif
#ifdef BREAK
  :: executeBreak(h,0) :: executeBreak(h,1) :: executeBreak(h,2)
#endif
  :: executeTake(h,0) :: executeTake(h,1) :: executeTake(h,2)
#endif
  od
}

#if LOSSES > 0
proctype Faults() {
end: do
  :: lose(0) :: lose(1) :: lose(2)
  :: back(0) :: back(1) :: back(2)
#ifdef ROLLBACK
  :: snapshot(0) :: snapshot(1) :: snapshot(2)
#endif
#ifdef UNNOTICED
  :: notice(0) :: notice(1) :: notice(2)
#endif
#if defined(REGAIN) || defined(RENEW)
  :: wane(0,0) :: wane(0,1) :: wane(0,2)
  :: wane(1,0) :: wane(1,1) :: wane(1,2)
#if HOLDS > 2
  :: wane(2,0) :: wane(2,1) :: wane(2,2)
#endif
#endif
  od
}
#endif

#ifdef CLOCK
proctype Clocks() {
end: do
  :: tick()
  :: jump(0) :: jump(1) :: jump(2)
  od
}
#endif

init {
  atomic {
#if START > 0
    do :: counter[0] < START -> counter[0]++ :: break od;
    counter[1] = counter[0]; do :: counter[1] < START -> counter[1]++ :: break od;
    counter[2] = counter[1]; do :: counter[2] < START -> counter[2]++ :: break od;
    newest = counter[1]; newestWrite = newest;  /* a reported token is covered by the counters of a quorum */
#ifdef READERS
    do :: writeCounter[0] < counter[0] -> writeCounter[0]++ :: break od;
    do :: writeCounter[1] < counter[1] -> writeCounter[1]++ :: break od;
    do :: writeCounter[2] < counter[2] -> writeCounter[2]++ :: break od;
    newestWrite = MIDDLE(writeCounter[0], writeCounter[1], writeCounter[2]);
#endif
    printf("counters %d %d %d; largest token reported so far: %d\n", counter[0], counter[1], counter[2], newest);
#endif
#ifdef DETACHED_FIRST
    detachedFirst();
#endif
    run Hold(0); run Hold(1);
#if HOLDS > 2
    run Hold(2);
#endif
#if HOLDS > 3
    run Hold(3);
#endif
#if LOSSES > 0
    run Faults();
#endif
#ifdef CLOCK
    run Clocks();
#endif
  }
}
