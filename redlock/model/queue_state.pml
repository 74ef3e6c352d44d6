/* queue_state.pml: what queue.pml remembers, and its words. */
#ifndef HOLDS
#define HOLDS 2
#endif
#if HOLDS < 2 || HOLDS > 3
#error "HOLDS is 2 or 3"
#endif
#ifndef GRANTS
#define GRANTS 3
#endif
#define MANY    10      /* grants of one master: a run that has so many goes on for ever */
#define MASTERS 3
#define QUORUM  2
#define AT(h,n)  ((h)*MASTERS+(n))
#define CELLS    (HOLDS*MASTERS)
#define NAME(n)  ('A'+(n))

/* ---- the masters ---- */
byte counter[MASTERS];
byte value[CELLS];      /* the hold's grant on the master; 0: none */
bit  waits[CELLS];
#ifdef PASSED
bit  aside[CELLS];      /* passed over */
bit  back[CELLS];       /* it waits again, and is not passed over again */
#ifdef MISSES
byte misses = MISSES;
#endif
byte missed;            /* within one step: the holds whose message reaches nobody */
#endif
/* ---- the clients ---- */
#define IDLE    0
#define WAITING 1
#define HELD    2
#define OVER    3
byte phase[HOLDS];
byte heard[CELLS];      /* the grant that the client counts; 0 again when it has run out, which the client knows */
byte yielded[CELLS];    /* the grant that the client has given back: news of it is stale */
byte yieldSent[CELLS];  /* a yield that may still be executed, by the grant that it names */
#ifdef CALM
bit  asked[CELLS];      /* the acquire is still to be executed */
bit  leaving[CELLS];    /* the release is still to be executed */
#endif

/* Masters that nothing has happened on are alike: they are named in the order of their first event. */
bit touched[MASTERS];
#ifdef CUT_OFF
#define FIRST(n)    true
#define CUTOFF(h)   ((h) == 0)
#define REACHES(h,n) ((n) == 0 || ((n) == 1 && !CUTOFF(h)))
#else
#define FIRST(n)    (n == 0 || touched[(n+2) % 3])
#define CUTOFF(h)   false
#define REACHES(h,n) 1
#endif

#ifdef CALM
#define ROOM(n)     1
#else
#define ROOM(n)     (counter[n] < GRANTS)
#endif
#ifdef YIELD_TO_ASIDE
#define STANDSBY(h,n) (waits[AT(h,n)] || aside[AT(h,n)])
#else
#define STANDSBY(h,n) waits[AT(h,n)]
#endif
#define HEARD(h)    ((heard[AT(h,0)] != 0) + (heard[AT(h,1)] != 0) + (heard[AT(h,2)] != 0))
#define VALID(h)    (HEARD(h) >= QUORUM)
#if HOLDS == 2
#define OLDER(h,n)  (h == 1 && STANDSBY(0,n))
#define FREE(n)     (!value[AT(0,n)] && !value[AT(1,n)])
#define ALONE       ((phase[0] == HELD) + (phase[1] == HELD) <= 1)
#else
#define OLDER(h,n)  ((h > 0 && STANDSBY(0,n)) || (h > 1 && STANDSBY(1,n)))
#define FREE(n)     (!value[AT(0,n)] && !value[AT(1,n)] && !value[AT(2,n)])
#define ALONE       ((phase[0] == HELD) + (phase[1] == HELD) + (phase[2] == HELD) <= 1)
#endif
