/* token_client.pml: what a client does. */

#ifdef UPGRADE
#define MAYSTART(h) (h != 1 || phase[0] == HELD)
#elif defined(ADOPT)
#define MAYSTART(h) (!ADOPTS(h) || (ISLEFT && (h == 1 || phase[1] != IDLE)))
#else
#define MAYSTART(h) (starts == h)  /* acquisitions are alike: numbered as they start */
#endif
inline start(h) {
  atomic { phase[h] == IDLE && MAYSTART(h) ->
#ifdef KINDS
    reader[h] = (KINDS >> h) & 1;
#elif defined(READERS)
    if :: skip :: reader[h] = 1 fi;
#endif
#ifdef FORK
    if :: skip :: moved[h] = 1 fi;
#endif
#ifdef PROPOSALS
    do :: proposal < PROPOSALS -> proposal++ :: break od;
#endif
    d_step {
      starts++;
#ifdef FORGED
      knows[h] = ADOPTS(h) && phase[0] == DETACHED;
#endif
      phase[h] = ASKING; before = (reader[h] -> newestWrite : newest);
      acquire[0] = 1; acquire[1] = 1; acquire[2] = LISTENS;
      printf("%c%d begins; largest token reported so far: %d\n", KIND(h), h, newest)
    }
  }
}

#if defined(NO_RAISE)
#define COUNTS(n) true
#elif defined(COUNT_ABOVE)
#define COUNTS(n) (answer[n] >= token)
#else
#define COUNTS(n) (answer[n] == token)
#endif
inline sort(h, n) {
  if
  :: !(picked & (1<<n)) -> skip
  :: else ->
     if
     :: COUNTS(n) -> counted[AT(h,n)] = 1
     :: !COUNTS(n) && answer[n] < token -> raise[n] = 1
     :: else -> skip
     fi;
     answer[n] = 0
  fi
}

#define HEARD(n)  (picked & (1<<n) -> answer[n] : 0)
#define GOOD(h,n) (!(picked & (1<<n)) || !lapsed[AT(h,n)])
/* The client has heard any quorum of the answers, or all of them. Of all it takes the second smallest, or the largest
 * where clocks let too few masters be raised to that. */
inline decide(h) {
  atomic { phase[h] == ASKING && (answer[0] != 0) + (answer[1] != 0) + (answer[2] != 0) >= QUORUM ->
    pick(h);
    d_step {
      printf("%c%d hears %d %d %d: token %d\n", KIND(h), h, HEARD(0), HEARD(1), HEARD(2), token);
      phase[h] = RAISING;
#ifdef CHECK_FIRST
      if :: GOOD(h,0) && GOOD(h,1) && GOOD(h,2) -> skip :: else -> phase[h] = OVER fi;
#endif
      sort(h,0); sort(h,1); sort(h,2);
      picked = 0;
      if :: phase[h] == OVER -> before = 0; dropBlocks(); leave(h); forget(h) :: else -> skip fi
    }
  }
}
inline pick(h) {
  if
  :: answer[0] && answer[1] -> picked = 3; token = MAX(answer[0], answer[1])
  :: answer[0] && answer[2] -> picked = 5; token = MAX(answer[0], answer[2])
  :: answer[1] && answer[2] -> picked = 6; token = MAX(answer[1], answer[2])
  :: answer[0] && answer[1] && answer[2] -> picked = 7;
     if
     :: token = MAX(MAX(answer[0], answer[1]), answer[2])
#ifndef NO_RAISE
     :: token = MIDDLE(answer[0], answer[1], answer[2])
#endif
     fi
  fi
}

/* An answer that was not among those that decided: the token stays what it is. */
inline late(h, n) {
  d_step { phase[h] == RAISING && answer[n] != 0 ->
#ifdef DECIDE_TWICE
    token = MAX(token, answer[n]);
#endif
    printf("%c%d hears %d from %c: token %d\n", KIND(h), h, answer[n], NAME(n), token);
    picked = 1<<n; sort(h,n); picked = 0
  }
}

#if defined(ANY_TIME) || defined(CHECK_FIRST)
#define MAYREPORT(h) COUNTED(h)
#else
#define MAYREPORT(h) VALID(h)
#endif
#if defined(UPGRADE) && !defined(UPGRADE_UNHELD)
#define STILLREADS(h) (h != 1 || phase[0] == HELD)
#else
#define STILLREADS(h) true
#endif
inline report(h) {
  d_step { phase[h] == GRANTED(h) && MAYREPORT(h) && STILLREADS(h) && TAKEN(h) ->
    reportBlock(h);
    printf("%c%d reports tokens %d to %d\n", KIND(h), h, SMALLEST, LARGEST(h));
    MUST(SMALLEST > before, fresh);
#if defined(ANY_TIME) || defined(READERS)
    MUST(((reader[h] -> usedByWrites : used) & ALLTOKENS(h)) == 0, unique);
    used = used | ALLTOKENS(h);
    if :: !reader[h] -> usedByWrites = usedByWrites | ALLTOKENS(h) :: else -> skip fi;
#endif
#ifndef ANY_TIME
#ifndef CHECK_FIRST
    MUST(ALONE(h), exclusion);
#endif
    MUST(SMALLEST > (reader[h] -> newestWrite : newest), order);
#endif
#if defined(GOAL) && defined(ADOPT)
    MUST(h != 2 || phase[1] != TAKING, goal);
#elif defined(GOAL)
    MUST(newest == 0, goal);
#endif
    adopted(h);
#ifdef UPGRADE
    MUST(h != 1 || newestWrite == writtenBefore, gap);
    if :: h == 1 && phase[0] == HELD -> leave(0) :: else -> skip fi;
#endif
    newest = MAX(newest, LARGEST(h));
    if :: !reader[h] -> newestWrite = MAX(newestWrite, LARGEST(h)) :: else -> skip fi;
#if defined(UPGRADE) || defined(ADOPT)
    if :: h == 0 -> writtenBefore = newestWrite :: else -> skip fi;
#endif
#ifdef FORGED
    if :: h == 0 -> ticket = token :: else -> skip fi;
#endif
    phase[h] = HELD; before = 0; endBlock(); dropBlocks();
    answer[0] = 0; answer[1] = 0; answer[2] = 0;
    forget(h);
    if :: VALID(h) -> skip :: else -> leave(h) fi
  }
}

/* The client gives up or releases; what it has sent stays on its way. */
inline finish(h) {
  d_step { phase[h] == ASKING || phase[h] == RAISING || phase[h] == HELD || phase[h] == TAKING ->
    printf("%c%d %e\n", KIND(h), h, (phase[h] == HELD -> releases : givesUp));
    before = 0; answer[0] = 0; answer[1] = 0; answer[2] = 0; dropBlocks();
#ifdef GUARD
    if :: phase[h] != HELD -> token = 0 :: else -> skip fi;
#endif
    leave(h); forget(h)
  }
}
inline leave(h) {
  phase[h] = OVER;
  counted[AT(h,0)] = 0; counted[AT(h,1)] = 0; counted[AT(h,2)] = 0;
  lapsed[AT(h,0)] = 0; lapsed[AT(h,1)] = 0; lapsed[AT(h,2)] = 0;
#if LOSSES > 0
  forgot[AT(h,0)] = 0; forgot[AT(h,1)] = 0; forgot[AT(h,2)] = 0
#endif
}

/* A token or value that nothing will look at again is no part of the state: only that there is a grant. */
#if defined(ADOPT)
#define KEEPS(h) (phase[h] != OVER || h == 0)
#elif defined(REGAIN) && defined(RELEASE_LOWERS)
#define KEEPS(h) true
#elif defined(REGAIN)
#define KEEPS(h) (phase[h] != OVER || regain[AT(h,0)] || regain[AT(h,1)] || regain[AT(h,2)])
#elif defined(RELEASE_LOWERS)
#define KEEPS(h) (phase[h] != OVER || named[AT(h,0)] || named[AT(h,1)] || named[AT(h,2)])
#elif defined(RENEW)
#define KEEPS(h) (phase[h] != OVER)
#else
#define KEEPS(h) (phase[h] < HELD)
#endif
inline forget(h) {
  if
  :: !KEEPS(h) && !raise[0] && !raise[1] && !raise[2] ->
#ifndef GUARD
     token = 0;
#endif
     value[AT(h,0)] = (value[AT(h,0)] != 0);
     value[AT(h,1)] = (value[AT(h,1)] != 0);
     value[AT(h,2)] = (value[AT(h,2)] != 0)
  :: else -> skip
  fi
}
