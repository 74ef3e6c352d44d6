/* queue_handoff.pml: a master grants to whoever waits; who does not listen is passed over, and comes back. */
inline grant(h, n) {
  counter[n]++; value[AT(h,n)] = counter[n]; waits[AT(h,n)] = 0;
  printf("  %c grants hold %d (grant %d)\n", NAME(n), h, counter[n]);
  if :: counter[n] < MANY -> skip :: else -> printf("violates progress\n"); assert(counter[n] < MANY) fi
}
#ifdef PASSED
#define ASIDE(h,n) aside[AT(h,n)]
#ifdef MISSES
#define COSTSMISS misses--
#define MAYMISS   (misses > 0)
#else
#define COSTSMISS skip
#define MAYMISS   true
#endif
inline miss(h) {
  if :: skip :: MAYMISS -> missed = missed | (1<<h) fi
}
inline reach() {
  miss(0); miss(1);
#if HOLDS > 2
  miss(2)
#endif
}
inline leaveAside(h, n) { aside[AT(h,n)] = 0; back[AT(h,n)] = 0 }
inline offer(h, n) {
  if
  :: waits[AT(h,n)] && FREE(n) && ROOM(n) ->
     if
     :: MAYMISS && (missed & (1<<h)) && !back[AT(h,n)] ->
        COSTSMISS;
        waits[AT(h,n)] = 0; aside[AT(h,n)] = 1;
        printf("  %c passes over hold %d\n", NAME(n), h)
     :: else -> grant(h,n); leaveAside(h,n)
     fi
  :: else -> skip
  fi
}
/* Which messages reach nobody is chosen before the step that may send them. */
#define STEP(when) atomic { when -> reach(); d_step {
#define ENDSTEP    } }
#else
#define ASIDE(h,n) false
#define STEP(when) d_step { when ->
#define ENDSTEP    }
#define leaveAside(h,n) skip
inline offer(h, n) {
  if :: waits[AT(h,n)] && FREE(n) && ROOM(n) -> grant(h,n) :: else -> skip fi
}
#endif
/* To the oldest that waits; where its process does not listen, to the next. */
inline handOff(n) {
  offer(0,n); offer(1,n);
#if HOLDS > 2
  offer(2,n);
#endif
#ifdef PASSED
  missed = 0
#endif
}

#ifdef PASSED
/* The process refreshes its waiters. */
#if defined(PASSED_FORGOTTEN)
#define RETURNS false
#else
#define RETURNS true
#endif
inline refresh(h, n) {
  STEP(phase[h] == WAITING && aside[AT(h,n)] && RETURNS)
    aside[AT(h,n)] = 0; waits[AT(h,n)] = 1;
#ifndef PASSED_AGAIN
    back[AT(h,n)] = 1;
#endif
    printf("  %c has hold %d back in its place\n", NAME(n), h);
#ifdef PASSED_UNSETTLED
    missed = 0
#else
    handOff(n)
#endif
  ENDSTEP
}
#endif
