/* floor.pml: the floor of new tokens where masters lose data and clocks differ.
 *
 * Histories of acquisitions, one after the other, on three masters. Time goes on in seconds; a token is a time and a
 * small count beyond it, since a second holds more grants than any master can make. The clock of one master may be
 * constantly ahead. What a client proposes is anything from nothing (its clock is minutes behind) to far too much.
 * At any moment a master may come back with an old counter (1: the older, the worse) or with none; it abstains
 * from then on. A counter that nobody has touched for long is dropped.
 *
 * A master's floor is max(min(proposal, its clock + LIMIT), the end of its own last quarantine); without a counter it
 * is at least its clock. A raise above its clock + LIMIT is refused.
 *
 * -DAHEAD=k            master A's clock is k seconds ahead (0)
 * -DQUARANTINE=k       how long a master abstains (3)
 * -DTIME=k             seconds that a history lasts (6)
 * Shortcuts, each of which is refuted:
 * -DNO_END             the quarantine's end is no floor: a proposal is, and the clock where there is no counter
 * -DNO_BOUND           a raise is accepted however far it is ahead of the master's clock
 * -DNO_CAP             a proposal is heeded however far it is ahead of the master's clock
 * -DNO_CLOCK           a master without a counter does not go by its clock
 */
#ifndef AHEAD
#define AHEAD 0
#endif
#ifndef QUARANTINE
#define QUARANTINE 3
#endif
#ifndef TIME
#define TIME 6
#endif
#define LIMIT   2
#define GRANTS  4           /* values in a second */
#define NAME(n) ('A'+(n))
#define MAX(x,y)      ((x) > (y) -> (x) : (y))
#define MIN(x,y)      ((x) < (y) -> (x) : (y))
#define MIDDLE(x,y,z) MAX(MIN(x,y), MIN(MAX(x,y), z))
#define CLOCK(n)      (now + (n == 0 -> AHEAD : 0))
#define VOTES(n)      (until[n] <= CLOCK(n))
#define MUST(ok, what) \
  if :: (ok) -> skip :: else -> printf("violates %e\n", what); assert(ok) fi
mtype = { order, forgets };

byte now = 1;
byte counter[3];            /* 0: none */
byte until[3];              /* the end of its last quarantine */
byte newest;                /* the largest token reported */
bit  asked;                 /* one acquisition a second */

/* ---- within one step ---- */
byte proposal;
byte value[3];
byte token;
byte before;

#ifdef NO_CAP
#define CAPPED(n) proposal
#else
#define CAPPED(n) MIN(proposal, (CLOCK(n) + LIMIT) * GRANTS)
#endif
#ifdef NO_END
#define END(n) 0
#else
#define END(n) (until[n] * GRANTS)
#endif
#ifdef NO_CLOCK
#define LEAST(n) 0
#else
#define LEAST(n) (counter[n] == 0 -> CLOCK(n) * GRANTS : 0)
#endif
inline mint(n) {
  value[n] = MAX(MAX(counter[n] + 1, CAPPED(n)), MAX(END(n), LEAST(n)));
  counter[n] = value[n];
  printf("  %c grants %d at %d\n", NAME(n), value[n], CLOCK(n) * GRANTS)
}
inline ask(n) {
  if
  :: VOTES(n) -> mint(n)
  :: skip         /* out of reach, or abstains */
  fi
}
#ifdef NO_BOUND
#define BOUNDED(n) true
#else
#define BOUNDED(n) (token <= (CLOCK(n) + LIMIT) * GRANTS)
#endif
inline raise(n) {
  if
  :: value[n] != 0 && value[n] < token && BOUNDED(n) ->
     value[n] = token; counter[n] = token;
     printf("  %c is raised to %d at %d\n", NAME(n), token, CLOCK(n) * GRANTS)
  :: skip
  fi
}
#define HAS(n) (value[n] != 0 && value[n] == token)
inline acquire() {
  atomic { !asked -> asked = 1;
    if
    :: proposal = 0
    :: proposal = now * GRANTS
    :: proposal = newest + 1
    :: proposal = (TIME + AHEAD + LIMIT + 1) * GRANTS
    fi;
    printf("at %d a client proposes %d; largest token reported so far: %d\n", now * GRANTS, proposal, newest);
    ask(0); ask(1); ask(2);
    if
    :: value[0] && value[1] && value[2] -> token = MIDDLE(value[0], value[1], value[2])
    :: token = MAX(MAX(value[0], value[1]), value[2]) /* too few have answered, or can be raised to the other */
    fi;
    raise(0); raise(1); raise(2);
    if
    :: HAS(0) + HAS(1) + HAS(2) >= 2 ->
       printf("it reports token %d\n", token);
       MUST(token > newest, order);
       newest = token
    :: else -> skip
    fi;
    proposal = 0; token = 0; value[0] = 0; value[1] = 0; value[2] = 0
  }
}

inline lose(n) {
  atomic { VOTES(n) && CLOCK(n) + QUARANTINE <= TIME + AHEAD ->
    before = counter[n];
    if :: counter[n] = 0 :: counter[n] > 1 -> counter[n] = 1 fi;
    until[n] = CLOCK(n) + QUARANTINE;
    printf("  %c loses data at %d; its counter is %d; it abstains until %d\n",
           NAME(n), CLOCK(n) * GRANTS, counter[n], until[n] * GRANTS);
#if !defined(NO_BOUND) && !defined(NO_CAP) && !defined(NO_END) && !defined(NO_CLOCK)
    MUST(until[n] * GRANTS > before, forgets);
#endif
    before = 0
  }
}
/* An hour after the last grant. */
inline expire(n) {
  d_step { counter[n] != 0 && counter[n] < CLOCK(n) * GRANTS ->
    counter[n] = 0; printf("  %c drops its counter at %d\n", NAME(n), CLOCK(n) * GRANTS)
  }
}

active proctype History() {
end: do
  :: acquire()
  :: d_step { now < TIME -> now++; asked = 0 }
  :: lose(0) :: lose(1) :: lose(2)
  :: expire(0) :: expire(1) :: expire(2)
  od
}
