package objectguard

import (
	"context"
	"errors"
)

var (
	// ErrConflict is what [Bucket.PutIf] reports if the object has changed, or if
	// another request is changing it. A guard reports it when it no longer tries:
	// ctx has ended, or the object stayed what it was for ten attempts.
	ErrConflict = errors.New("objectguard: the condition of the write does not hold")

	// ErrRefused is what [Bucket.PutIf] reports if the store does not take the
	// write, for a lack of rights for instance. Nothing was stored.
	ErrRefused = errors.New("objectguard: the store refuses the write")
)

// Object is an object of a [Bucket].
type Object struct {
	Content []byte

	// Generation differs between any two contents of an object. It is empty where
	// there is no object.
	Generation string

	// Attributes are what the store keeps beside the content, such as the type of
	// it, by names of the Bucket's. A guard writes what it has read.
	Attributes map[string]string
}

// Bucket is an object store that can write conditionally. It must be safe for
// concurrent use, and a Get that begins after a PutIf has returned must see what
// it wrote.
type Bucket interface {
	// Get returns the object at key. Where there is none the Generation is empty,
	// and that is no error.
	Get(ctx context.Context, key string) (Object, error)

	// PutIf stores the Content and the Attributes of o if the object still has o's
	// Generation or, with an empty one, if there is still no object. Comparing and
	// storing are one atomic step of the store.
	//
	// An error that matches ErrConflict or ErrRefused says that this call stored
	// nothing and never will; after the second it is of no use to try again. So a
	// PutIf sends its request once: if the answer is lost, a second request would
	// find the generation changed by the first. Any other error leaves it open
	// whether o is stored, or will be. The guard then looks for o, and calls PutIf
	// again with the same o: no more than one of the calls takes effect.
	PutIf(ctx context.Context, key string, o Object) error
}
