/* token_block.pml: the tokens of a grant, of which a write may have a whole block. Without BLOCK they are its token. */
#ifndef BLOCK
#define BLOCK 1
#endif
#if BLOCK > 1

byte smallest;          /* the first of the block that is minted or reported; 0 between steps */
byte omitted;           /* how much of a block a master leaves out; 0 between steps */

inline shrink() {
#ifdef SHRINK
  do :: omitted < BLOCK-1 -> omitted++ :: break od
#else
  skip
#endif
}
/* minted is what any other grant would have got; a block goes on from there. */
inline mintBlock(h) {
  smallest = minted;
#ifndef BLOCK_UNMINTED
  if :: !reader[h] -> minted = minted + BLOCK-1 - omitted :: else -> skip fi
#endif
}
/* A master that is asked again says what it has granted, not where that began. */
inline repeatBlock(h, n) { smallest = value[AT(h,n)] }
inline hearBlock(n) { first[n] = smallest }
inline endBlock() { smallest = 0; omitted = 0 }
inline dropBlocks() { first[0] = 0; first[1] = 0; first[2] = 0 }

/* Below its first value a master may have counted others, also where the last was raised. */
#define FIRSTOF(h,n) (counted[AT(h,n)] -> first[n] : 0)
inline reportBlock(h) {
#if defined(BLOCK_UNMINTED)
  smallest = token
#elif defined(BLOCK_ASSUMED)
  smallest = (reader[h] -> token : token - (BLOCK-1))
#else
  smallest = MAX(MAX(FIRSTOF(h,0), FIRSTOF(h,1)), FIRSTOF(h,2))
#endif
}
#define SMALLEST smallest
#ifdef BLOCK_UNMINTED
#define LARGEST(h) (reader[h] -> token : token + BLOCK-1)
#else
#define LARGEST(h) token
#endif
#define ALLTOKENS(h) ((1 << (LARGEST(h)+1)) - (1 << SMALLEST))

#else
#define shrink()         skip
#define mintBlock(h)     skip
#define repeatBlock(h,n) skip
#define hearBlock(n)     skip
#define endBlock()       skip
#define dropBlocks()     skip
#define reportBlock(h)   skip
#define SMALLEST         token
#define LARGEST(h)       token
#define ALLTOKENS(h)     (1 << token)
#endif
