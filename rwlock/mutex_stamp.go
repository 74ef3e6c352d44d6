package rwlock

import (
	"sync/atomic"

	"github.com/seed74116694/fencelock/fencing"
)

// stamp is a token and the mode that it was granted for, in one word: both change at once, and a read needs no mutex.
//
// A caller that reads the token during a conversion gets the old pair or the new one. Both were granted, and the
// storage orders them.
type stamp struct{ word atomic.Uint64 } // a token has 53 bits

const modeBits = 2 // the lowest ones

// set is called under the RWMutex's mu.
func (s *stamp) set(mode Mode, token fencing.Token) {
	s.word.Store(uint64(token)<<modeBits | uint64(mode))
}

// get needs no mutex.
func (s *stamp) get() (Mode, fencing.Token) {
	word := s.word.Load()
	return Mode(word & (1<<modeBits - 1)), fencing.Token(word >> modeBits)
}

func (s *stamp) mode() Mode {
	mode, _ := s.get()
	return mode
}

func (s *stamp) token() fencing.Token {
	_, token := s.get()
	return token
}
