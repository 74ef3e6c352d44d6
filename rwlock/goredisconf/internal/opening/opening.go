// Package opening makes a locker of the options of another client.
package opening

import (
	"slices"
	"strings"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/rwlock"
)

// Open dials, and makes a locker that owns the client. The options of the library that are not taken over go to the
// locker's logger.
func Open(
	library, addr string, base rueidis.ClientOption, ignored []string, opts []rwlock.Option,
) (*rwlock.Locker, error) {
	client, err := rwlock.Dial(addr, base)
	if err != nil {
		return nil, err
	}
	locker, err := rwlock.New(client, append(slices.Clip(opts), rwlock.WithOwnedClient())...)
	if err != nil {
		client.Close()
		return nil, err
	}
	if len(ignored) > 0 {
		locker.Logger().Info("rwlock: options of "+library+" that a client for locks does not use",
			"options", strings.Join(ignored, ", "))
	}
	return locker, nil
}
