package sample

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestBelow(t *testing.T) { require.Equal(t, 1, cut(1, 3)) }

func TestAbove(t *testing.T) { require.Equal(t, 3, cut(5, 3)) }

func TestOne(t *testing.T) {
	require.True(t, one(1, true))
	require.False(t, one(1, false))
}

func TestFails(t *testing.T) { t.Fatal("without a mutant") }
