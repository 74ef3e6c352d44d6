package scriptfuzz

// Shorten returns a part of a sequence that fails as well, from which no step can be left out. It plays parts of it, at
// most so many.
func Shorten(p *Player, s Sequence, most int) Sequence {
	fails := func(s Sequence) bool {
		most--
		return most >= 0 && p.Play(s) != nil
	}
	for size := max(s.Len()/2, 1); ; size = max(size/2, 1) {
		shorter := s
		for at := s.Len(); at > 0; at -= size { // the last steps first: a failure has few behind it
			if part := shorter.without(max(at-size, 0), at); fails(part) {
				shorter = part
			}
		}
		if size == 1 && shorter.Len() == s.Len() || most <= 0 {
			return shorter
		}
		s = shorter
	}
}
