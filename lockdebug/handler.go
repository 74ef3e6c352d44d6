package lockdebug

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/seed74116694/fencelock/rwlock"
)

func handler(l *rwlock.Locker, take func(ctx context.Context, r request) (snapshot, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setHeaders(w.Header())
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, fmt.Sprintf("method %q: must be GET or HEAD", r.Method), http.StatusMethodNotAllowed)
			return
		}
		if l == nil {
			http.Error(w, "locker: nil: must be a locker", http.StatusInternalServerError)
			return
		}
		format, asked, err := parameters(r.URL)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		s, err := take(r.Context(), asked)
		if err != nil { // the reader has gone
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		serve(w, format, s)
	})
}

// setHeaders sets what every answer has.
func setHeaders(h http.Header) {
	h.Set("Content-Security-Policy", contentSecurityPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// format is what an answer is written in.
type format string

const (
	asHTML format = "html"
	asJSON format = "json"
)

// request says which locks an answer has, and in which order.
type request struct {
	Search  string `json:"search"`
	Prefix  string `json:"prefix,omitempty"`
	Waiting bool   `json:"waiting,omitempty"`
	Sort    string `json:"sort,omitempty"`
}

// Link returns the query for this request, with only locks with waiters or with all.
func (r request) Link(waiting bool) string {
	query := url.Values{}
	for name, value := range map[string]string{"q": r.Search, "prefix": r.Prefix, "sort": r.Sort} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if waiting {
		query.Set("waiting", "1")
	}
	return "?" + query.Encode()
}

// maxSearch bounds a search text, in bytes: no name of a lock is longer.
const maxSearch = 512

// parameters reads the query of a request. An empty value is as none: the form of the page sends all of its fields.
func parameters(u *url.URL) (as format, asked request, err error) {
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return "", request{}, fmt.Errorf("query: %w", err)
	}
	as = asHTML
	if query.Has("format") {
		as = format(query.Get("format"))
	}
	if as != asHTML && as != asJSON {
		return "", request{}, fmt.Errorf("format %q: must be html or json", string(as))
	}
	asked = request{Search: query.Get("q"), Prefix: query.Get("prefix"), Sort: query.Get("sort")}
	for _, name := range []string{"q", "prefix"} {
		if n := len(query.Get(name)); n > maxSearch {
			return "", request{}, fmt.Errorf("%s of %d bytes: must be at most %d bytes", name, n, maxSearch)
		}
	}
	if !utf8.ValidString(asked.Prefix) {
		return "", request{}, fmt.Errorf("prefix %q: must be valid UTF-8", asked.Prefix)
	}
	if orders[asked.Sort] == nil {
		return "", request{}, fmt.Errorf("sort %q: must be name, held or waiting", asked.Sort)
	}
	switch query.Get("waiting") {
	case "":
	case "1":
		asked.Waiting = true
	default:
		return "", request{}, fmt.Errorf("waiting %q: must be 1, or none", query.Get("waiting"))
	}
	return as, asked, nil
}

// serve writes the answer in one piece, so that a slow reader keeps nothing but its bytes.
func serve(w http.ResponseWriter, as format, s snapshot) {
	var body bytes.Buffer
	var err error
	if as == asJSON {
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		err = json.NewEncoder(&body).Encode(s)
	} else {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		err = page.Execute(&body, &pageData{snapshot: s, Style: template.CSS(style), Script: template.JS(script)})
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if s.Unknown {
		w.WriteHeader(http.StatusBadGateway)
	}
	_, _ = w.Write(body.Bytes()) // the reader has gone
}

//go:embed page.html
var pageText string

//go:embed page.css
var style string

//go:embed page.js
var script string

// pageData is what the page is made from. Style and Script are files of this package, and no input.
type pageData struct {
	snapshot
	Style  template.CSS
	Script template.JS
}

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"duration": shownDuration, "text": printable, "moment": shownMoment, "label": statLabel,
	"folded": func(row int) bool { return row >= foldedRows },
}).Parse(pageText))

// contentSecurityPolicy lets nothing run and nothing load but the page's own script and style, by their hashes, and the
// page's own address.
var contentSecurityPolicy = strings.Join([]string{
	"default-src 'none'", "script-src " + hashOf(script), "style-src " + hashOf(style), "connect-src 'self'",
	"form-action 'self'", "base-uri 'none'", "frame-ancestors 'none'",
}, "; ")

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
