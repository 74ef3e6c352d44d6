package fencing_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/fencing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func read(resource string, token fencing.Token) fencing.Fence {
	return fencing.Fence{Resource: resource, Token: token, Mode: fencing.Read}
}

func write(resource string, token fencing.Token) fencing.Fence {
	return fencing.Fence{Resource: resource, Token: token, Mode: fencing.Write}
}
