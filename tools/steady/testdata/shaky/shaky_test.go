package shaky

import (
	"math/rand/v2"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFailsOneTimeInTen(t *testing.T) {
	if rand.IntN(10) == 0 {
		t.Error("one in ten")
	}
}

func TestHolds(*testing.T) {}
