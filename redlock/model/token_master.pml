/* token_master.pml: what a master does: it executes a message, or a grant ends. */

#ifdef READERS
#define LASTBELOW(h,n)  (reader[h] -> writeCounter[n] : counter[n])  /* what the new value must be above */
#else
#define LASTBELOW(h,n)  counter[SERVER(h,n)]
#endif
#if LOSSES == 0 || defined(NO_FLOOR)
#define FLOOR(n) 0
#elif defined(FLOOR_IF_ABSENT)
#define FLOOR(n) (counter[n] == 0 -> floor[n] : 0)
#else
#define FLOOR(n) floor[n]
#endif
inline mint(h, n) {
  minted = MAX(LASTBELOW(h,n), FLOOR(n));
#ifdef READ_EQUAL
  if :: reader[h] && minted > 0 -> skip :: else -> minted++ fi;
#else
  minted++;
#endif
#if defined(ADOPT) && !defined(ADOPT_SAME_TOKEN)
  if :: ADOPTS(h) -> minted = MAX(minted, ticket+1) :: else -> skip fi;
#endif
#ifdef PROPOSALS
  minted = MAX(minted, (capped -> 0 : proposal)); capped = 0;
#endif
  mintBlock(h);
  value[AT(h,n)] = minted;
  count(h, n, minted);
  printf("  %c grants %c%d the value %d\n", NAME(SERVER(h,n)), KIND(h), h, minted);
  minted = 0
}
inline count(h, n, v) {
  counter[SERVER(h,n)] = MAX(counter[SERVER(h,n)], v);
#ifdef READERS
  if :: !reader[h] -> writeCounter[n] = MAX(writeCounter[n], v) :: else -> skip fi
#endif
}

/* D is a server that the set does not know. */
#if defined(FORK) && !defined(FORK_VOTES)
#define VOTES(h,n) (SERVER(h,n) != 3 && UP(n))
#else
#define VOTES(h,n) UP(n)
#endif
/* The acquire script. Where the lock is taken the request just stays: it waits. */
inline executeAcquire(h, n) {
  atomic { acquire[n] && FIRST(n) && VOTES(h,n) && !BUSY(h,n) && MAYADOPT(h,n) && MAYMINT(h,n) ->
#ifdef PROPOSALS
    if :: skip :: capped = 1 fi;
#endif
    shrink();
#if DUPS > 0
    if :: acquire[n] = 0 :: dups > 0 -> dups-- fi;
    if :: skip :: answer[n] != 0 -> deaf = 1 fi;
#else
    acquire[n] = 0;
#endif
    d_step {
      TOUCH(n);
      if :: value[AT(h,n)] == 0 -> mint(h,n); MARK(h,n) :: else -> repeatBlock(h,n) fi;
      if
      :: !deaf && (phase[h] == ASKING || phase[h] == RAISING) ->
         answer[n] = value[AT(h,n)]; hearBlock(n);
         if :: !counted[AT(h,n)] && !raise[n] -> lapsed[AT(h,n)] = 0 :: else -> skip fi
      :: else -> skip
      fi;
      deaf = 0; endBlock();
      forget(h)
    }
  }
}

#if defined(RAISE_UNHELD)
#define MAYRAISE(h,n) true
#elif defined(RAISE_COUNTED)
#define MAYRAISE(h,n) (value[AT(h,n)] != 0 && value[AT(h,n)] <= token)
#else
#define MAYRAISE(h,n) (value[AT(h,n)] != 0 && value[AT(h,n)] <= token && \
                       (reader[h] || value[AT(h,n)] == token || counter[SERVER(h,n)] < token))
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
      :: MAYRAISE(h,n) && ALLOWED(token) ->
         printf("  %c raised from %d to %d for %c%d\n", NAME(SERVER(h,n)), value[AT(h,n)], token, KIND(h), h);
         if :: value[AT(h,n)] != 0 -> value[AT(h,n)] = token :: else -> skip fi;
         count(h, n, token);
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
    printf("  %c: the grant of %c%d %e\n", NAME(SERVER(h,n)), KIND(h), h, (phase[h] == OVER -> released : expires));
    drop(h,n);
    REMEMBERED(h,n)
  }
}
#if LOSSES > 0
#define TRUSTEDSTILL(h,n) forgot[AT(h,n)]  /* the client's trust is in what the master had before */
#else
#define TRUSTEDSTILL(h,n) false
#endif
inline drop(h, n) {
  value[AT(h,n)] = 0;
#if LOSSES > 0 && defined(ROLLBACK)
  zombie[AT(h,n)] = 0;
#endif
  if :: TRUSTEDSTILL(h,n) -> skip :: else -> lapse(h,n) fi
}
inline lapse(h, n) {
  if
  :: phase[h] == ASKING || phase[h] == RAISING || phase[h] == TAKING -> lapsed[AT(h,n)] = 1
  :: (phase[h] == HELD || phase[h] == SUSPENDED) && counted[AT(h,n)] -> lapsed[AT(h,n)] = 1;
     if :: VALID(h) -> skip :: else -> LOSELEASE(h) fi
  :: else -> skip
  fi
}
