/* minimum.pml: work that is done once in a period, under a lock that stays taken until a minimum after the grant.
 *
 * Two processes want to do the work. The second one may take the lock whenever a quorum grants it. Time goes in ticks,
 * at the same rate everywhere. A hold expires on a master when its ticks are over. A message is executed at any later
 * moment, or never. A process that is killed takes no further step.
 *
 * -DTTL=k        ticks: 1 (default)
 * -DMINIMUM=k    ticks: 3 (default)
 * -DLOSSES=k     masters that lose their data: 0 (default)
 * -DQUARANTINE=k ticks for which such a master grants nothing: MINIMUM (default)
 * -DTIME=k       ticks in a run
 * -DGOAL         refuted by a run in which the second process gets the lock
 * Shortcuts, each of which is refuted:
 * -DFREES        the release of a lease frees the lock at once
 * -DTTL_ONLY     a grant is for the TTL only, so a process that dies leaves no minimum
 * -DCUTS         a renewal sets the expiry to the TTL, also if that is before the minimum
 * -DRENEWED      an ended hold can be renewed
 * -DANEW         the minimum counts from the release
 * -DOF_QUORUM    the minimum is taken to count from the grant that made the quorum
 */
#ifndef TTL
#define TTL 1
#endif
#ifndef MINIMUM
#define MINIMUM 3
#endif
#ifndef LOSSES
#define LOSSES 0
#endif
#ifndef QUARANTINE
#define QUARANTINE MINIMUM
#endif
#ifndef TIME
#define TIME 2*MINIMUM + TTL
#endif
#define QUORUM   2
#define MAX(x,y) ((x) > (y) -> (x) : (y))
#define MIN(x,y) ((x) < (y) -> (x) : (y))
#define NAME(n)  ('A'+(n))

/* ---- the masters ---- */
byte left[3];           /* ticks until the hold expires; 0: it does not stand */
byte age[3];            /* ticks since it was granted there, up to MINIMUM */
bit  ended[3];          /* its process has released it */
byte away[3];           /* ticks until it grants holds again */
byte losses = LOSSES;
byte time = TIME;

/* ---- the first process ---- */
#define ASKING 0
#define HELD   1
#define OVER   2
byte phase;
byte held;              /* ticks since it learnt of the grant, up to MINIMUM */
bit  acquire[3];        /* requests on their way */
byte renew[3];          /* 1 + the ticks that it asks for */
bit  release[3];
byte rest[3];           /* what was left of the minimum when the release was sent */
bit  granted[3];        /* answers */

/* ---- the second ---- */
bit  second[3];         /* granted there */
bit  done;
byte since;             /* 1 + the ticks since a master first granted the first process the lock, up to MINIMUM */

#define MUST(ok, what) \
  if :: (ok) -> skip :: else -> printf("violates %e\n", what); assert(ok) fi
mtype = { once, late, goal }

#ifdef OF_QUORUM
#define COUNTS QUORUM
#else
#define COUNTS 1
#endif
#define STANDS (left[0] > 0) + (left[1] > 0) + (left[2] > 0)
#ifdef TTL_ONLY
#define LASTS    TTL
#define EXTENDED TTL
#elif defined(CUTS)
#define LASTS    MAX(TTL, MINIMUM)
#define EXTENDED TTL
#else
#define LASTS    MAX(TTL, MINIMUM)
#define EXTENDED MAX(TTL, MINIMUM - held)
#endif
inline executeAcquire(n) {
  d_step { acquire[n] && left[n] == 0 && away[n] == 0 && !second[n] ->
    acquire[n] = 0; left[n] = LASTS; age[n] = 0; ended[n] = 0;
    if :: phase == ASKING -> granted[n] = 1 :: else -> skip fi;
    printf("  %c grants the first process the lock\n", NAME(n));
    if :: since == 0 && STANDS >= COUNTS -> since = 1 :: else -> skip fi
  }
}
inline begin() {
  d_step { phase == ASKING && granted[0] + granted[1] + granted[2] >= QUORUM &&
    (granted[0] && left[0] > 0) + (granted[1] && left[1] > 0) + (granted[2] && left[2] > 0) >= QUORUM ->
    phase = HELD; held = 0;
    printf("the first process works\n")
  }
}
inline askRenewal() {
  d_step { phase == HELD && !renew[0] && !renew[1] && !renew[2] ->
    renew[0] = 1 + EXTENDED; renew[1] = 1 + EXTENDED; renew[2] = 1 + EXTENDED;
    printf("the first process renews\n")
  }
}
#ifdef RENEWED
#define RENEWABLE(n) (left[n] > 0)
#else
#define RENEWABLE(n) (left[n] > 0 && !ended[n])
#endif
/* The trust in a renewal does not matter here: a lease that has ended does not come back. */
inline executeRenewal(n) {
  d_step { renew[n] > 0 ->
    if :: RENEWABLE(n) -> left[n] = renew[n] - 1; printf("  %c renews it\n", NAME(n)) :: else -> skip fi;
    renew[n] = 0;
    MUST(!ended[n] || left[n] + age[n] <= MINIMUM, late)
  }
}
/* The caller releases the lease, or the process closes. */
inline leave() {
  d_step { phase == HELD ->
    phase = OVER; printf("the first process releases the lock\n");
    release[0] = 1; release[1] = 1; release[2] = 1;
    rest[0] = MINIMUM - held; rest[1] = MINIMUM - held; rest[2] = MINIMUM - held
  }
}
#if defined(ANEW)
#define KEPT(n) MINIMUM
#elif defined(FREES)
#define KEPT(n) 0
#else
#define KEPT(n) MIN(MINIMUM - age[n], rest[n])
#endif
inline executeRelease(n) {
  d_step { release[n] ->
    release[n] = 0;
    if
    :: left[n] > 0 && !ended[n] ->
       left[n] = KEPT(n); ended[n] = 1;
       printf("  %c keeps it for %d\n", NAME(n), left[n])
    :: else -> skip
    fi;
    acquire[n] = 0;
    MUST(!ended[n] || left[n] + age[n] <= MINIMUM, late)
  }
}

inline lose(n) {
  d_step { losses > 0 && left[n] > 0 ->
    losses--; left[n] = 0; ended[n] = 0; away[n] = QUARANTINE;
    printf("  %c loses its data\n", NAME(n))
  }
}
inline enter(n) {
  d_step { phase != ASKING && left[n] == 0 && away[n] == 0 && !second[n] ->
    second[n] = 1; printf("  %c grants the second process the lock\n", NAME(n));
    if
    :: !done && second[0] + second[1] + second[2] >= QUORUM ->
       done = 1; printf("the second process works\n");
       MUST(since > MINIMUM, once);
#ifdef GOAL
       MUST(false, goal);
#endif
    :: else -> skip
    fi
  }
}

inline pass(n) {
  if
  :: left[n] == 1 -> left[n] = 0; ended[n] = 0; printf("  it expires on %c\n", NAME(n))
  :: left[n] > 1 -> left[n]--
  :: else -> skip
  fi;
  if :: left[n] > 0 && age[n] < MINIMUM -> age[n]++ :: else -> skip fi;
  if :: left[n] == 0 -> age[n] = 0 :: else -> skip fi;
  if :: away[n] > 0 -> away[n]-- :: else -> skip fi
}
inline tick() {
  d_step { time > 0 ->
    time--; printf("a tick\n");
    pass(0); pass(1); pass(2);
    if :: phase != ASKING && held < MINIMUM -> held++ :: else -> skip fi;
    if :: since > 0 && since <= MINIMUM -> since++ :: else -> skip fi
  }
}

active proctype World() {
  d_step { acquire[0] = 1; acquire[1] = 1; acquire[2] = 1 }
end: do
  :: tick()
  :: executeAcquire(0) :: executeAcquire(1) :: executeAcquire(2)
  :: begin() :: askRenewal() :: leave()
  :: executeRenewal(0) :: executeRenewal(1) :: executeRenewal(2)
  :: executeRelease(0) :: executeRelease(1) :: executeRelease(2)
  :: lose(0) :: lose(1) :: lose(2)
  :: enter(0) :: enter(1) :: enter(2)
  od
}
