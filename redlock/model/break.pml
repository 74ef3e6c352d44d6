/* break.pml: an operator breaks a hold on three masters, beside its process and a waiter.
 *
 * Time goes in ticks, at the same rate everywhere. A hold expires TTL ticks after it was granted or renewed, and its
 * process trusts a grant for TTL ticks from its request. A message is executed at any later moment, or never, and
 * its answer may be lost. Tokens are not modelled: see token.pml.
 *
 * -DTTL=k           ticks: 2 (default)
 * -DTIME=k          ticks in a run
 * -DMUTE            the process does not reach the third master
 * -DWAITER          another client waits for the lock
 * -DNOW             BreakNow: the hold ends where it is broken
 * -DGOAL            refuted by a run in which Break returns
 * Shortcuts, each of which is refuted:
 * -DFREES           a master frees the lock where it is broken, though its process may trust in it
 * -DRENEWABLE       a broken hold can be renewed
 * -DMARK_EXPIRES    the mark of a broken hold goes when the hold expires
 * -DGONE_UNMARKED   a master that does not have the hold leaves no mark
 * -DMINORITY        Break returns when one master does not have the hold
 */
#ifndef TTL
#define TTL 2
#endif
#ifndef TIME
#define TIME 5
#endif
#define QUORUM  2
#define NAME(n) ('A'+(n))

/* ---- the masters ---- */
byte left[3];           /* ticks until the hold expires; 0: it does not stand */
bit  broken[3];         /* it cannot be renewed */
bit  mark[3];           /* a late request is refused, and told that the hold is broken */
bit  waiter[3];         /* the waiter is granted the lock */
byte time = TIME;

/* ---- the process of the hold ---- */
#define NONE   0
#define RENEW  1
#define REGAIN 2
byte trust[3];          /* ticks */
byte request[3];        /* on its way */
byte useful[3];         /* ticks in which an answer to it gives trust */
bit  over;              /* the process has given the hold up */

/* ---- the operator ---- */
#define SILENT 0
#define STANDS 1
#define GONE   2
bit  asked[3];          /* on its way */
byte answer[3];
bit  found;             /* a master had the hold */
bit  breaking;
bit  returned;
byte since;             /* ticks since a quorum has carried Break out; 0: it has not */

#define VALID (!over && (trust[0] > 0) + (trust[1] > 0) + (trust[2] > 0) >= QUORUM)
#define HEARD (answer[0] != SILENT) + (answer[1] != SILENT) + (answer[2] != SILENT)
#define FREE  (answer[0] == GONE) + (answer[1] == GONE) + (answer[2] == GONE)
#define MUST(ok, what) \
  if :: (ok) -> skip :: else -> printf("violates %e\n", what); assert(ok) fi
mtype = { exclusion, ended, renewed, goal, renewal, regain }

/* A regain is for a master that does not have the hold; elsewhere it changes nothing. */
inline send(n) {
  d_step { VALID && request[n] == NONE ->
    request[n] = (trust[n] > 0 -> RENEW : REGAIN); useful[n] = TTL;
    printf("the process sends a %e to %c\n", (request[n] == RENEW -> renewal : regain), NAME(n))
  }
}
#ifdef RENEWABLE
#define KEPT(n) true
#else
#define KEPT(n) (!broken[n])
#endif
inline execute(n) {
  atomic { request[n] != NONE ->
    if :: skip :: useful[n] = 0 fi;  /* the answer is lost */
    d_step {
      if
      :: request[n] == RENEW && left[n] > 0 && KEPT(n) ->
         left[n] = TTL; trust[n] = useful[n];
         printf("  %c renews it\n", NAME(n))
      :: request[n] == REGAIN && left[n] == 0 && !mark[n] && !waiter[n] ->
         left[n] = TTL; trust[n] = useful[n];
         printf("  %c grants it again\n", NAME(n))
      :: else ->
         if
         :: (broken[n] || mark[n]) && useful[n] > 0 -> giveUp()
         :: else -> skip
         fi
      fi;
      request[n] = NONE; useful[n] = 0
    }
  }
}
inline giveUp() {
  printf("the process hears that the hold is broken\n");
  over = 1; trust[0] = 0; trust[1] = 0; trust[2] = 0
}
inline giveBack(n) {
  d_step { over && left[n] > 0 -> left[n] = 0; broken[n] = 0; printf("  %c has it back\n", NAME(n)) }
}
/* The hold is lost on one master. */
inline lose(n) {
  d_step { n == 0 && left[n] > 0 && !broken[n] && !breaking && !returned && time == TIME ->
    left[n] = 0;
    printf("  %c loses the hold\n", NAME(n))
  }
}
inline enter(n) {
  d_step { left[n] == 0 && !waiter[n] ->
    waiter[n] = 1;
    printf("  %c grants the lock to the waiter\n", NAME(n));
    MUST(!VALID || waiter[0] + waiter[1] + waiter[2] < QUORUM, exclusion)
  }
}

inline ask() {
  d_step { !breaking && !returned ->
    breaking = 1; asked[0] = 1; asked[1] = 1; asked[2] = 1;
    answer[0] = SILENT; answer[1] = SILENT; answer[2] = SILENT;
    printf("the operator asks\n")
  }
}
inline executeBreak(n) {
  atomic { asked[n] ->
    asked[n] = 0;
    d_step {
      if
      :: left[n] > 0 ->
         broken[n] = 1; mark[n] = 1; found = 1; answer[n] = STANDS;
         printf("  %c breaks it\n", NAME(n));
#if defined(NOW) || defined(FREES)
         left[n] = 0; broken[n] = 0; answer[n] = GONE
#endif
      :: else ->
         printf("  %c does not have it\n", NAME(n));
#ifndef GONE_UNMARKED
         mark[n] = 1;
#endif
         answer[n] = GONE
      fi
    }
  }
}
#ifdef MINORITY
#define ENOUGH 1
#else
#define ENOUGH QUORUM
#endif
inline conclude() {
  d_step { breaking && HEARD >= QUORUM ->
    breaking = 0; asked[0] = 0; asked[1] = 0; asked[2] = 0;
    if :: since == 0 -> since = 1 :: else -> skip fi;
    if
    :: FREE >= ENOUGH ->
       returned = 1; printf("Break returns\n");
#ifndef NOW
       MUST(!VALID, ended);
#endif
#ifdef GOAL
       MUST(!found, goal);
#endif
    :: else -> skip
    fi
  }
}

inline pass(n) {
  if
  :: left[n] == 1 -> left[n] = 0; broken[n] = 0;
#ifdef MARK_EXPIRES
     mark[n] = 0;
#endif
     printf("  it expires on %c\n", NAME(n))
  :: left[n] > 1 -> left[n]--
  :: else -> skip
  fi;
  if :: trust[n] > 0 -> trust[n]-- :: else -> skip fi;
  if :: useful[n] > 0 -> useful[n]-- :: else -> skip fi
}
inline tick() {
  d_step { time > 0 ->
    time--; printf("a tick\n");
    pass(0); pass(1); pass(2);
    if :: since > 0 -> since++ :: else -> skip fi;
#ifndef NOW
    MUST(since <= TTL || !VALID, renewed)
#endif
  }
}

active proctype World() {
  d_step {
    left[0] = TTL; left[1] = TTL; left[2] = TTL;
    trust[0] = TTL; trust[1] = TTL; trust[2] = TTL
  }
end: do
  :: tick()
  :: send(0) :: send(1)
#ifndef MUTE
  :: send(2)
#endif
  :: execute(0) :: execute(1) :: execute(2)
  :: giveBack(0) :: giveBack(1) :: giveBack(2)
  :: lose(0)
#ifdef WAITER
  :: enter(0) :: enter(1) :: enter(2)
#endif
  :: ask() :: executeBreak(0) :: executeBreak(1) :: executeBreak(2) :: conclude()
  od
}
