package objectguard

import (
	"context"
	"errors"
)

// ErrConflict is what [Bucket.PutIf] reports if the object has changed.
var ErrConflict = errors.New("objectguard: the object has changed")

// Bucket is an object store that can write conditionally. It must be safe for
// concurrent use, and a Get that begins after a PutIf has returned must see what
// it wrote.
type Bucket interface {
	// Get returns the object's content and its generation, which is not empty and
	// differs between any two contents. Where there is no object the generation is
	// empty, and that is no error.
	Get(ctx context.Context, key string) (content []byte, generation string, err error)

	// PutIf stores content if the object still has that generation or, with an
	// empty one, if there is still no object. Comparing and storing are one atomic
	// step of the store.
	//
	// An error that matches ErrConflict says that this call stored nothing and never
	// will. So a request without an answer must not be sent again: the second would
	// find the generation changed by the first. Any other error leaves it open
	// whether content is stored, or will be.
	PutIf(ctx context.Context, key string, content []byte, generation string) error
}
