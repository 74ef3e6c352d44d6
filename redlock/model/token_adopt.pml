/* token_adopt.pml: hold 0 is detached, and one of the others goes on with it. */
#ifdef ADOPT

/* The lease has ended when the ticket exists. The masters keep the hold until it runs out or is released. */
inline detach(h) {
  d_step { h == 0 && phase[h] == HELD ->
    printf("%c%d is detached, token %d\n", KIND(h), h, token);
    leave(h); phase[h] = DETACHED; ticket = token
  }
}

#ifdef FORGED
/* The mark is executed at any moment, or never: for a Detach that succeeds or fails, and after one that succeeded. */
inline executeMark(h, n) {
  d_step { h == 0 && ISLEFT && !marked[n] && value[AT(0,n)] == ticket ->
    printf("  %c marks %c0\n", NAME(n), KIND(0));
    marked[n] = 1
  }
}
#endif

#ifdef DETACHED_FIRST
/* Hold 0 has been detached before the first step. The third master may have it, or another hold's value. */
inline detachedFirst() {
  starts = 1; phase[0] = DETACHED; ticket = 1; newest = 1;
#ifdef READERS
  reader[0] = KINDS & 1;
#endif
  if :: !reader[0] -> newestWrite = 1 :: else -> skip fi;
  writtenBefore = newestWrite;
  value[AT(0,0)] = 1; count(0, 0, 1); TOUCH(0);
  value[AT(0,1)] = 1; count(0, 1, 1); TOUCH(1);
#ifndef SILENT
  if :: value[AT(0,2)] = 1; count(0, 2, 1); TOUCH(2) :: skip fi
#endif
}
#endif

/* A quorum has granted the adoption: the adopter asks all masters to release the detached hold. */
inline take(h) {
  d_step { ADOPTS(h) && phase[h] == RAISING && MAYREPORT(h) ->
    printf("%c%d is granted %d, and asks for the release of %c0\n", KIND(h), h, token, KIND(0));
    phase[h] = TAKING;
#ifdef ADOPT_UNTAKEN
    had[0] = 1; had[1] = 1; had[2] = 1;
#endif
    release[0] = 1; release[1] = 1; release[2] = LISTENS
  }
}

#ifdef BREAK
/* An operator breaks hold 0, at any moment. */
inline executeBreak(h, n) {
  d_step { h == 0 && !broken[n] && value[AT(0,n)] != 0 ->
    printf("  %c breaks %c0\n", NAME(n), KIND(0));
    broken[n] = 1
  }
}
#ifdef ADOPT_BREAK_UNTOLD
#define TELLSOFBREAK(n) false
#else
#define TELLSOFBREAK(n) (broken[n] && value[AT(0,n)] != 0)
#endif
#else
#define TELLSOFBREAK(n) false
#endif
#ifdef ADOPT_HAD_ANY
#define COUNTSRELEASE(n) true
#else
#define COUNTSRELEASE(n) (value[AT(0,n)] != 0)
#endif
/* The release script, executed at any later moment, also for an adopter that has failed. Its answer may be lost. */
inline executeTake(h, n) {
  atomic { release[n] ->
#ifdef LEAN
    release[n] = 0;
#else
    if :: release[n] = 0 :: skip fi;
#endif
    if :: skip :: deaf = 1 fi;
    d_step {
      printf("  %c releases %c0 to %c%d: it %e\n", NAME(n), KIND(0), KIND(h), h, (value[AT(0,n)] -> stood : was_gone));
      if
      :: !deaf && phase[h] == TAKING && TELLSOFBREAK(n) -> leave(h); forget(h)
      :: !deaf && phase[h] == TAKING && !TELLSOFBREAK(n) && COUNTSRELEASE(n) -> had[n] = 1
      :: else -> skip
      fi;
      value[AT(0,n)] = 0; deaf = 0;
      TOMBSTONE(n)
    }
  }
}
inline adopted(h) {
  if
  :: ADOPTS(h) ->
     MUST(!succeeded, once);
     MUST(token > ticket, order);
     MUST(newestWrite == writtenBefore, gap);
     MUST(BROKENON < QUORUM, survives);
     succeeded = 1
  :: else -> skip
  fi
}
#endif
