// Package watermilllock is a recipe for watermill: messages that share a lock are handled one at a time, in all
// processes.
package watermilllock

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/seed74116694/fencelock/rwlock"
)

// Exclusive returns a middleware for Router.AddMiddleware or Handler.AddMiddleware. A message is handled under the lock
// that lockOf names. The context of the message carries the fence, and ends with the lock. If the lock is lost
// meanwhile, the error is the loss, also if the handler returned nil: the message is nacked, and what the handler
// produced is not published.
//
// A message waits for its lock, in the order of arrival, for at most wait, and is nacked then. Many brokers deliver a
// nacked message again at once, so a middleware that does not wait would make them do so without a pause. Choose wait
// below the time that the broker gives to a message.
func Exclusive(
	locker *rwlock.Locker, wait time.Duration, lockOf func(*message.Message) string,
) message.HandlerMiddleware {
	return func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) (produced []*message.Message, err error) {
			outside := msg.Context()
			defer msg.SetContext(outside) // a middleware around this one may handle the message once more
			err = locker.Do(outside, lockOf(msg), func(inside context.Context) (err error) {
				msg.SetContext(inside)
				produced, err = next(msg)
				return err
			}, rwlock.WithMaxWait(wait))
			if err != nil {
				return nil, err
			}
			return produced, nil
		}
	}
}
