/* token_regain.pml: a hold that a quorum has is acquired again, with its token, where a master says that it is gone, or
 * has granted it late with another value. Where another hold stands, it waits to be granted there, with another value.
 */
#ifdef REGAIN

#ifdef REGAINS
#define MAYREGAIN (regains > 0)
#define REGAINED  regains--
#else
#define MAYREGAIN true
#define REGAINED  skip
#endif
#ifdef REGAIN_UNCONFIRMED
#define MAYASK(h) (phase[h] == HELD || phase[h] == SUSPENDED)
#else
#define MAYASK(h) (phase[h] == HELD)  /* valid: the other masters of a quorum have it still */
#endif
#if !defined(YIELDS) || defined(REGAIN_OFFERED)
#define UNOFFERED(n) true
#else
#define UNOFFERED(n) (offered[n] < token)  /* a late offer would take the grant away */
#endif
inline askAgain(h, n) {
  d_step { MAYASK(h) && value[AT(h,n)] != token && !regain[AT(h,n)] && MAYREGAIN && UNOFFERED(n) ->
    REGAINED; regain[AT(h,n)] = 1;
#ifdef REGAIN_LOWERS
    own[AT(h,n)] = value[AT(h,n)];  /* which the client may have heard of; 0: none */
#endif
#ifdef REGAIN_ABSTAINING
    trusted[AT(h,n)] = 1;
#else
    trusted[AT(h,n)] = STANDS(h,n);  /* it trusts in this master's own grant: the master had it when it lost its data */
#endif
    printf("%c%d wants its grant of %c back, %e\n", KIND(h), h, NAME(n), (trusted[AT(h,n)] -> trusting : lost))
  }
}

#ifdef ADOPT
#ifdef ADOPT_NO_TOMBSTONE
#define MAYRETURN(h,n) true
#else
#define MAYRETURN(h,n) (h != 0 || !tombstone[n])
#endif
#else
#define MAYRETURN(h,n) true
#endif
#ifdef REGAIN_BUSY
#define BARRED(h,n) false
#else
#define BARRED(h,n) BUSY(h,n)
#endif
/* The answer counts unless the lease has ended; trust in it runs from the sending, so it may come too late. */
inline executeRegain(h, n) {
  atomic { regain[AT(h,n)] && (UP(n) || trusted[AT(h,n)]) ->
#ifdef REPEATED
    if :: regain[AT(h,n)] = 0 :: skip fi;
#else
    regain[AT(h,n)] = 0;
#endif
    if :: skip :: deaf = 1 fi;
    d_step {
      if
      :: !BARRED(h,n) && token != 0 && MAYRETURN(h,n) ->
         TOUCH(n);
#ifdef REGAIN_LOWERS
         if
         :: MAYLOWER(h,n,own[AT(h,n)]) -> value[AT(h,n)] = token; lower(h,n)
         :: else -> value[AT(h,n)] = token; count(h, n, token)
         fi;
#else
         value[AT(h,n)] = token; count(h, n, token);
#endif
#ifdef ADOPT
         UNMARK(h,n);
#endif
#if LOSSES > 0
#ifdef ROLLBACK
         zombie[AT(h,n)] = 0;
#endif
         if :: !deaf -> forgot[AT(h,n)] = 0 :: else -> skip fi;
#endif
         printf("  %c has %c%d again, token %d\n", NAME(n), KIND(h), h, token);
#ifdef ADOPT
         MUST(h != 0 || !tombstone[n], ghost);
#endif
#ifdef NO_TOMBSTONE
         MUST(!gone[AT(h,n)], ghost);
#endif
         if
         :: !deaf && MAYASK(h) -> counted[AT(h,n)] = 1; lapsed[AT(h,n)] = 0
         :: else -> skip
         fi
      :: BARRED(h,n) -> acquire[n] = 1
      :: else -> skip
      fi;
      if
      :: !regain[AT(h,n)] -> trusted[AT(h,n)] = 0;
#ifdef REGAIN_LOWERS
         own[AT(h,n)] = 0
#endif
      :: else -> skip
      fi;
      deaf = 0;
      forget(h)
    }
  }
}

#ifdef YIELDS
/* A contender offers a grant: from then on it counts no value up to this one. The offer names the value. */
inline offer(h, n) {
  d_step { phase[h] == ASKING && answer[n] != 0 && yields > 0 ->
    yields--; offered[n] = answer[n]; yield[n] = 1; answer[n] = 0;
    printf("%c%d offers its value %d of %c\n", KIND(h), h, offered[n], NAME(n))
  }
}
inline executeYield(h, n) {
  d_step { yield[n] ->
    yield[n] = 0;
    if
    :: value[AT(h,n)] == offered[n] ->
       printf("  %c takes the value %d back from %c%d\n", NAME(n), offered[n], KIND(h), h);
       value[AT(h,n)] = 0; acquire[n] = 1  /* it waits again */
    :: else -> skip
    fi;
    forget(h)
  }
}
#endif
#ifdef REGAIN_UNCONFIRMED
inline resume(h) {
  d_step { phase[h] == SUSPENDED && VALID(h) ->
    printf("%c%d goes on with token %d\n", KIND(h), h, token);
    phase[h] = HELD;
    MUST(ALONE(h), exclusion);
    MUST(token >= (reader[h] -> newestWrite : newest), stale)
  }
}
#endif
#ifdef NO_TOMBSTONE
/* The release of a hold that is over finds it, or finds nothing. */
inline executeRelease(h, n) {
  d_step { phase[h] == OVER && !gone[AT(h,n)] ->
    printf("  %c: %c%d is released\n", NAME(n), KIND(h), h);
    gone[AT(h,n)] = 1; value[AT(h,n)] = 0
  }
}
#endif
#endif
