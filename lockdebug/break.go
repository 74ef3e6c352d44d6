package lockdebug

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/rwlock"
)

// OperatorHandler is ListHandler whose page also breaks holds: a link at each hold leads to a question, and the answer
// to that calls Locker.Break with the reason that it asks for. It has no authentication, so anyone who reaches it can
// take locks away: serve it on a loopback address, and check the Host of each request, or behind a login.
//
// Only a POST breaks a hold, from the page itself: a request that a browser reports as sent by another site is refused,
// and so is one without the token that the question has, which another site cannot read. The text of WithMeta of the
// Locker names the operator.
func OperatorHandler(l *rwlock.Locker, title string) http.Handler {
	b := &breaker{locker: l, title: title}
	_, _ = rand.Read(b.secret[:]) // it never fails
	list := listHandler(l, title, true)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query, err := url.ParseQuery(r.URL.RawQuery)
		switch {
		case l == nil || err != nil: // the list says so
			list.ServeHTTP(w, r)
		case r.Method == http.MethodPost:
			b.answer(w, r)
		case query.Has("hold") && (r.Method == http.MethodGet || r.Method == http.MethodHead):
			b.ask(w, r, target{query.Get("name"), query.Get("hold")}, http.StatusOK, "")
		default:
			list.ServeHTTP(w, r)
		}
	})
}

// breaker serves the question and its answer.
type breaker struct {
	locker *rwlock.Locker
	title  string
	secret [32]byte
}

// target is the hold that is to be broken.
type target struct{ Name, Hold string }

// Quoted returns the name for a form: a browser changes line breaks in a field, and the zero byte.
func (t target) Quoted() string { return strconv.QuoteToASCII(t.Name) }

// token returns what a request to break the hold has to carry.
func (b *breaker) token(t target) string {
	sum := hmac.New(sha256.New, b.secret[:])
	_, _ = fmt.Fprintf(sum, "%q %q", t.Name, t.Hold)
	return hex.EncodeToString(sum.Sum(nil))
}

// breakData is what the page of a question or of a result is made from.
type breakData struct {
	target
	Title   string
	Style   template.CSS
	Problem string // why the question is asked again
	Result  string // "" for a question
	Ask     bool   // the hold is there
	Waiting bool
	Mode    string
	Meta    string
	Fence   fencing.Token // the hold's
	Held    string        // for how long, or how long it has waited
	Left    string
	Token   string // against requests of other sites
}

// The bounds of a request, and for how long an answer waits until the hold is gone.
const (
	maxForm   = 16 << 10
	breakWait = 3 * time.Second
)

// ask serves the question, if the hold is there.
func (b *breaker) ask(w http.ResponseWriter, r *http.Request, t target, status int, problem string) {
	setHeaders(w.Header())
	state, err := b.locker.Inspect(r.Context(), t.Name)
	page := breakData{target: t, Title: b.title, Problem: problem, Token: b.token(t)}
	for _, h := range state.Holders {
		if h.Hold == t.Hold {
			page.Ask, page.Mode, page.Meta, page.Fence = true, h.Mode.String(), h.Meta, h.Token
			page.Held, page.Left = shownDuration(millis(h.Held)), shownDuration(millis(h.Remaining))
		}
	}
	for _, waiter := range state.Waiters {
		if waiter.Hold == t.Hold {
			page.Ask, page.Waiting, page.Mode, page.Meta = true, true, waiter.Mode.String(), waiter.Meta
			page.Held = shownDuration(millis(waiter.Waited))
		}
	}
	if !page.Ask && err != nil {
		b.fail(w, err)
		return
	}
	if !page.Ask {
		status, page.Result = http.StatusNotFound, "The hold is gone. Nothing was broken."
	}
	page.write(w, status)
}

// answer breaks the hold that a form names.
func (b *breaker) answer(w http.ResponseWriter, r *http.Request) {
	setHeaders(w.Header())
	if err := http.NewCrossOriginProtection().Check(r); err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		http.Error(w, fmt.Sprintf("form: %v", err), http.StatusBadRequest)
		return
	}
	name, _ := strconv.Unquote(r.PostForm.Get("lock")) // without one the token does not fit
	t := target{name, r.PostForm.Get("hold")}
	if !hmac.Equal([]byte(r.PostForm.Get("token")), []byte(b.token(t))) {
		http.Error(w, "token: is not that of the question for this hold: go back to it and reload it", http.StatusForbidden)
		return
	}
	reason, how := r.PostForm.Get("reason"), r.PostForm.Get("how")
	var opts []rwlock.BreakOption
	switch how {
	case "wait":
	case "now":
		opts = append(opts, rwlock.BreakNow())
	default:
		b.ask(w, r, t, http.StatusBadRequest, "Choose how.")
		return
	}
	within, cancel := context.WithTimeout(r.Context(), breakWait)
	defer cancel()
	err := b.locker.Break(within, t.Name, t.Hold, reason, opts...)
	page, status := breakData{target: t, Title: b.title}, http.StatusOK
	switch option := (*rwlock.OptionError)(nil); {
	case err == nil:
		page.Result = "The hold is gone."
	case errors.As(err, &option):
		b.ask(w, r, t, http.StatusBadRequest, err.Error())
		return
	case errors.Is(err, rwlock.ErrNotHeld):
		status, page.Result = http.StatusNotFound, "The hold was gone before. Nothing was broken."
	case errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, rwlock.ErrNoQuorum):
		status = http.StatusAccepted
		page.Result = "The hold cannot be renewed any more. It stands until its process gives it back or its time is over."
	default:
		b.fail(w, err)
		return
	}
	page.write(w, status)
}

// fail answers with an error of the Locker. A Break that failed may have been carried out.
func (b *breaker) fail(w http.ResponseWriter, err error) {
	status := http.StatusBadGateway
	if errors.As(err, new(*rwlock.OptionError)) {
		status = http.StatusBadRequest
	}
	http.Error(w, err.Error(), status)
}

//go:embed break.html
var breakText string

var breakPage = template.Must(template.New("break").Funcs(template.FuncMap{"text": printable}).Parse(breakText))

// write serves the page. A form without a referrer would have no origin that can be compared.
func (d breakData) write(w http.ResponseWriter, status int) {
	d.Style = template.CSS(style)
	var body bytes.Buffer
	if err := breakPage.Execute(&body, d); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Referrer-Policy", "same-origin")
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(body.Bytes()) // the reader has gone
}
