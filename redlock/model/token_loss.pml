/* token_loss.pml: a master loses its data, abstains, and votes again. */
#if LOSSES > 0

#ifdef ROLLBACK
#ifdef SETTLE_UNNOTICED
#define INQUEUE(h,n) (phase[h] == ASKING && value[AT(h,n)] == 0)
#endif
/* What is written to the master's disk now is what it comes back with. */
inline snapshot(n) {
  d_step { savedOf == 0 && counter[n] != 0 && UP(n) ->
    savedOf = n+1; savedCounter = counter[n]; savedWriteCounter = WRITECOUNTER(n);
    savedValue[0] = value[AT(0,n)]; savedValue[1] = value[AT(1,n)];
#if HOLDS > 2
    savedValue[2] = value[AT(2,n)];
#endif
#ifdef SETTLE_UNNOTICED
    savedWaits[0] = INQUEUE(0,n); savedWaits[1] = INQUEUE(1,n);
#endif
    printf("  %c saves its data; its counter is %d\n", NAME(n), counter[n])
  }
}
#define MAYLOSE(n) (savedOf == n+1)
#else
#define MAYLOSE(n) FIRST(n)
#endif

inline loseGrant(h, n) {
#ifndef NO_ABSTENTION
  forgot[AT(h,n)] = (value[AT(h,n)] != 0 && phase[h] != OVER);
#endif
#ifdef ROLLBACK
  value[AT(h,n)] = savedValue[h]; zombie[AT(h,n)] = (savedValue[h] != 0); savedValue[h] = 0;
  if
  :: value[AT(h,n)] != 0 ->
     printf("  %c has the grant of %c%d from its snapshot: %d\n", NAME(n), KIND(h), h, value[AT(h,n)])
  :: else -> skip
  fi
#else
  value[AT(h,n)] = 0
#endif
}
inline lose(n) {
  d_step { losses > 0 && MAYLOSE(n) && UP(n) ->
    floor[n] = MAX(floor[n], counter[n]);  /* all that it has counted, and no more: see floor.pml */
#ifdef ROLLBACK
    counter[n] = savedCounter;
#ifdef READERS
    writeCounter[n] = savedWriteCounter;
#endif
    savedOf = MASTERS+1; savedCounter = 0; savedWriteCounter = 0;
#else
    counter[n] = 0;
#ifdef READERS
    writeCounter[n] = 0;
#endif
#endif
    losses--; TOUCH(n);
#ifdef ADOPT
    adopter[n] = 0; UNMARK(0,n);
#ifdef REGAIN
    tombstone[n] = 0;
#endif
#endif
    printf("  %c loses its data; its counter is %d\n", NAME(n), counter[n]);
    loseGrant(0,n); loseGrant(1,n);
#if HOLDS > 2
    loseGrant(2,n);
#endif
#if defined(REGAIN) && !defined(SAME_ID)
    /* The marker's id is another now: a claim to a grant from before is refused. */
    trusted[AT(0,n)] = 0; trusted[AT(1,n)] = 0;
#if HOLDS > 2
    trusted[AT(2,n)] = 0;
#endif
#endif
#ifdef UNNOTICED
    unseen[n] = 1;
#endif
#ifdef SETTLE_UNNOTICED
    waits[AT(0,n)] = savedWaits[0]; waits[AT(1,n)] = savedWaits[1]; savedWaits[0] = 0; savedWaits[1] = 0;
#endif
#ifndef NO_ABSTENTION
    away[n] = 1
#endif
  }
}

/* The client's trust in a grant that the master has lost runs out: by its own clock, at the end of the abstention at
   the latest. A grant from the snapshot that nobody renewed has run out by then too. */
inline lapseForgotten(h, n) {
  if :: forgot[AT(h,n)] -> forgot[AT(h,n)] = 0; lapse(h,n) :: else -> skip fi
}
inline wane(h, n) {
  d_step { forgot[AT(h,n)] ->
    printf("  %c%d trusts no more in what it had from %c\n", KIND(h), h, NAME(n));
    lapseForgotten(h,n)
  }
}
inline backGrant(h, n) {
  lapseForgotten(h,n);
#ifdef ROLLBACK
  if :: zombie[AT(h,n)] -> drop(h,n) :: else -> skip fi
#endif
}
inline back(n) {
  d_step { away[n] && SEEN(n) -> away[n] = 0;
    printf("  %c votes again\n", NAME(n));
    backGrant(0,n); backGrant(1,n);
#if HOLDS > 2
    backGrant(2,n)
#endif
  }
}

#ifdef UNNOTICED
/* A client compares the run ids. Until then the master has no vote either: no client has read its marker since. */
inline notice(n) {
  d_step { unseen[n] -> unseen[n] = 0;
#ifdef SETTLE_UNNOTICED
    waits[AT(0,n)] = 0; waits[AT(1,n)] = 0;
#endif
    printf("  it is noticed that %c has restarted\n", NAME(n))
  }
}
#ifdef SETTLE_UNNOTICED
/* A hold from before is released there once more, and the script lets the next in. */
inline settle(h, n) {
  d_step { unseen[n] && waits[AT(h,n)] && !BUSY(h,n) ->
    waits[AT(h,n)] = 0;
    if :: value[AT(h,n)] == 0 -> mint(h,n) :: else -> skip fi;
    if
    :: phase[h] == ASKING || phase[h] == RAISING -> answer[n] = value[AT(h,n)]; hearBlock(n);
       if :: !counted[AT(h,n)] && !raise[n] -> lapsed[AT(h,n)] = 0 :: else -> skip fi
    :: else -> skip
    fi;
    endBlock(); forget(h)
  }
}
#endif
#endif

#if defined(ROLLBACK) && defined(HEAR_ABSTAINING)
inline hear(h, n) {
  d_step { phase[h] == ASKING && away[n] && zombie[AT(h,n)] ->
    printf("  %c tells %c%d of its grant, value %d\n", NAME(n), KIND(h), h, value[AT(h,n)]);
    answer[n] = value[AT(h,n)]; lapsed[AT(h,n)] = 0
  }
}
#endif

#if defined(ROLLBACK) && defined(RENEW)
/* A renewal finds the hold with its token in what came back, also while the master abstains. */
#ifdef RENEW_LAPSED
#define MAYRENEW(h,n) true
#else
#define MAYRENEW(h,n) STANDS(h,n)
#endif
inline renew(h, n) {
  d_step { phase[h] == HELD && zombie[AT(h,n)] && value[AT(h,n)] == token && MAYRENEW(h,n) ->
    printf("  %c renews %c%d, token %d\n", NAME(n), KIND(h), h, token);
    zombie[AT(h,n)] = 0; forgot[AT(h,n)] = 0;
    counted[AT(h,n)] = 1; lapsed[AT(h,n)] = 0
  }
}
#endif
#endif
