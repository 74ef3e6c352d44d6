package objectguard

import (
	"context"
	"errors"
)

var (
	// ErrConflict is the error of [Bucket.PutIf] if the object has changed. A guard returns it if ctx ends while other
	// accesses change the object. Nothing was stored.
	ErrConflict = errors.New("objectguard: the condition of the write does not hold")

	// ErrRefused is the error of [Bucket.PutIf] if the store does not accept the write, for a lack of rights for
	// instance. Nothing was stored.
	ErrRefused = errors.New("objectguard: the store refuses the write")
)

// Object is an object of a [Bucket].
type Object struct {
	Content []byte

	// Generation differs between any two contents of an object. It is empty if there is no object.
	Generation string

	// Attributes are the properties that the store keeps in addition to the content, such as its type, by names that
	// the Bucket chooses. A guard writes the attributes that it has read.
	Attributes map[string]string
}

// Bucket is an object store that supports conditional writes. It must be safe for concurrent use, and a Get that begins
// after a PutIf has returned must see what it wrote.
type Bucket interface {
	// Get returns the object at key. If there is none the Generation is empty, and that is not an error.
	Get(ctx context.Context, key string) (Object, error)

	// PutIf stores the Content and the Attributes of o if the object still has o's Generation or, with an empty one, if
	// there is still no object. Comparing and storing are one atomic step of the store.
	//
	// An error that matches ErrRefused guarantees that this call stored nothing and never will, and a retry does not
	// help. ErrConflict is the answer to a broken condition, whoever has broken it: a gateway may have sent the request
	// twice. Any other error leaves it open whether o is stored, or will be, as where the store is busy with another
	// request for the object, which may be a copy of this one. After both the guard looks for o, and may call PutIf again
	// with the same o: no more than one of the calls takes effect.
	PutIf(ctx context.Context, key string, o Object) error
}
