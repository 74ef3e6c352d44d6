package hold

// Giving counts what the masters answer to the releases of one hold.
type Giving struct {
	shows            Shows
	masters          int
	had, hadNot, not int // masters, by their answers; those without an answer at last
	certain          bool
}

// Shows says what the answers to a release are to show.
type Shows uint8

const (
	IsGone  Shows = iota // that a quorum does not have the hold, and may grant the lock to other holds
	WasHeld              // that a quorum had the hold until it was released
)

// Finding is what the answers show.
type Finding uint8

const (
	NotKnown Finding = iota
	Shown            // what the answers are to show
	WasGone          // a quorum no longer had the hold when the release arrived, so the lease protected nothing by then
)

// NewGiving counts the answers of so many masters.
func NewGiving(shows Shows, masters int) Giving { return Giving{shows: shows, masters: masters} }

// Had returns how many masters had the hold, and how many had not.
func (g *Giving) Had() (had, hadNot int) { return g.had, g.hadNot }

// Count counts the answer of one master, and reports whether further answers change nothing from now on.
func (g *Giving) Count(had, failed bool) (certain bool) {
	switch {
	case failed:
		g.not++
	case had:
		g.had++
	default:
		g.hadNot++
	}
	before := g.certain
	g.certain = before || g.isCertain()
	return g.certain && !before
}

// Found returns what the answers so far show.
func (g *Giving) Found() Finding { return g.found(g.had, g.hadNot) }

func (g *Giving) found(had, hadNot int) Finding {
	switch need := g.masters/2 + 1; {
	case hadNot >= need:
		return WasGone
	case had >= need, g.shows == IsGone && had+hadNot >= need:
		return Shown
	default:
		return NotKnown
	}
}

// isCertain reports whether the outstanding answers cannot change what is found. What holds if all of them go one way,
// and if all go the other, holds for any mixture.
func (g *Giving) isCertain() bool {
	found, open := g.Found(), g.masters-g.had-g.hadNot-g.not
	return open == 0 || found != NotKnown &&
		found == g.found(g.had+open, g.hadNot) && found == g.found(g.had, g.hadNot+open)
}
