/* queue.pml: waiting, hand-off and the yield of a grant to an older hold, on three independent masters.
 *
 * Holds are numbered by age: 0 is the oldest. A master grants a free lock to the oldest that waits there, in the
 * step that frees it. A client that has fewer grants than a quorum gives back what an older hold waits for, and
 * stays queued. The token is token.pml's matter; here a value names a grant, and is larger than all before it.
 *
 * (default)          safety: a grant or a place in the queue may end at any moment; messages are late, lost or
 *                    repeated; a client without a quorum may yield any grant at any time
 * -DCALM             progress: nothing is lost, repeated or expires, and each holder's work ends. Then every run
 *                    ends, with all served and all masters free
 * -DHOLDS=k          contenders: 2 (default) or 3
 * -DGRANTS=k         each master grants at most k times (3; without a bound in CALM)
 * -DYIELD_ONCE       a yield is executed once at most, however late
 * -DYIELD_KEPT       where no older hold waits, a yield leaves the grant, and the client counts it again; it does so
 *                    with YIELD_ONCE only: repeated, the yield takes the grant when an older hold has come
 * -DLEAVES           a client without a quorum may also give a grant back without a place in the queue, and asks again
 * -DCUT_OFF          with CALM: C is down, and hold 0 reaches A only, so that it gets no quorum
 * -DPASSED           any message of a hand-off may reach nobody: the waiter is passed over and goes aside, until it
 *                    refreshes; then it is back in its place, and granted whether or not anybody listens
 * -DMISSES=k         ... at most k messages do; without it, any number
 * Shortcuts, each of which is refuted:
 * -DNO_YIELD         a contender keeps what it has (CALM)
 * -DCUT_OFF          ... without LEAVES: hold 0 keeps what it has (CALM)
 * -DOVERTAKE         a release may overtake the acquire of its hold, and leaves no tombstone (CALM)
 * -DYIELD_COUNTED    the client goes on counting what it yields
 * -DYIELD_UNNAMED    a yield takes whatever grant the hold has when the yield is executed
 * -DOLD_ANSWERS      an answer counts whether or not the grant in it has been yielded
 * -DPASSED_FORGOTTEN a refresh leaves the waiter aside (CALM, PASSED)
 * -DPASSED_AGAIN     ... brings it back, to be passed over again (CALM, PASSED)
 * -DPASSED_UNSETTLED ... brings it back, but nobody is admitted by that script (CALM, PASSED)
 * -DYIELD_TO_ASIDE   a contender yields to an older hold that has been passed over, too (CALM, PASSED)
 */
#include "queue_state.pml"
#include "queue_handoff.pml"

inline start(h) {
  d_step { phase[h] == IDLE ->
    phase[h] = WAITING;
#ifdef CALM
    asked[AT(h,0)] = 1; asked[AT(h,1)] = REACHES(h,1); asked[AT(h,2)] = REACHES(h,2);
#endif
    printf("hold %d asks\n", h)
  }
}

/* When not CALM it is repeated at will: by the network, and because waiters refresh. */
#ifdef CALM
#define ASKED(h,n) asked[AT(h,n)]
#else
#define ASKED(h,n) ((phase[h] == WAITING || phase[h] == HELD) && !value[AT(h,n)] && !waits[AT(h,n)])
#endif
inline executeAcquire(h, n) {
  STEP(ASKED(h,n) && FIRST(n))
#ifdef CALM
    asked[AT(h,n)] = 0;
#endif
    touched[n] = 1; waits[AT(h,n)] = 1;
    if :: !FREE(n) -> printf("  %c queues hold %d\n", NAME(n), h) :: else -> skip fi;
#ifdef PASSED
    aside[AT(h,n)] = 0; missed = missed & ~(1<<h);  /* it has its grant from the answer, not from a message */
#endif
    handOff(n)
  ENDSTEP
}

/* The answer, the message of a hand-off, or the answer to a refresh. One that comes after its grant has run out is
   worth nothing to the client; one that comes after the yield of its grant must be told from a new grant. */
inline hear(h, n) {
  d_step { phase[h] == WAITING && value[AT(h,n)] > yielded[AT(h,n)] && heard[AT(h,n)] != value[AT(h,n)] ->
    heard[AT(h,n)] = value[AT(h,n)];
    printf("hold %d hears of grant %d from %c\n", h, heard[AT(h,n)], NAME(n))
  }
}
#ifdef OLD_ANSWERS
inline hearAgain(h, n) {
  d_step { phase[h] == WAITING && yielded[AT(h,n)] != 0 && heard[AT(h,n)] == 0 ->
    heard[AT(h,n)] = yielded[AT(h,n)];
    printf("hold %d hears of grant %d from %c, late\n", h, heard[AT(h,n)], NAME(n))
  }
}
#endif

#ifdef CALM
#ifdef NO_YIELD
#define MUSTYIELD(h,n) false
#elif defined(LEAVES)
#define MUSTYIELD(h,n) (CUTOFF(h) || OLDER(h,n))
#else
#define MUSTYIELD(h,n) OLDER(h,n)
#endif
#else
#define MUSTYIELD(h,n) true
#endif
inline yield(h, n) {
  d_step { phase[h] == WAITING && heard[AT(h,n)] > yielded[AT(h,n)] && !VALID(h) && MUSTYIELD(h,n) ->
    yielded[AT(h,n)] = heard[AT(h,n)]; yieldSent[AT(h,n)] = heard[AT(h,n)];
#ifndef YIELD_COUNTED
    heard[AT(h,n)] = 0;
#endif
    printf("hold %d yields grant %d of %c\n", h, yielded[AT(h,n)], NAME(n))
  }
}

#ifdef YIELD_UNNAMED
#define YIELDS(h,n) (ROOM(n) && value[AT(h,n)] != 0 && yieldSent[AT(h,n)] != 0)
#else
#define YIELDS(h,n) (ROOM(n) && value[AT(h,n)] != 0 && yieldSent[AT(h,n)] == value[AT(h,n)])
#endif
#ifdef YIELD_KEPT
#define KEPT(h,n)   (!OLDER(h,n))
#else
#define KEPT(h,n)   false
#endif
#if defined(LEAVES) && defined(CALM)
inline goBack(h, n) { waits[AT(h,n)] = !CUTOFF(h) }
#elif defined(LEAVES)
inline goBack(h, n) { if :: waits[AT(h,n)] = 1 :: skip fi }
#else
#define goBack(h,n) waits[AT(h,n)] = 1
#endif
inline executeYield(h, n) {
  STEP(YIELDS(h,n))
#if defined(CALM) || defined(YIELD_ONCE)
    yieldSent[AT(h,n)] = 0;
#endif
    if
    :: KEPT(h,n) ->
       printf("  %c leaves grant %d with hold %d\n", NAME(n), value[AT(h,n)], h);
       yielded[AT(h,n)] = 0
    :: else ->
       printf("  %c takes grant %d back from hold %d\n", NAME(n), value[AT(h,n)], h);
       value[AT(h,n)] = 0;
       goBack(h,n);
       forget(h,n);
       handOff(n)
    fi;
#ifdef PASSED
    missed = 0
#endif
  ENDSTEP
}

inline hold(h) {
  d_step { phase[h] == WAITING && VALID(h) ->
    phase[h] = HELD;
    printf("hold %d is held\n", h);
    if :: ALONE -> skip :: else -> printf("violates exclusion\n"); assert(ALONE) fi
  }
}

/* A yield whose grant is gone does nothing any more, unless it is unnamed or its grant is heard of again. */
inline forget(h, n) {
#if !defined(YIELD_UNNAMED) && !defined(OLD_ANSWERS)
  yielded[AT(h,n)] = 0; yieldSent[AT(h,n)] = 0
#else
  skip
#endif
}

inline clear(h, n) {
  heard[AT(h,n)] = 0; yielded[AT(h,n)] = 0;
#ifdef CALM
  leaving[AT(h,n)] = 1
#else
  yieldSent[AT(h,n)] = 0
#endif
}
inline leave(h) {
  phase[h] = OVER;
  clear(h,0); clear(h,1); clear(h,2)
}

#ifdef CALM
inline finish(h) {
  d_step { phase[h] == HELD -> printf("hold %d releases\n", h); leave(h) }
}
/* The release comes after the hold's acquire and yield: one ordered connection, or else a tombstone. */
#ifdef OVERTAKE
#define INORDER(h,n) 1
#else
#define INORDER(h,n) (!asked[AT(h,n)] && !yieldSent[AT(h,n)])
#endif
inline executeRelease(h, n) {
  STEP(leaving[AT(h,n)] && INORDER(h,n) && FIRST(n))
    leaving[AT(h,n)] = 0; touched[n] = 1;
    printf("  %c releases hold %d\n", NAME(n), h);
    value[AT(h,n)] = 0; waits[AT(h,n)] = 0; yieldSent[AT(h,n)] = 0;
    leaveAside(h,n);
    handOff(n)
  ENDSTEP
}
#define GONE(h,n) (!asked[AT(h,n)] && !waits[AT(h,n)] && !ASIDE(h,n) && !value[AT(h,n)] && !leaving[AT(h,n)])
proctype Hold(byte h) {
  do
  :: start(h)
  :: executeAcquire(h,0) :: executeAcquire(h,1) :: executeAcquire(h,2)
#ifdef PASSED
  :: refresh(h,0) :: refresh(h,1) :: refresh(h,2)
#endif
  :: hear(h,0) :: hear(h,1) :: hear(h,2)
  :: yield(h,0) :: yield(h,1) :: yield(h,2)
  :: executeYield(h,0) :: executeYield(h,1) :: executeYield(h,2)
  :: hold(h)
  :: finish(h)
  :: executeRelease(h,0) :: executeRelease(h,1) :: executeRelease(h,2)
  :: phase[h] == OVER && GONE(h,0) && GONE(h,1) && GONE(h,2) -> break
#ifdef CUT_OFF
  :: CUTOFF(h) && phase[1] == OVER && GONE(1,0) && GONE(1,1) -> break
#endif
  od
}

#else
inline finish(h) {
  d_step { phase[h] == WAITING || phase[h] == HELD -> printf("hold %d gives up or releases\n", h); leave(h) }
}
/* A grant or a place in the queue runs out, or the release of a hold that is over is executed. */
inline remove(h, n) {
  STEP(value[AT(h,n)] != 0 || waits[AT(h,n)] || ASIDE(h,n))
    printf("  %c drops hold %d\n", NAME(n), h);
    if :: value[AT(h,n)] != 0 && heard[AT(h,n)] == value[AT(h,n)] -> heard[AT(h,n)] = 0 :: else -> skip fi;
    if :: value[AT(h,n)] != 0 -> forget(h,n) :: else -> skip fi;
    value[AT(h,n)] = 0; waits[AT(h,n)] = 0; leaveAside(h,n);
    if :: phase[h] == HELD && !VALID(h) -> leave(h) :: else -> skip fi;
    handOff(n)
  ENDSTEP
}
proctype Hold(byte h) {
end: do
  :: start(h)
  :: executeAcquire(h,0) :: executeAcquire(h,1) :: executeAcquire(h,2)
#ifdef PASSED
  :: refresh(h,0) :: refresh(h,1) :: refresh(h,2)
#endif
  :: hear(h,0) :: hear(h,1) :: hear(h,2)
#ifdef OLD_ANSWERS
  :: hearAgain(h,0) :: hearAgain(h,1) :: hearAgain(h,2)
#endif
  :: yield(h,0) :: yield(h,1) :: yield(h,2)
  :: executeYield(h,0) :: executeYield(h,1) :: executeYield(h,2)
  :: hold(h)
  :: finish(h)
  :: remove(h,0) :: remove(h,1) :: remove(h,2)
  od
}
#endif

init {
  atomic {
    run Hold(0); run Hold(1);
#if HOLDS > 2
    run Hold(2);
#endif
  }
}
