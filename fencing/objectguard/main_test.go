package objectguard_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/fencing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const lock = "orders/42"

func read(token fencing.Token) fencing.Fence {
	return fencing.Fence{Resource: lock, Token: token, Mode: fencing.Read}
}

func write(token fencing.Token) fencing.Fence {
	return fencing.Fence{Resource: lock, Token: token, Mode: fencing.Write}
}
