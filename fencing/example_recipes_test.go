package fencing_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed74116694/fencelock/fencing"
)

// message stands for a record of a log such as Kafka's: headers travel with it.
type message struct {
	headers map[string][]string
	body    string
}

// publish sends the fences of ctx along with the message.
func publish(ctx context.Context, log chan<- message, body string) error {
	m := message{headers: map[string][]string{}, body: body}
	if err := fencing.Inject(ctx, fencing.MapCarrier(m.headers)); err != nil {
		return err // no consumer would take it
	}
	log <- m
	return nil
}

// consume applies the messages in the order of the log, and drops what is stale.
func consume(ctx context.Context, log <-chan message, guard fencing.Guard, apply func(string)) error {
	for m := range log {
		ctx, err := fencing.Extract(ctx, fencing.MapCarrier(m.headers))
		if err != nil {
			return err
		}
		fence, err := fencing.Require(ctx, "orders/42")
		if err != nil {
			return err
		}
		if fence.Mode != fencing.Write {
			return fmt.Errorf("%w for writing: %v", fencing.ErrMissing, fence)
		}
		err = guard.Do(ctx, fence, func(context.Context) error {
			apply(m.body)
			return nil
		})
		if err != nil && !errors.Is(err, fencing.ErrStale) {
			return err
		}
	}
	return nil
}

// A log takes every message, so its consumer checks the tokens.
func Example_messages() {
	log := make(chan message, 3)
	holder := func(token fencing.Token) context.Context {
		return fencing.NewContext(context.Background(),
			fencing.Fence{Resource: "orders/42", Token: token, Mode: fencing.Write})
	}
	err := errors.Join(
		publish(holder(17), log, "paid"),
		publish(holder(18), log, "shipped"),
		publish(holder(17), log, "cancelled")) // late: this holder was paused
	close(log)
	fmt.Println(err)

	var guard fencing.Watermark
	err = consume(context.Background(), log, &guard, func(body string) { fmt.Println(body) })
	fmt.Println(err)
	// Output:
	// <nil>
	// paid
	// shipped
	// <nil>
}

// billing charges an order once, however many holders try.
type billing struct {
	guard    fencing.Watermark // of the intents; in earnest, package sqlguard's
	intents  map[string]int    // operation -> amount
	provider func(idempotencyKey string, amount int) error
}

// charge writes down what is to be done before it is done. The key names the
// operation, not the attempt: a token in it would charge again with each holder.
func (b *billing) charge(ctx context.Context, order string, amount int) error {
	fence, err := fencing.Require(ctx, "orders/"+order)
	if err != nil {
		return err
	}
	key := "charge/" + order
	err = b.guard.Do(ctx, fence, func(context.Context) error {
		if earlier, ok := b.intents[key]; ok {
			amount = earlier // a holder before us has got this far: finish its work
			return nil
		}
		b.intents[key] = amount
		return nil
	})
	if err != nil {
		return err
	}
	return b.provider(key, amount)
}

// A payment provider knows no tokens, but it knows idempotency keys.
func Example_payment() {
	charged := map[string]int{}
	b := &billing{
		intents: map[string]int{},
		provider: func(idempotencyKey string, amount int) error {
			if _, again := charged[idempotencyKey]; !again {
				charged[idempotencyKey] = amount
			}
			return nil
		},
	}
	holder := func(token fencing.Token) context.Context {
		return fencing.NewContext(context.Background(),
			fencing.Fence{Resource: "orders/42", Token: token, Mode: fencing.Write})
	}
	fmt.Println(b.charge(holder(17), "42", 100)) // and crashes before it can say so
	fmt.Println(b.charge(holder(18), "42", 120))
	fmt.Println(b.charge(holder(17), "42", 999)) // was paused, not crashed
	fmt.Println(charged)
	// Output:
	// <nil>
	// <nil>
	// fencing: stale token: "orders/42" has seen 18, got 17
	// map[charge/42:100]
}
