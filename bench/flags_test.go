package main

import (
	"bytes"
	"flag"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFlags(t *testing.T) {
	defaults := config{masters: 3, length: 5 * time.Second, clients: 8, names: 4}
	with := func(change func(*config)) config {
		c := defaults
		change(&c)
		return c
	}
	for _, test := range []struct {
		args []string
		want config
	}{
		{nil, defaults},
		{[]string{"-masters", "1"}, with(func(c *config) { c.masters = 1 })},
		{[]string{"-masters", "5"}, with(func(c *config) { c.masters = 5 })},
		{[]string{"-addr", "a:1"}, with(func(c *config) { c.addrs, c.masters = []string{"a:1"}, 1 })},
		{
			[]string{"-addr", "a:1,b:1,[::1]:7", "-masters", "3"},
			with(func(c *config) { c.addrs = []string{"a:1", "b:1", "[::1]:7"} }),
		},
		{
			[]string{"-for", "30ms", "-clients", "2", "-names", "9", "-json", "-svg", "x.svg"},
			config{masters: 3, length: 30 * time.Millisecond, clients: 2, names: 9, json: true, svg: "x.svg"},
		},
		{[]string{"-unfenced"}, with(func(c *config) { c.unfenced, c.svg = true, "unfenced.svg" })},
		{[]string{"-unfenced", "-svg", "x.svg"}, with(func(c *config) { c.unfenced, c.svg = true, "x.svg" })},
	} {
		got, err := parseFlags(test.args, io.Discard)
		require.NoError(t, err, "%q", test.args)
		require.Equal(t, test.want, got, "%q", test.args)
	}
}

func TestFlagsRefused(t *testing.T) {
	for _, test := range []struct {
		args []string
		says string
	}{
		{[]string{"-for", "0"}, "-for 0s: must be positive"},
		{[]string{"-for", "-1s"}, "-for -1s: must be positive"},
		{[]string{"-for", "5"}, "5"},
		{[]string{"-clients", "0"}, "-clients 0: must be 1 to 256"},
		{[]string{"-clients", "-3"}, "-clients -3: must be 1 to 256"},
		{[]string{"-clients", "257"}, "-clients 257"},
		{[]string{"-clients", "many"}, "many"},
		{[]string{"-names", "0"}, "-names 0: must be 1 to 1000"},
		{[]string{"-names", "1001"}, "-names 1001"},
		{[]string{"-masters", "0"}, "-masters 0: must be 1 to 15"},
		{[]string{"-masters", "-1"}, "-masters -1: must be 1 to 15"},
		{[]string{"-masters", "2"}, "-masters 2: must be 1, or odd for a quorum"},
		{[]string{"-masters", "17"}, "-masters 17"},
		{[]string{"-addr", ""}, `-addr: "" is not host:port`},
		{[]string{"-addr", "localhost"}, `-addr: "localhost" is not host:port`},
		{[]string{"-addr", ":6379"}, `-addr: ":6379" is not host:port`},
		{[]string{"-addr", "a:1,b:1"}, "-addr: 2 servers: must be one, or an odd number"},
		{[]string{"-addr", "a:1,b:1,a:1"}, "-addr: a:1 is named twice"},
		{[]string{"-addr", "a:1", "-masters", "3"}, "-masters 3: -addr names 1"},
		{[]string{"-svg", ""}, "-svg: the file name is empty"},
		{[]string{"-loud"}, "-loud"},
		{[]string{"now"}, `"now" is not a flag`},
	} {
		_, err := parseFlags(test.args, io.Discard)
		require.ErrorContains(t, err, test.says, "%q", test.args)
		require.NotContains(t, err.Error(), "\n", "%q", test.args)
	}
}

func TestFlagsHelp(t *testing.T) {
	var help bytes.Buffer
	_, err := parseFlags([]string{"-h"}, &help)
	require.ErrorIs(t, err, flag.ErrHelp)
	for _, name := range []string{
		"-addr host:port", "-masters", "-for", "-clients", "-names", "-json", "-svg file", "-unfenced",
	} {
		require.Contains(t, help.String(), name)
	}
}
