/* token_lower.pml: a counter that is ahead of its master's clock, and goes back. */
#ifdef CLOCK
/* A master mints below its clock's bound, unless its counter is beyond: a clock that was ahead left it there. */
#define AHEAD(n)      (counter[n] > CLOCK)
#define MAYMINT(h,n)  (value[AT(h,n)] != 0 || AHEAD(n) || MAX(LASTBELOW(h,n), FLOOR(n)) < clock)
#define ALLOWED(v)    ((v) <= clock)
#ifdef LOWERS_TO_TOKEN
#define LOWEST        token
#else
#define LOWEST        clock
#endif
inline tick() {
  d_step { clock < CLOCK -> clock++; printf("  the clock allows %d\n", clock) }
}
inline jump(n) {
  d_step { jumps > 0 && !AHEAD(n) && FIRST(n) ->
    jumps--; TOUCH(n); counter[n] = CLOCK+1;
    printf("  the clock of %c was ahead: its counter is %d\n", NAME(n), counter[n])
  }
}
#else
#define MAYMINT(h,n)  true
#define ALLOWED(v)    true
#define LOWEST        token
#endif

#if defined(REGAIN_LOWERS) || defined(RELEASE_LOWERS)
#ifdef CLOCK
#define ALLOWSBACK(n) (AHEAD(n) && token <= clock)
#else
#define ALLOWSBACK(n) true
#endif
/* The grant of a write that the message names stands, and is the last that was counted. */
#if defined(LOWERS_GONE)
#define MAYLOWER(h,n,grant) (!reader[h] && ALLOWSBACK(n))
#elif defined(LOWERS_UNNAMED)
#define MAYLOWER(h,n,grant) (!reader[h] && ALLOWSBACK(n) && value[AT(h,n)] != 0 && value[AT(h,n)] == counter[SERVER(h,n)])
#else
#define MAYLOWER(h,n,grant) (!reader[h] && ALLOWSBACK(n) && (grant) != 0 && value[AT(h,n)] == (grant) && \
                             (grant) == counter[SERVER(h,n)])
#endif
inline lower(h, n) {
  counter[SERVER(h,n)] = LOWEST;
#ifdef READERS
  writeCounter[n] = LOWEST;
#endif
  printf("  %c sets its counter back to %d\n", NAME(n), counter[SERVER(h,n)])
}
#endif

#ifdef RELEASE_LOWERS
/* A valid hold is released, and the message names the larger grant of this master that its client knows. */
#ifdef LOWERS_UNNAMED
#define NAMED(h,n)   1
#define OUTRUN(h,n)  true
#else
#define NAMED(h,n)   (OUTRUN(h,n) -> value[AT(h,n)] : 0)
#define OUTRUN(h,n)  (value[AT(h,n)] > token)
#endif
inline leaveNamed(h) {
  d_step { phase[h] == HELD && (OUTRUN(h,0) || OUTRUN(h,1) || OUTRUN(h,2)) ->
    named[AT(h,0)] = NAMED(h,0); named[AT(h,1)] = NAMED(h,1); named[AT(h,2)] = NAMED(h,2);
    printf("%c%d releases, and names %d %d %d\n", KIND(h), h, named[AT(h,0)], named[AT(h,1)], named[AT(h,2)]);
    leave(h); forget(h)
  }
}
inline executeNamed(h, n) {
  atomic { named[AT(h,n)] != 0 && UP(n) ->
    d_step {
      printf("  %c: %c%d is released\n", NAME(n), KIND(h), h);
      if :: value[AT(h,n)] > token && MAYLOWER(h,n,named[AT(h,n)]) -> lower(h,n) :: else -> skip fi;
      value[AT(h,n)] = 0
    }
#ifdef REPEATED
    if :: named[AT(h,n)] = 0 :: skip fi;
#else
    named[AT(h,n)] = 0;
#endif
    forget(h)
  }
}
#endif
