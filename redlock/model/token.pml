/* token.pml: exclusion and the token of one lock on three independent masters.
 *
 * There is no clock. A grant may end at any moment; a message is executed at any later moment, after its grant
 * has ended or its client has given up too, or never. A crashed client is one that takes no further step.
 * README.md says why that covers the queue, the hand-off and the yield of a grant, and what is left out.
 *
 * -DHOLDS=k            acquisitions (2)
 * -DREADERS            each is a read or a write; without it all are writes
 * -DDUPS=k             k acquires are executed a second time (raises: any number of times, always)
 * -DSTART=k            counters start at any of 0..k, with the largest token reported that such a past allows
 * -DPROPOSALS=k        each acquisition proposes any of 0..k; a master's cap may make it ignore the proposal
 * -DLOSSES=k           k times a master loses its data: all of it, or with -DROLLBACK back to some older counter;
 *                      it then abstains, and its values go on from what its clock has passed
 * -DANY_TIME           a token may be reported without asking whether the hold is still valid
 * -DLEAN               no late answers, raises executed at most once, releases as expiries (for the large cases)
 * Shortcuts, each of which is refuted:
 * -DNO_RAISE           report the largest answer, at once
 * -DRAISE_UNHELD       raise a master where the hold is gone
 * -DCOUNT_ABOVE        count a master whose value is above the token
 * -DCHECK_FIRST        ask for validity before the raise
 * -DDECIDE_TWICE       form the token anew from later answers, and keep what was counted for the first one
 * -DNO_FLOOR           after a loss the counter goes on from what is left of it
 * -DFLOOR_IF_ABSENT    ... is set to the clock only where no counter is left
 * -DNO_ABSTENTION      a master votes again at once after a loss
 * -DREADERS_UNIQUE     also demand that two readers never share a token
 * -DRAISE_FRESH        a raise is refused where the counter has reached the token already
 */
#ifndef HOLDS
#define HOLDS 2
#endif
#ifndef DUPS
#define DUPS 0
#endif
#ifndef START
#define START 0
#endif
#ifndef LOSSES
#define LOSSES 0
#endif
#define MASTERS 3
#define QUORUM  2
#define AT(h,n)    ((h)*MASTERS+(n))
#define CELLS      (HOLDS*MASTERS)
#define MAX(x,y)   ((x) > (y) -> (x) : (y))
#define MIN(x,y)   ((x) < (y) -> (x) : (y))
#define MIDDLE(x,y,z) MAX(MIN(x,y), MIN(MAX(x,y), z))
#define NAME(n)    ('A'+(n))
#define KIND(h)    (reader[h] -> 'R' : 'W')

/* ---- the masters ---- */
byte counter[MASTERS];
byte value[CELLS];      /* the hold's value on the master; 0: it has no grant there */
byte dups = DUPS;

/* ---- the clients: what others look at too ---- */
#define IDLE    0
#define ASKING  1
#define RAISING 2       /* the token is formed, the masters that have it are counted */
#define HELD    3       /* reported, and valid still */
#define OVER    4
byte phase[HOLDS];
bit  reader[HOLDS];
bit  counted[CELLS];
bit  lapsed[CELLS];     /* the grant behind the answer has run out, and the client's trust in it before that */
byte starts;

/* ---- what has been reported, for the properties ---- */
byte newest;            /* the largest token reported */
byte newestWrite;       /* the largest reported by a writer */
#if defined(ANY_TIME) || defined(READERS_UNIQUE)
int  used;              /* the set of all reported */
#endif

/* ---- choices within one step: 0 between steps ---- */
bit  capped;            /* the master's cap makes it ignore the proposal */
bit  deaf;              /* the client does not hear this answer: of two grants it may hear the first or the second */
byte picked;            /* the answers that decide() works on */

#if LOSSES > 0
byte losses = LOSSES;
byte issued;            /* the largest value that any master has had: every clock has passed it when a loss is over */
byte floor[MASTERS];
bit  away[MASTERS];     /* has lost its data, and abstains */
bit  forgot[CELLS];     /* the hold had a grant there, lost with the data */
#define ISSUE(v)   issued = MAX(issued, v)
#define UP(n)      (!away[n])
#else
#define ISSUE(v)   skip
#define UP(n)      1
#endif

/* Masters that nothing has happened on are alike: they are named in the order of their first event. */
#if START == 0
bit touched[MASTERS];
#define TOUCH(n)   touched[n] = 1
#define FIRST(n)   (n == 0 || touched[(n+2) % 3])
#else
#define TOUCH(n)   skip
#define FIRST(n)   1
#endif

#define BARS(g,h,n) ((g) != (h) && value[AT(g,n)] != 0 && !(reader[g] && reader[h]))
#if HOLDS == 2
#define BUSY(h,n)   (BARS(0,h,n) || BARS(1,h,n))
#else
#define BUSY(h,n)   (BARS(0,h,n) || BARS(1,h,n) || BARS(2,h,n))
#endif
#define STANDS(h,n) (counted[AT(h,n)] && !lapsed[AT(h,n)])
#define VALID(h)    (STANDS(h,0) + STANDS(h,1) + STANDS(h,2) >= QUORUM)
#define COUNTED(h)  (counted[AT(h,0)] + counted[AT(h,1)] + counted[AT(h,2)] >= QUORUM)
#define RIVAL(g,h)  ((g) != (h) && phase[g] == HELD && !(reader[g] && reader[h]))
#if HOLDS == 2
#define ALONE(h)    (!RIVAL(0,h) && !RIVAL(1,h))
#else
#define ALONE(h)    (!RIVAL(0,h) && !RIVAL(1,h) && !RIVAL(2,h))
#endif
#define MUST(ok, what) \
  if :: (ok) -> skip :: else -> printf("violates %e\n", what); assert(ok) fi
mtype = { exclusion, fresh, order, unique }

inline start(h) {
  atomic { phase[h] == IDLE && starts == h ->  /* acquisitions are alike: numbered as they start */
#ifdef READERS
    if :: skip :: reader[h] = 1 fi;
#endif
#ifdef PROPOSALS
    do :: proposal < PROPOSALS -> proposal++ :: break od;
#endif
    d_step {
      starts++;
      phase[h] = ASKING; before = newest;
      acquire[0] = 1; acquire[1] = 1; acquire[2] = 1;
      printf("%c%d begins; largest token reported so far: %d\n", KIND(h), h, newest)
    }
  }
}

inline mint(h, n) {
#if LOSSES > 0 && !defined(NO_FLOOR)
#ifdef FLOOR_IF_ABSENT
  if :: counter[n] == 0 -> counter[n] = floor[n] :: else fi;
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
         if :: !counted[AT(h,n)] && !raise[n] -> lapsed[AT(h,n)] = 0 :: else fi
      :: else -> skip
      fi;
      deaf = 0;
      forget(h)
    }
  }
}

inline executeRaise(h, n) {
  atomic { raise[n] && UP(n) ->
#ifdef LEAN
    raise[n] = 0;
#else
    if :: raise[n] = 0 :: skip fi;
#endif
    d_step {
    if
#ifdef RAISE_UNHELD
    :: true ->
       printf("  %c raised to %d for %c%d\n", NAME(n), token, KIND(h), h);
#else
#ifdef RAISE_FRESH
    :: value[AT(h,n)] == token || (value[AT(h,n)] != 0 && counter[n] < token) ->
#else
    :: value[AT(h,n)] != 0 && value[AT(h,n)] <= token ->
#endif
       printf("  %c raised from %d to %d for %c%d\n", NAME(n), value[AT(h,n)], token, KIND(h), h);
       value[AT(h,n)] = token;
#endif
       counter[n] = MAX(counter[n], token);
       if :: phase[h] == RAISING -> counted[AT(h,n)] = 1 :: else fi
#ifndef RAISE_UNHELD
    :: else -> skip
#endif
    fi;
    forget(h)
    }
  }
}

/* A token or value that nothing will look at again is no part of the state: only that there is a grant. */
inline forget(h) {
  if
  :: phase[h] >= HELD && !raise[0] && !raise[1] && !raise[2] ->
     token = 0;
     value[AT(h,0)] = (value[AT(h,0)] != 0);
     value[AT(h,1)] = (value[AT(h,1)] != 0);
     value[AT(h,2)] = (value[AT(h,2)] != 0)
  :: else -> skip
  fi
}

inline sort(h, n) {
  if
  :: !(picked & (1<<n)) -> skip
  :: else ->
    if
#ifdef NO_RAISE
    :: true -> counted[AT(h,n)] = 1
#else
    :: answer[n] == token -> counted[AT(h,n)] = 1
    :: answer[n] <  token -> raise[n] = 1
    :: answer[n] >  token ->
#ifdef COUNT_ABOVE
       counted[AT(h,n)] = 1
#else
       skip
#endif
#endif
    fi;
    answer[n] = 0
  fi
}

#define GOOD(h,n) (!(picked & (1<<n)) || !lapsed[AT(h,n)])
/* The client has heard any quorum of the answers, or all of them. */
inline decide(h) {
  atomic { phase[h] == ASKING && (answer[0] != 0) + (answer[1] != 0) + (answer[2] != 0) >= QUORUM ->
    pick(h);
    d_step {
    printf("%c%d hears %d %d %d: token %d\n", KIND(h), h,
      (picked & 1 -> answer[0] : 0), (picked & 2 -> answer[1] : 0), (picked & 4 -> answer[2] : 0), token);
    phase[h] = RAISING;
#ifdef CHECK_FIRST
    if :: GOOD(h,0) && GOOD(h,1) && GOOD(h,2) -> skip :: else -> phase[h] = OVER fi;
#endif
    sort(h,0); sort(h,1); sort(h,2);
    picked = 0;
    if :: phase[h] == OVER -> before = 0; leave(h); forget(h) :: else fi
    }
  }
}
inline pick(h) {
  if
  :: answer[0] && answer[1] -> picked = 3; token = MAX(answer[0], answer[1])
  :: answer[0] && answer[2] -> picked = 5; token = MAX(answer[0], answer[2])
  :: answer[1] && answer[2] -> picked = 6; token = MAX(answer[1], answer[2])
  :: answer[0] && answer[1] && answer[2] -> picked = 7;
#ifdef NO_RAISE
     token = MAX(MAX(answer[0], answer[1]), answer[2])
#else
     token = MIDDLE(answer[0], answer[1], answer[2])
#endif
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
inline report(h) {
  d_step { phase[h] == RAISING && MAYREPORT(h) ->
    printf("%c%d reports token %d\n", KIND(h), h, token);
    MUST(token > before, fresh);
#ifdef ANY_TIME
    MUST((used & (1<<token)) == 0, unique);
    used = used | (1<<token);
#else
#ifndef CHECK_FIRST
    MUST(ALONE(h), exclusion);
#endif
    MUST(token > (reader[h] -> newestWrite : newest), order);
#ifdef READERS_UNIQUE
    MUST((used & (1<<token)) == 0, unique);
    used = used | (1<<token);
#endif
#endif
    newest = MAX(newest, token);
    if :: !reader[h] -> newestWrite = newest :: else fi;
    phase[h] = HELD; before = 0;
    answer[0] = 0; answer[1] = 0; answer[2] = 0;
    forget(h);
    if :: VALID(h) -> skip :: else -> leave(h) fi
  }
}

/* The client gives up or releases; what it has sent stays on its way. */
inline finish(h) {
  d_step { phase[h] == ASKING || phase[h] == RAISING || phase[h] == HELD ->
    printf("%c%d %e\n", KIND(h), h, (phase[h] == HELD -> releases : givesUp));
    before = 0; answer[0] = 0; answer[1] = 0; answer[2] = 0;
    leave(h); forget(h)
  }
}
mtype = { releases, givesUp }
inline leave(h) {
  phase[h] = OVER;
  counted[AT(h,0)] = 0; counted[AT(h,1)] = 0; counted[AT(h,2)] = 0;
  lapsed[AT(h,0)] = 0; lapsed[AT(h,1)] = 0; lapsed[AT(h,2)] = 0
}

/* The grant runs out, or the release of a hold that is over is executed. */
inline remove(h, n) {
  d_step { value[AT(h,n)] != 0 ->
    printf("  %c: the grant of %c%d %e\n", NAME(n), KIND(h), h, (phase[h] == OVER -> released : expires));
    value[AT(h,n)] = 0;
    lapse(h,n)
  }
}
mtype = { released, expires }
inline lapse(h, n) {
  if
  :: phase[h] == ASKING || phase[h] == RAISING -> lapsed[AT(h,n)] = 1
  :: phase[h] == HELD && counted[AT(h,n)] -> lapsed[AT(h,n)] = 1;
     if :: VALID(h) -> skip :: else -> leave(h) fi
  :: else -> skip
  fi
}

proctype Hold(byte h) {
  bit  acquire[MASTERS];  /* on its way, or waiting in the queue */
  bit  raise[MASTERS];    /* on its way */
  byte answer[MASTERS];   /* what the master granted, if the client gets to hear it in time */
  byte token;
  byte before;            /* the largest token reported before the attempt began */
#ifdef PROPOSALS
  byte proposal;
#endif
end: do
  :: start(h)
  :: executeAcquire(h,0) :: executeAcquire(h,1) :: executeAcquire(h,2)
  :: decide(h)
  :: executeRaise(h,0) :: executeRaise(h,1) :: executeRaise(h,2)
  :: report(h)
#ifndef LEAN
  :: late(h,0) :: late(h,1) :: late(h,2)
  :: finish(h)
#endif
  :: remove(h,0) :: remove(h,1) :: remove(h,2)
  od
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
  if :: forgot[AT(h,n)] -> forgot[AT(h,n)] = 0; lapse(h,n) :: else fi
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
proctype Faults() {
end: do :: lose(0) :: lose(1) :: lose(2) :: back(0) :: back(1) :: back(2) od
}
#endif

init {
  atomic {
#if START > 0
    do :: counter[0] < START -> counter[0]++ :: break od;
    counter[1] = counter[0]; do :: counter[1] < START -> counter[1]++ :: break od;
    counter[2] = counter[1]; do :: counter[2] < START -> counter[2]++ :: break od;
    ISSUE(counter[2]);
    newest = counter[1]; newestWrite = newest;  /* a reported token is covered by the counters of a quorum */
    printf("counters %d %d %d; largest token reported so far: %d\n", counter[0], counter[1], counter[2], newest);
#endif
    run Hold(0); run Hold(1);
#if HOLDS > 2
    run Hold(2);
#endif
#if LOSSES > 0
    run Faults();
#endif
  }
}
