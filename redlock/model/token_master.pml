/* token_master.pml: what a master does: it executes a message, or loses a grant or its data. */

inline mint(h, n) {
#if LOSSES > 0 && !defined(NO_FLOOR)
#ifdef FLOOR_IF_ABSENT
  if :: counter[n] == 0 -> counter[n] = floor[n] :: else -> skip fi;
#else
  counter[n] = MAX(counter[n], floor[n]);
#endif
#endif
  counter[n]++;
#ifdef PROPOSALS
  counter[n] = MAX(counter[n], (capped -> 0 : proposal)); capped = 0;
#endif
  value[AT(h,n)] = counter[n];
  ISSUE(counter[n]);
  printf("  %c grants %c%d the value %d\n", NAME(n), KIND(h), h, counter[n])
}

/* The acquire script. Where the lock is taken the request just stays: it waits. */
inline executeAcquire(h, n) {
  atomic { acquire[n] && FIRST(n) && UP(n) && !BUSY(h,n) ->
#ifdef PROPOSALS
    if :: skip :: capped = 1 fi;
#endif
#if DUPS > 0
    if :: acquire[n] = 0 :: dups > 0 -> dups-- fi;
    if :: skip :: answer[n] != 0 -> deaf = 1 fi;
#else
    acquire[n] = 0;
#endif
    d_step {
      TOUCH(n);
      if :: value[AT(h,n)] == 0 -> mint(h,n) :: else -> skip fi;
      if
      :: !deaf && (phase[h] == ASKING || phase[h] == RAISING) ->
         answer[n] = value[AT(h,n)];
         if :: !counted[AT(h,n)] && !raise[n] -> lapsed[AT(h,n)] = 0 :: else -> skip fi
      :: else -> skip
      fi;
      deaf = 0;
      forget(h)
    }
  }
}

#if defined(RAISE_UNHELD)
#define MAYRAISE(h,n) true
#elif defined(RAISE_COUNTED)
#define MAYRAISE(h,n) (value[AT(h,n)] != 0 && value[AT(h,n)] <= token)
#else
#define MAYRAISE(h,n) (value[AT(h,n)] == token || (value[AT(h,n)] != 0 && counter[n] < token))
#endif
/* The raise script. */
inline executeRaise(h, n) {
  atomic { raise[n] && UP(n) ->
#ifdef LEAN
    raise[n] = 0;
#else
    if :: raise[n] = 0 :: skip fi;
#endif
    d_step {
      if
      :: MAYRAISE(h,n) ->
         printf("  %c raised from %d to %d for %c%d\n", NAME(n), value[AT(h,n)], token, KIND(h), h);
         if :: value[AT(h,n)] != 0 -> value[AT(h,n)] = token :: else -> skip fi;
         counter[n] = MAX(counter[n], token);
         if :: phase[h] == RAISING -> counted[AT(h,n)] = 1 :: else -> skip fi
      :: else -> skip
      fi;
      forget(h)
    }
  }
}

/* The grant runs out, or the release of a hold that is over is executed. */
inline remove(h, n) {
  d_step { value[AT(h,n)] != 0 ->
    printf("  %c: the grant of %c%d %e\n", NAME(n), KIND(h), h, (phase[h] == OVER -> released : expires));
    value[AT(h,n)] = 0;
    lapse(h,n)
  }
}
inline lapse(h, n) {
  if
  :: phase[h] == ASKING || phase[h] == RAISING -> lapsed[AT(h,n)] = 1
  :: phase[h] == HELD && counted[AT(h,n)] -> lapsed[AT(h,n)] = 1;
     if :: VALID(h) -> skip :: else -> leave(h) fi
  :: else -> skip
  fi
}

#if LOSSES > 0
inline loseGrant(h, n) {
  if
  :: value[AT(h,n)] != 0 -> value[AT(h,n)] = 0;
#ifndef NO_ABSTENTION
     forgot[AT(h,n)] = 1
#endif
  :: else -> skip
  fi
}
inline lose(n) {
  atomic { losses > 0 && FIRST(n) && UP(n) ->
#ifdef ROLLBACK
    do :: counter[n] > 0 -> counter[n]-- :: break od;
#else
    counter[n] = 0;
#endif
    d_step {
      losses--; TOUCH(n);
      loseGrant(0,n); loseGrant(1,n);
#if HOLDS > 2
      loseGrant(2,n);
#endif
      floor[n] = issued;
      printf("  %c loses its data; its counter is %d\n", NAME(n), counter[n]);
#ifndef NO_ABSTENTION
      away[n] = 1
#endif
    }
  }
}
/* The abstention outlasts every lease that the master may have forgotten. */
inline lapseForgotten(h, n) {
  if :: forgot[AT(h,n)] -> forgot[AT(h,n)] = 0; lapse(h,n) :: else -> skip fi
}
inline back(n) {
  d_step { away[n] -> away[n] = 0;
    printf("  %c votes again\n", NAME(n));
    lapseForgotten(0,n); lapseForgotten(1,n);
#if HOLDS > 2
    lapseForgotten(2,n)
#endif
  }
}
#endif
