package fencing_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
)

func TestModeText(t *testing.T) {
	for mode, text := range map[fencing.Mode]string{0: "none", fencing.Read: "read", fencing.Write: "write"} {
		require.Equal(t, text, mode.String())
		encoded, err := json.Marshal(mode)
		require.NoError(t, err)
		require.Equal(t, `"`+text+`"`, string(encoded))
		decoded := fencing.Mode(9)
		require.NoError(t, json.Unmarshal(encoded, &decoded))
		require.Equal(t, mode, decoded)
	}
}

func TestModeRefuses(t *testing.T) {
	for _, text := range []string{"", "none", "READ", "read ", "exclusive"} {
		mode, err := fencing.ParseMode(text)
		require.ErrorIs(t, err, fencing.ErrMalformed, text)
		require.Zero(t, mode)
	}
	kept := fencing.Write
	require.ErrorIs(t, kept.UnmarshalText([]byte("exclusive")), fencing.ErrMalformed)
	require.Equal(t, fencing.Write, kept)

	require.Equal(t, "Mode(9)", fencing.Mode(9).String())
	_, err := fencing.Mode(9).MarshalText()
	require.ErrorIs(t, err, fencing.ErrMalformed)
}
