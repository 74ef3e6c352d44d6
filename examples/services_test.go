package examples_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testredis"
)

// The second service is inside the section of the first: the same token, and no waiting.
func TestServices(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	stock := start(t, 1, "services", "-redis", server.Addr())[0].until("listening")
	orders := start(t, 1, "services", "-redis", server.Addr(), "-stock", stock)[0].until("listening")
	for range 2 { // the lock is free again
		status, body := post(t, orders+"/orders/7", "")
		require.Equal(t, http.StatusOK, status, body)
		words := strings.Fields(body) // ordered under TOKEN reserved under TOKEN
		require.Len(t, words, 6, body)
		require.Equal(t, words[2], words[5])
	}
}

// post returns the answer to a request with this text, 0 and the error if there is none.
func post(t *testing.T, url, text string) (status int, body string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Post(url, "", strings.NewReader(text))
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(answer)
}
