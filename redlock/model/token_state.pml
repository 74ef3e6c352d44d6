/* token_state.pml: what token.pml remembers, and its properties' words. */
#ifndef HOLDS
#define HOLDS 2
#endif
#if HOLDS < 2 || HOLDS > 4 || HOLDS == 4 && (LOSSES > 0 || !defined(ADOPT))
#error "HOLDS is 2 or 3, or 4 with ADOPT and without losses"
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
#ifdef FORK
#if defined(READERS) || defined(REGAIN) || LOSSES > 0 || START > 0
#error "FORK is for writes without losses and without a past"
#endif
#define SERVERS 4
bit  moved[HOLDS];            /* the client's third master is D, a copy of C */
#define SERVER(h,n)  (moved[h] && (n) == 2 -> 3 : (n))
#define MEETS(g,h,n) ((n) != 2 || moved[g] == moved[h])
#else
#define SERVERS MASTERS
#define SERVER(h,n)  (n)
#define MEETS(g,h,n) true
#endif
byte counter[SERVERS];        /* t: the largest value of any grant */
#ifdef READERS
byte writeCounter[MASTERS];   /* tw: the largest value of a write grant */
#define WRITECOUNTER(n) writeCounter[n]
#else
#define WRITECOUNTER(n) 0
#endif
byte value[CELLS];      /* the hold's value on the master; 0: it has no grant there */
byte dups = DUPS;

/* ---- the clients: what others look at too ---- */
#define IDLE    0
#define ASKING  1
#define RAISING 2       /* the token is formed, the masters that have it are counted */
#define HELD    3       /* reported, and valid still */
#define OVER    4
#define SUSPENDED 5     /* no more valid, and not aware of it */
#define DETACHED 6      /* left to other processes */
#define TAKING   7      /* granted, and waits for the release of the hold that it adopts */
byte phase[HOLDS];
bit  reader[HOLDS];
bit  counted[CELLS];
bit  lapsed[CELLS];     /* the grant behind the answer has run out, and the client's trust in it before that */
byte starts;
#ifdef REGAIN
#ifdef REGAINS
byte regains = REGAINS;
#endif
#ifdef YIELDS
byte yields = YIELDS;
#endif
#ifdef REGAIN_LOWERS
byte own[CELLS];        /* the grant of the master that the message names */
#endif
bit  regain[CELLS];     /* a message that asks the master for the grant again */
bit  trusted[CELLS];    /* ... from a client that trusts in that master's own grant still */
#ifdef NO_TOMBSTONE
bit  gone[CELLS];       /* the release has been executed */
#endif
#endif
#ifdef RELEASE_LOWERS
byte named[CELLS];      /* a release on its way, and the grant of the master that it names */
#endif
#ifdef CLOCK
#ifndef JUMPS
#define JUMPS 1
#endif
byte clock = 1;         /* the largest value that a master's clock allows */
byte jumps = JUMPS;
#endif
#ifdef GUARD
byte maxW;              /* the storage's registers */
byte maxR;
bit  fenced[HOLDS];     /* a newer holder has been at the storage */
#endif

/* ---- what has been reported, for the properties ---- */
byte newest;            /* the largest token reported */
byte newestWrite;       /* the largest reported by a writer */
#if defined(ANY_TIME) || defined(READERS)
int  used;              /* the set of all reported; where order is checked and all are writes, that implies unique */
int  usedByWrites;
#endif

/* ---- choices within one step: 0 between steps ---- */
bit  capped;            /* the master's cap makes it ignore the proposal */
bit  deaf;              /* the client does not hear this answer: of two grants it may hear the first or the second */
byte picked;            /* the answers that decide() works on */
byte minted;            /* the value that mint() makes */

#if LOSSES > 0
#if defined(UNNOTICED) && !defined(ROLLBACK)
#error "UNNOTICED is for ROLLBACK"
#endif
byte losses = LOSSES;
byte floor[MASTERS];    /* what the master's clock has passed when it votes again */
bit  away[MASTERS];     /* has lost its data, and abstains */
bit  forgot[CELLS];     /* the hold had a grant there, lost with the data: the client trusts in it still */
#ifdef ROLLBACK
byte savedOf;           /* 1 + the master whose snapshot this is */
byte savedCounter;
byte savedWriteCounter;
byte savedValue[HOLDS];
#ifdef UNNOTICED
bit  unseen[MASTERS];   /* it has come back, and no client has noticed: it has its marker of before */
#ifdef SETTLE_UNNOTICED
bit  savedWaits[HOLDS];
bit  waits[CELLS];      /* the hold is in the queue that came back with the snapshot */
#endif
#endif
bit  zombie[CELLS];     /* the grant came back with the snapshot, and has not been renewed since */
#endif
#define UP(n)      (!away[n])
#ifdef UNNOTICED
#define SEEN(n)    (!unseen[n])
#else
#define SEEN(n)    true
#endif
#else
#define UP(n)      1
#endif
#if LOSSES > 0 && defined(ROLLBACK) && defined(EXPIRED_STAYS)
/* The expiry in the record is an absolute time: what has run out before the loss has run out after it. */
#define REMEMBERED(h,n) if :: savedOf == n+1 -> savedValue[h] = 0 :: else -> skip fi
#else
#define REMEMBERED(h,n) skip
#endif

#ifdef SILENT
#define LISTENS 0
#else
#define LISTENS 1
#endif

/* Masters that nothing has happened on are alike: they are named in the order of their first event. */
#if START == 0
bit touched[MASTERS];
#define TOUCH(n)   touched[n] = 1
#ifdef FORK
#define FIRST(n)   ((n) != 1 || touched[0])
#else
#define FIRST(n)   (n == 0 || touched[(n+2) % 3])
#endif
#else
#define TOUCH(n)   skip
#define FIRST(n)   1
#endif

#ifdef ADOPT
#define ADOPTS(h)   ((h) >= 1 && (h) <= ADOPT)
byte ticket;            /* the token of the detached hold */
bit  succeeded;         /* an adopter */
byte adopter[MASTERS];  /* what the detached hold says of its adopter: the latest */
#ifdef REGAIN
bit  tombstone[MASTERS]; /* of the detached hold */
#define TOMBSTONE(n) tombstone[n] = 1
#else
#define TOMBSTONE(n) skip
#endif
#ifdef BREAK
bit  broken[MASTERS];   /* the detached hold, while it stood there */
#define BROKEN(n) broken[n]
#define BROKENON  (broken[0] + broken[1] + broken[2])
#else
#define BROKEN(n) false
#define BROKENON  0
#endif
#ifdef FORGED
bit  knows[HOLDS];      /* the adopter has the secret of the mark */
bit  marked[MASTERS];   /* the hold, which may be detached or not */
#define UNMARK(h,n) if :: h == 0 -> marked[n] = 0 :: else -> skip fi
#define ISLEFT      (phase[0] == HELD || phase[0] == DETACHED)
#else
#define UNMARK(h,n) skip
#define ISLEFT      (phase[0] == DETACHED)
#endif
#if !defined(FORGED) || defined(ADOPT_UNMARKED)
#define PROVES(h,n) true
#elif defined(ADOPT_ANY_MARK)
#define PROVES(h,n) marked[n]
#else
#define PROVES(h,n) (marked[n] && knows[h])
#endif
#ifdef ADOPT_RIVALS
#define RIVALSTANDS(h,n) false
#else
#define RIVALSTANDS(h,n) (adopter[n] != 0 && adopter[n] != h && value[AT(adopter[n],n)] != 0)
#endif
/* The acquire script grants an adoption where the detached hold stands, and looks at no other hold but its adopter. */
#define MAYADOPT(h,n) (!ADOPTS(h) || value[AT(h,n)] != 0 || \
                       (value[AT(0,n)] == ticket && PROVES(h,n) && !BROKEN(n) && !RIVALSTANDS(h,n)))
#define MARK(h,n)   if :: ADOPTS(h) -> adopter[n] = h :: else -> skip fi
#define BARSTO(h)   (!ADOPTS(h))
#define TAKEN(h)    (!ADOPTS(h) || had[0] + had[1] + had[2] >= QUORUM)
#define GRANTED(h)  (ADOPTS(h) -> TAKING : RAISING)
#else
#define ADOPTS(h)   false
#define MAYADOPT(h,n) true
#define MARK(h,n)   skip
#define BARSTO(h)   true
#define TAKEN(h)    true
#define adopted(h)  skip
#define GRANTED(h)  RAISING
#endif
#if defined(UPGRADE)
#define STRANGERS(g,h) ((g) != (h) && (g) + (h) != 1)  /* a read and the write that takes its place do not bar each other */
#else
#define STRANGERS(g,h) ((g) != (h))
#endif
#if defined(UPGRADE) || defined(ADOPT)
byte writtenBefore;     /* the largest token of a write when hold 0 was reported */
#endif
#define BARS(g,h,n) (BARSTO(h) && STRANGERS(g,h) && MEETS(g,h,n) && value[AT(g,n)] != 0 && !(reader[g] && reader[h]))
#if HOLDS == 2
#define BUSY(h,n)   (BARS(0,h,n) || BARS(1,h,n))
#elif HOLDS == 3
#define BUSY(h,n)   (BARS(0,h,n) || BARS(1,h,n) || BARS(2,h,n))
#else
#define BUSY(h,n)   (BARS(0,h,n) || BARS(1,h,n) || BARS(2,h,n) || BARS(3,h,n))
#endif
#define STANDS(h,n) (counted[AT(h,n)] && !lapsed[AT(h,n)])
#define VALID(h)    (STANDS(h,0) + STANDS(h,1) + STANDS(h,2) >= QUORUM)
#define COUNTED(h)  (counted[AT(h,0)] + counted[AT(h,1)] + counted[AT(h,2)] >= QUORUM)
#define RIVAL(g,h)  (STRANGERS(g,h) && phase[g] == HELD && !(reader[g] && reader[h]))
#if HOLDS == 2
#define ALONE(h)    (!RIVAL(0,h) && !RIVAL(1,h))
#elif HOLDS == 3
#define ALONE(h)    (!RIVAL(0,h) && !RIVAL(1,h) && !RIVAL(2,h))
#else
#define ALONE(h)    (!RIVAL(0,h) && !RIVAL(1,h) && !RIVAL(2,h) && !RIVAL(3,h))
#endif
#ifdef REGAIN_UNCONFIRMED
#define LOSELEASE(h) phase[h] = SUSPENDED
#else
#define LOSELEASE(h) leave(h)
#endif
#define MUST(ok, what) \
  if :: (ok) -> skip :: else -> printf("violates %e\n", what); assert(ok) fi
mtype = { gap, once, survives, exclusion, fresh, order, unique, stale, refused, overtaken, ghost, goal,
          releases, givesUp, released, expires, trusting, lost, stood, was_gone, valid, over }
