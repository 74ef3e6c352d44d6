//go:build unix

package lockdebug_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// browser is a headless Chromium with one page. It is driven by the DevTools protocol over two pipes: messages of JSON,
// each with a zero byte behind it. When this process ends, so does the browser.
type browser struct {
	*testing.T
	to      *os.File
	session string // of the page

	mu       sync.Mutex
	calls    int
	answers  map[int]chan message
	problems []string // what the console shows as an error, and exceptions
}

type message struct {
	ID     int             `json:"id,omitempty"`
	Method string          `json:"method,omitempty"`
	Params json.RawMessage `json:"params,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
	SessionID string `json:"sessionId,omitempty"`
}

// binary returns the installed Chromium. If there is none it skips the test. With CI=true it fails the test instead,
// unless FENCELOCK_CHROMIUM=none.
func binary(t *testing.T) string {
	named := os.Getenv("FENCELOCK_CHROMIUM")
	for _, name := range []string{named, "chromium-headless-shell", "chromium"} {
		if path, err := exec.LookPath(name); err == nil && named != "none" {
			return path
		}
	}
	const hint = "no chromium on PATH: install the Debian package chromium-headless-shell, or name a binary in " +
		"FENCELOCK_CHROMIUM"
	if os.Getenv("CI") == "true" && named != "none" {
		t.Fatal(hint)
	}
	t.Skip(hint)
	return ""
}

// startBrowser starts a browser with an empty page. It ends with the test.
func startBrowser(t *testing.T) *browser {
	path := binary(t)
	commands, to, err := os.Pipe()
	require.NoError(t, err)
	from, replies, err := os.Pipe()
	require.NoError(t, err)
	// Only the servers of this test are opened, so the sandbox, which root cannot have, is not needed.
	program := exec.Command(path, "--headless", "--no-sandbox", "--remote-debugging-pipe", "--disable-gpu",
		"--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking", "--disable-component-update",
		"--user-data-dir="+t.TempDir(), "about:blank")
	program.ExtraFiles = []*os.File{commands, replies} // descriptors 3 and 4
	var log bytes.Buffer
	program.Stderr = &log
	require.NoError(t, program.Start())
	require.NoError(t, commands.Close())
	require.NoError(t, replies.Close())
	b := &browser{T: t, to: to, answers: map[int]chan message{}}
	read := make(chan struct{})
	go func() {
		defer close(read)
		b.read(from)
	}()
	t.Cleanup(func() {
		_ = to.Close() // the browser ends
		limit := time.AfterFunc(10*time.Second, func() { _ = program.Process.Kill() })
		defer limit.Stop()
		_ = program.Wait()
		<-read
		_ = from.Close()
		if t.Failed() {
			t.Logf("the browser's log:\n%s", log.Bytes())
		}
	})
	b.openPage()
	return b
}

// openPage makes the page, and has its errors reported.
func (b *browser) openPage() {
	var target struct{ TargetID string }
	b.call("Target.createTarget", object{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	b.call("Target.attachToTarget", object{"targetId": target.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log"} {
		b.call(domain+".enable", nil, nil)
	}
}

// read passes each answer to its call, until the browser ends.
func (b *browser) read(from *os.File) {
	in := bufio.NewReader(from)
	for {
		text, err := in.ReadBytes(0)
		b.mu.Lock()
		if err != nil {
			for id, answer := range b.answers {
				close(answer)
				delete(b.answers, id)
			}
			b.answers = nil
			b.mu.Unlock()
			return
		}
		var m message
		if err := json.Unmarshal(bytes.TrimSuffix(text, []byte{0}), &m); err != nil {
			b.problems = append(b.problems, err.Error())
		}
		switch m.Method {
		case "Log.entryAdded", "Runtime.exceptionThrown":
			b.problems = append(b.problems, string(m.Params))
		}
		if answer := b.answers[m.ID]; answer != nil {
			answer <- m
			delete(b.answers, m.ID)
		}
		b.mu.Unlock()
	}
}

// call calls a method of the protocol and reads its result, unless result is nil.
func (b *browser) call(method string, params object, result any) {
	b.Helper()
	require.Empty(b, b.tryCall(method, params, result), method)
}

// tryCall is call, and returns the error of the method instead of failing the test.
func (b *browser) tryCall(method string, params object, result any) (failure string) {
	b.Helper()
	text, err := json.Marshal(params)
	require.NoError(b, err)
	answer := make(chan message, 1)
	b.mu.Lock()
	require.NotNil(b, b.answers, "the browser has ended")
	b.calls++
	m := message{ID: b.calls, Method: method, Params: text, SessionID: b.session}
	b.answers[m.ID] = answer
	b.mu.Unlock()
	text, err = json.Marshal(m)
	require.NoError(b, err)
	_, err = b.to.Write(append(text, 0))
	require.NoError(b, err)
	select {
	case got, ok := <-answer:
		require.True(b, ok, "%s: the browser has ended", method)
		if got.Error != nil {
			return got.Error.Message
		}
		if result != nil {
			require.NoError(b, json.Unmarshal(got.Result, result), "%s", got.Result)
		}
	case <-time.After(patience):
		b.Fatalf("%s: no answer", method)
	}
	return ""
}

// patience bounds the wait for an event that never comes.
const patience = time.Minute

// evaluate returns the value of an expression in the page.
func (b *browser) evaluate(expression string) any {
	b.Helper()
	value, failure := b.tryEvaluate(expression)
	require.Empty(b, failure, expression)
	return value
}

// tryEvaluate is evaluate, and returns why there is no value if the browser leaves the page at the same time.
func (b *browser) tryEvaluate(expression string) (value any, failure string) {
	b.Helper()
	var got struct {
		Result           struct{ Value any }
		ExceptionDetails any
	}
	call := object{"expression": expression, "returnByValue": true, "awaitPromise": true}
	if failure = b.tryCall("Runtime.evaluate", call, &got); failure == "" {
		require.Nil(b, got.ExceptionDetails, expression)
	}
	return got.Result.Value, failure
}

// until returns when the expression is true in the page.
func (b *browser) until(expression string) {
	b.Helper()
	limit := time.Now().Add(patience)
	for {
		if value, _ := b.tryEvaluate("Boolean(" + expression + ")"); value == true {
			return
		}
		if time.Now().After(limit) {
			b.Fatalf("it never came about that %s in\n%s", expression, b.evaluate("document.documentElement.innerText"))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// open opens an address and returns when the page is there.
func (b *browser) open(address string) {
	b.Helper()
	b.call("Page.navigate", object{"url": address}, nil)
	b.until(fmt.Sprintf("location.href === %q && document.readyState === 'complete'", address))
}

// screen sets the size of the page's window and its color scheme.
func (b *browser) screen(width, height int, scheme string) {
	b.Helper()
	b.call("Emulation.setDeviceMetricsOverride", object{
		"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600,
	}, nil)
	b.call("Emulation.setEmulatedMedia", object{
		"features": []object{{"name": "prefers-color-scheme", "value": scheme}},
	}, nil)
}

// takeProblems returns the errors that the page has reported since the last call.
func (b *browser) takeProblems() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.problems
	b.problems = nil
	return all
}
