//go:build unix

package lockdebug_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/lockdebug"
)

const focus = "document.activeElement.getAttribute('aria-label')"

// A refresh changes the rows around the one that has the focus, and ENTER still breaks the hold that it broke before.
func TestFocusStaysWithItsHold(t *testing.T) {
	testredis.NeedAll(t, "a browser")
	b := startBrowser(t)
	o := startOperated(t)
	above, wanted, below := o.take("1 above"), o.take("2 wanted"), o.take("3 below")
	b.screen(1280, 800, "light")
	b.open(o.url + "/")
	b.until("document.querySelectorAll('#leases tbody tr').length === 3")
	mine := fmt.Sprintf("break hold %s of 2 wanted", wanted.Owner())
	b.evaluate(fmt.Sprintf("document.querySelector('[aria-label=\"%s\"]').focus(); "+
		"document.getElementById('leases').stays = true; null", mine))

	require.NoError(t, above.Release(t.Context()))
	b.until("document.querySelectorAll('#leases tbody tr').length === 2")
	require.Equal(t, mine, b.evaluate(focus), "a row above has gone")
	b.evaluate(`document.querySelector('#leases tbody').prepend(document.querySelector('#leases tbody tr:last-child'));
		document.querySelector('main').insertAdjacentHTML('afterbegin', '<p class="error">no answer</p>'); null`)
	b.until("!document.querySelector('.error') && " +
		"document.querySelector('#leases tbody tr').textContent.includes('wanted')")
	require.Equal(t, mine, b.evaluate(focus), "the rows were in another order, and an error went away")
	again := o.take("1 above")
	b.until("document.querySelectorAll('#leases tbody tr').length === 3")
	require.Equal(t, mine, b.evaluate(focus), "a row has come")

	require.NoError(t, wanted.Release(t.Context()))
	b.until("document.querySelectorAll('#leases tbody tr').length === 2")
	require.Nil(t, b.evaluate(focus), "its hold is gone, and no other has the focus")
	require.Equal(t, true, b.evaluate("document.getElementById('leases').stays"))
	require.NoError(t, below.Err())
	require.NoError(t, again.Err())
	require.Empty(t, b.takeProblems())
}

// What was typed before is not asked for any more, so that a server with many locks lists them once.
func TestTypingOnAbandonsTheRequest(t *testing.T) {
	testredis.NeedAll(t, "a browser")
	b := startBrowser(t)
	o := startOperated(t)
	o.take("orders")
	list := lockdebug.ListHandler(o.operator, "redis:6379")
	asked, abandoned := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("q") == "o" {
			close(asked)
			<-r.Context().Done()
			close(abandoned)
			return
		}
		list.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	b.open(server.URL + "/")
	b.evaluate("document.getElementById('q').focus()")
	b.call("Input.insertText", object{"text": "o"}, nil)
	<-asked
	b.call("Input.insertText", object{"text": "r"}, nil)
	b.until("location.search === '?q=or' && " + rowsWith("leases", "orders") + ".length === 1")
	select {
	case <-abandoned:
	case <-time.After(patience / 2):
		t.Fatal("the server goes on with what nobody waits for")
	}
	b.until("!document.getElementById('status').matches('.stale')")
	require.Empty(t, b.takeProblems())
}
