package engine

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"

	"github.com/redis/rueidis"
)

// isConflict reports whether a key of the lock holds something that is not ours.
func isConflict(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "WRONGTYPE") || strings.Contains(err.Error(), "not an integer"))
}

// answered reports whether the request is known not to have run: the server itself refused it, or no connection came
// about that could have carried it. BUSY and UNKILLABLE are answers too.
func answered(err error) bool {
	if _, ok := rueidis.IsRedisErr(err); ok {
		return true
	}
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// impartial takes from an error that it matches the end of a context where that of the request has not ended: a dial
// has a time limit of its own, and the dial of one caller is shared by others.
func impartial(ctx context.Context, r rueidis.RedisResult) rueidis.RedisResult {
	err := r.NonRedisError()
	if err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
		return r
	}
	return rueidis.NewErrorResult(&linkError{err})
}

// linkError is a failure to connect. It has the text and the types of its cause.
type linkError struct{ cause error }

func (e *linkError) Error() string { return "not connected: " + e.cause.Error() }

func (e *linkError) As(target any) bool { return errors.As(e.cause, target) }

// permanent refusals do not pass by themselves: asking again would only hide them.
var permanent = []string{"NOAUTH", "WRONGPASS", "NOPERM", "WRONGTYPE"}

// full is the one refusal without a code that passes by itself.
const full = "max number of clients reached"

func isPermanent(err error, mode rueidis.ClientMode) bool {
	redisErr, ok := rueidis.IsRedisErr(err)
	if !ok {
		return strings.Contains(err.Error(), "NOAUTH") || strings.Contains(err.Error(), "WRONGPASS")
	}
	text := redisErr.Error()
	switch code := refusalCode(text); {
	case code == "":
		return text != full
	case code == "READONLY":
		// Behind Sentinel or in a Cluster a read-only answer is a failover that the client has yet to follow.
		return mode == rueidis.ClientModeStandalone
	default:
		return slices.Contains(permanent, code)
	}
}

// refusalCode returns the word in capitals that begins a refusal, or "": rueidis takes the general one, ERR, away.
func refusalCode(text string) string {
	code, _, _ := strings.Cut(text, " ")
	if strings.Trim(code, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		return ""
	}
	return code
}
