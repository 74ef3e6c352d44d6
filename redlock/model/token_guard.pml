/* token_guard.pml: the storage that checks tokens, with a register for writes and one for reads. */
#ifdef GUARD
#define ACCEPTED(h) (token >= maxW && (reader[h] || token >= maxR))
#define CONFLICT(g,h) ((g) != (h) && !(reader[g] && reader[h]))
#define OUTLIVED(g) ((phase[g] == RAISING && COUNTED(g) && !VALID(g)) || phase[g] == OVER)
/* Once a valid holder has been there, one from before whose lease is over must not be let in again. */
inline fence(g, h) {
  if :: CONFLICT(g,h) && OUTLIVED(g) -> fenced[g] = 1 :: else -> skip fi
}
inline operate(h) {
  d_step { (phase[h] == HELD || (phase[h] == OVER && token != 0)) ->
    printf("%c%d, %e, comes to the storage with token %d; it has seen %d written, %d read\n",
           KIND(h), h, (phase[h] == HELD -> valid : over), token, maxW, maxR);
    MUST(phase[h] != HELD || ACCEPTED(h), refused);
    if
    :: ACCEPTED(h) ->
       MUST(!fenced[h], overtaken);
#ifdef ONE_REGISTER
       maxW = MAX(maxW, token); maxR = maxW;
#else
       if :: reader[h] -> maxR = MAX(maxR, token) :: else -> maxW = MAX(maxW, token) fi;
#endif
       if :: phase[h] == HELD -> fence(0,h); fence(1,h) :: else -> skip fi
    :: else -> skip
    fi
  }
}
#endif
