// Package owners is the door from package reentrant into package rwlock: reentrant takes locks for the owners that it
// names, joins their holds, and asks before a wait what else an owner holds. None of that is an option or a method that
// a user of rwlock can reach.
package owners

// Calls are the methods of a rwlock.Locker for owners. The Locker embeds them under an unexported name, so that a user
// can name neither the field nor its type:
//
//	type forOwners = owners.Calls[*ownerCalls]
//
//	type Locker struct {
//		forOwners
//		...
//	}
//
// Of finds them there, because a method of an embedded type is a method of the Locker too.
type Calls[Methods any] struct{ methods Methods }

// Hide returns the methods as a field to embed.
func Hide[Methods any](methods Methods) Calls[Methods] { return Calls[Methods]{methods} }

func (c *Calls[Methods]) forOwners() Methods { return c.methods }

// Of returns the methods for owners of a *rwlock.Locker: owners.Of(locker).Acquire(...).
func Of[Methods any](locker interface{ forOwners() Methods }) Methods { return locker.forOwners() }

// Outer knows the locks that an owner holds, also without their contexts.
type Outer interface {
	// MayWait reports why the owner must not wait for this lock, such as that it holds a later one. It is called before
	// each wait.
	MayWait(name string) error
	// Accept is the last step of a call, which has all locks now. With an error the call fails.
	Accept() error
}
