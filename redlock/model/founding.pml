/* founding.pml: a set is founded on three masters that have no markers, and masters lose their data meanwhile.
 *
 * Two clients look at the masters, one after the other; any of them may not answer. They give markers
 * to those that have none, and take one lock for writing, again and again. The steps of both, and the losses, come in
 * any order, so a message may be as late as a run lasts. Time goes in ticks, at the same rate everywhere. A client
 * trusts its lease for TTL ticks from its first request. A master votes if it has a marker and does not abstain; that
 * a vote names the marker which the client has read is left out, and so is all that depends on it.
 *
 * -DTTL=k          ticks: 2 (default)
 * -DTIME=k         ticks in a run
 * -DLOSSES=k       how often a master loses its data
 * -DLOOKS=k        how often each client looks at the masters: 1 (default)
 * -DNAMERS         each client names its set on another master: their lists are in another order, and hide the run ids
 * -DWORD           client 0 founds the set by the word that the masters are new: it goes on only if all three have
 *                  answered, and none has a marker or a grant; those that get their marker from it vote at once. It
 *                  may stop half way. No master loses data before it has begun its last step, or has stopped.
 * Shortcuts, each of which is refuted:
 * -DFALSE_WORD     the same, and masters lose data at any time
 * -DAT_ONCE=k      if all masters have answered and none had a marker, those that get one within k ticks of the
 *                  client's look vote at once
 * -DSHORT          a master abstains for less than the TTL
 * -DFROM_LOOK      the abstention begins with the look that has found no marker
 * -DUNMARKED_VOTES a master without a marker votes
 * -DMOVED_AT_ONCE  a master that leaves another set votes at once
 */
#ifndef TTL
#define TTL 2
#endif
#ifndef TIME
#define TIME 5
#endif
#ifndef LOSSES
#define LOSSES 1
#endif
#ifndef LOOKS
#define LOOKS 1
#endif
#ifdef FALSE_WORD
#define WORD
#endif
#ifdef WORD
#define WORDS(c) (c == 0)
#else
#define WORDS(c) 0
#endif
#define NAME(n)   ('A'+(n))
#define AT(c,n)   ((c)*3+(n))
#define MUST(ok, what) \
  if :: (ok) -> skip :: else -> printf("violates %e\n", what); assert(ok) fi
mtype = { exclusion };

/* ---- the masters ---- */
byte set[3];            /* 0: no marker */
byte abstains[3];       /* ticks */
byte grant[3];          /* client + 1 */
byte left[3];           /* ticks until the grant expires */
byte losses = LOSSES;
byte time = TIME;

/* ---- the clients ---- */
#define UNASKED  0
#define SILENT   9
#define UNMARKED 8      /* below it: the set */
byte saw[6];
byte looks[2] = LOOKS - 1;
byte age[2];            /* ticks since the first look */
byte name[2];           /* of the set to which the client takes masters */
bit  fresh[2];          /* it has seen three masters without a marker */
bit  word = WORDS(0);   /* what client 0 does is by its word, and is not over */
byte has[2];            /* grants of the acquisition that is under way */
byte trust[2];          /* ticks; of a lease, or of an acquisition that is under way */
#define HELD(c) (has[c] >= 2 && trust[c] > 0)

#ifdef NAMERS
#define FIRST(c) c
#else
#define FIRST(c) 0
#endif
#define SAWALL(c)  (saw[AT(c,0)] != UNASKED && saw[AT(c,1)] != UNASKED && saw[AT(c,2)] != UNASKED)
#define SAW(c,s)   ((saw[AT(c,0)] == s) + (saw[AT(c,1)] == s) + (saw[AT(c,2)] == s))

#define ISNEXT(c,n) (saw[AT(c,n)] == UNASKED && (n == FIRST(c) || saw[AT(c,(n+2)%3)] != UNASKED))
inline look(c, n) {
  d_step { name[c] == 0 && ISNEXT(c,n) && !(WORDS(c) && word && (set[n] != 0 || grant[n] != 0)) ->
    saw[AT(c,n)] = (set[n] == 0 -> UNMARKED : set[n]);
    printf("  client %d sees %c in set %d\n", c, NAME(n), set[n])
  }
}
inline miss(c, n) {
  d_step { name[c] == 0 && ISNEXT(c,n) && !(WORDS(c) && word) -> saw[AT(c,n)] = SILENT }
}

#ifdef SHORT
#define QUARANTINE (TTL-1)
#else
#define QUARANTINE TTL
#endif
inline mark(c, n) {
  set[n] = name[c]; abstains[n] = QUARANTINE;
#ifdef WORD
  if :: WORDS(c) && word -> abstains[n] = 0 :: else -> skip fi;
#endif
#ifdef AT_ONCE
  if :: fresh[c] && age[c] <= AT_ONCE -> abstains[n] = 0 :: else -> skip fi;
#endif
#ifdef FROM_LOOK
  abstains[n] = (age[c] >= TTL -> 0 : TTL - age[c]);
#endif
  printf("  client %d takes %c to set %d; it abstains for %d\n", c, NAME(n), name[c], abstains[n])
}
inline settle(c, n) {
  if :: saw[AT(c,n)] == name[c] -> saw[AT(c,n)] = SILENT :: else -> skip fi  /* nothing is to be done there */
}
/* The set that most masters have shown, or a new one: named where nobody has named another. */
inline conclude(c) {
  d_step { name[c] == 0 && SAWALL(c) && SAW(c,UNMARKED) + SAW(c,1) + SAW(c,2) > 0 ->
#ifdef AT_ONCE
    fresh[c] = (SAW(c,UNMARKED) == 3);
#endif
    if
    :: SAW(c,1) > 0 && SAW(c,1) >= SAW(c,2) -> name[c] = 1
    :: SAW(c,2) > 0 && SAW(c,2) > SAW(c,1) -> name[c] = 2
    :: SAW(c,1) + SAW(c,2) == 0 -> name[c] = c + 3  /* to be named */
    fi;
    settle(c,0); settle(c,1); settle(c,2)
  }
}
inline nameIt(c, n) {
  d_step { name[c] > 2 && saw[AT(c,n)] == UNMARKED && (n == FIRST(c) || saw[AT(c,FIRST(c))] == SILENT) ->
    name[c] = name[c] - 2;
    if :: set[n] == 0 -> mark(c,n) :: else -> name[c] = set[n] fi;
    saw[AT(c,n)] = SILENT
  }
}
inline join(c, n) {
  d_step { name[c] != 0 && name[c] <= 2 && saw[AT(c,n)] == UNMARKED ->
    if :: set[n] == 0 -> mark(c,n) :: else -> skip fi;
    saw[AT(c,n)] = SILENT
  }
}
inline move(c, n) {
  d_step { name[c] != 0 && name[c] <= 2 && saw[AT(c,n)] == 3 - name[c] ->
    if
    :: set[n] == 3 - name[c] -> mark(c,n);
#ifdef MOVED_AT_ONCE
       abstains[n] = 0;
#endif
    :: else -> skip
    fi;
    saw[AT(c,n)] = SILENT
  }
}
inline lookAgain(c) {
  d_step { SAWALL(c) && trust[c] == 0 && looks[c] > 0 ->
    looks[c]--; saw[AT(c,0)] = UNASKED; saw[AT(c,1)] = UNASKED; saw[AT(c,2)] = UNASKED;
    name[c] = 0; age[c] = 0; fresh[c] = 0
  }
}

#ifdef WORD
/* Client 0 has marked all, or gives up: what it has not sent by then is not sent. It goes on as any client does. */
inline wordIsOver() {
  d_step { word == 1 ->
    word = 0; name[0] = 0; saw[AT(0,0)] = UNASKED; saw[AT(0,1)] = UNASKED; saw[AT(0,2)] = UNASKED;
    printf("  client 0 is no more bound by its word\n")
  }
}
#endif

/* A client that has looked once acquires, also while another look of its process is under way. */
inline begin(c) {
  d_step { trust[c] == 0 && name[c] != 0 && name[c] <= 2 && time >= 1 ->
    has[c] = 0; trust[c] = TTL
  }
}
#ifdef UNMARKED_VOTES
#define VOTES(n) (set[n] == 0 || abstains[n] == 0)
#else
#define VOTES(n) (set[n] != 0 && abstains[n] == 0)
#endif
inline ask(c, n) {
  d_step { trust[c] > 0 && has[c] < 2 && VOTES(n) && grant[n] == 0 ->
    grant[n] = c + 1; left[n] = TTL; has[c]++;
    printf("  client %d is granted the lock by %c\n", c, NAME(n));
    MUST(!(HELD(0) && HELD(1)), exclusion)
  }
}

#if defined(WORD) && !defined(FALSE_WORD)
#define MAYLOSE (word == 0)
#else
#define MAYLOSE 1
#endif
inline lose(n) {
  d_step { losses > 0 && (set[n] != 0 || grant[n] != 0) && MAYLOSE ->
    losses--; set[n] = 0; abstains[n] = 0; grant[n] = 0; left[n] = 0;
    printf("  %c loses its data\n", NAME(n))
  }
}
inline passMaster(n) {
  if :: abstains[n] > 0 -> abstains[n]-- :: else -> skip fi;
  if :: left[n] > 0 -> left[n]-- :: else -> skip fi;
  if :: left[n] == 0 -> grant[n] = 0 :: else -> skip fi
}
inline passClient(c) {
  if :: trust[c] > 0 -> trust[c]-- :: else -> skip fi;
#if defined(AT_ONCE) || defined(FROM_LOOK)
  if :: age[c] < TTL && saw[AT(c,0)] + saw[AT(c,1)] + saw[AT(c,2)] > 0 -> age[c]++ :: else -> skip fi;
#endif
  if :: trust[c] == 0 -> has[c] = 0 :: else -> skip fi
}
inline tick() {
  d_step { time > 0 -> time--;
    passMaster(0); passMaster(1); passMaster(2); passClient(0); passClient(1);
    printf("  time goes on\n")
  }
}

active proctype Run() {
end: do
  :: look(0,0) :: look(0,1) :: look(0,2) :: look(1,0) :: look(1,1) :: look(1,2)
  :: miss(0,0) :: miss(0,1) :: miss(0,2) :: miss(1,0) :: miss(1,1) :: miss(1,2)
  :: conclude(0) :: conclude(1)
  :: nameIt(0,0) :: nameIt(0,1) :: nameIt(0,2) :: nameIt(1,0) :: nameIt(1,1) :: nameIt(1,2)
  :: join(0,0) :: join(0,1) :: join(0,2) :: join(1,0) :: join(1,1) :: join(1,2)
#ifdef NAMERS
  :: move(0,0) :: move(0,1) :: move(0,2) :: move(1,0) :: move(1,1) :: move(1,2)
#endif
  :: lookAgain(0) :: lookAgain(1)
#ifdef WORD
  :: wordIsOver()
#endif
  :: begin(0) :: begin(1)
  :: ask(0,0) :: ask(0,1) :: ask(0,2) :: ask(1,0) :: ask(1,1) :: ask(1,2)
  :: lose(0) :: lose(1) :: lose(2)
  :: tick()
  od
}
