package transport

import (
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// Address is what a text says of servers: host:port, the path of a socket, or a URL.
type Address struct {
	Option  rueidis.ClientOption // with the servers in InitAddress
	Cluster bool                 // they are nodes of one Cluster
}

// IsOneServer reports whether the address names one server, which decides alone.
func (a Address) IsOneServer() bool {
	return len(a.Option.InitAddress) == 1 && !a.Cluster && !a.IsSentinel()
}

// IsSentinel reports whether the servers are sentinels.
func (a Address) IsSentinel() bool { return a.Option.Sentinel.MasterSet != "" }

// The rules of addresses. None of them quotes a URL, not even in part: a password with a character that should have
// been escaped may stand anywhere in the URL. A text with an @ and no scheme may be such a URL too. The one exception
// is the name of a parameter that there is not, if it has letters alone.
const (
	ruleForm = "must be host:port or a URL, which begins with redis://, rediss://, unix://, redis-sentinel:// or " +
		"redis-cluster://"
	ruleEscape = "the user or the password of a URL must be escaped: %2F for /, %3F for ?, %23 for #, %25 for %, " +
		"%40 for @"
	ruleHost     = "each server of a URL must be host or host:port"
	ruleDatabase = "the path of a URL must be the number of a database"
	ruleMaster   = "the name of the master must follow the sentinels: redis-sentinel://host:26379/name"
	ruleSocket   = "unix:// must be followed by an absolute path: unix:///run/redis.sock"
	ruleQuery    = "what follows the question mark of a URL cannot be read"
)

// ReadAddress reads an address, as Open takes it. masterSet is the name of the master of sentinels, where that is known
// from elsewhere. A URL has the forms of rueidis.ParseURL, and lists of servers:
//
//	redis://user:password@host:6379/0         one server; rediss:// is TLS, valkey:// and valkeys:// are the same
//	redis://a:6379?addr=b:6379                nodes of a Cluster; also redis-cluster://a:6379,b:6379
//	redis://a:26379?addr=b&master_set=name    sentinels; also redis-sentinel://a:26379,b:26379/name/0
//	redis://a:6379,b:6379,c:6379              several servers that decide together
//	unix://user:password@/run/redis.sock?db=0 one server, by its socket
func ReadAddress(text, masterSet string) (a Address, rule string) {
	scheme, rest, isURL := strings.Cut(text, "://")
	switch {
	case strings.Contains(text, "@") && !isURL:
		return a, ruleForm
	case !isURL:
		return readPlain(text, masterSet)
	}
	kind := strings.Replace(strings.ReplaceAll(strings.ToLower(scheme), "+", "-"), "valkey", "redis", 1)
	secure := strings.HasPrefix(kind, "rediss")
	kind = strings.Replace(kind, "rediss", "redis", 1)
	r := urlReader{a: &a, kind: kind}
	a.Option.Sentinel.MasterSet = masterSet
	switch kind {
	case "redis", "redis-sentinel", "redis-cluster", "unix":
		a.Cluster = kind == "redis-cluster"
		rule = r.read(rest)
	default:
		rule = ruleForm
	}
	if rule != "" {
		return Address{}, rule
	}
	if secure {
		a.secure(r.skipVerify)
	}
	return a, ""
}

// secure has all servers be asked by TLS, sentinels too. A certificate is checked for the name of the server that is
// dialled, which the dialer takes from its address.
func (a *Address) secure(skipVerify bool) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: skipVerify} //nolint:gosec // as asked
	a.Option.TLSConfig = config
	if a.IsOneServer() {
		config.ServerName, _, _ = net.SplitHostPort(a.Option.InitAddress[0])
	}
	if a.IsSentinel() {
		a.Option.Sentinel.TLSConfig = config.Clone()
	}
}

func readPlain(text, masterSet string) (a Address, rule string) {
	a.Option.Sentinel.MasterSet = masterSet
	if strings.HasPrefix(text, "/") {
		a.bySocket(text)
		return a, ""
	}
	for addr := range strings.SplitSeq(text, ",") {
		if !isHostPort(addr) {
			return Address{}, fmt.Sprintf("%q must be host:port or a URL", addr)
		}
		a.Option.InitAddress = append(a.Option.InitAddress, addr)
	}
	return a, ""
}

func (a *Address) bySocket(path string) {
	a.Option.InitAddress = []string{path}
	a.Option.DialCtxFn = func(ctx context.Context, path string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
		return d.DialContext(ctx, "unix", path)
	}
}

// urlReader reads what follows the scheme of a URL.
type urlReader struct {
	a          *Address
	kind       string
	query      url.Values
	skipVerify bool
}

func (r *urlReader) read(text string) (rule string) {
	authority, tail := text, ""
	if i := strings.IndexAny(text, "/?#"); i >= 0 {
		authority, tail = text[:i], text[i:]
	}
	path, query, _ := strings.Cut(tail, "?")
	if strings.ContainsAny(tail, "@#") {
		return ruleEscape
	}
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		o := &r.a.Option
		user, password, _ := strings.Cut(authority[:at], ":")
		var err1, err2 error
		o.Username, err1 = url.PathUnescape(user)
		o.Password, err2 = url.PathUnescape(password)
		if err1 != nil || err2 != nil {
			return ruleEscape
		}
		authority = authority[at+1:]
	}
	var err error
	if r.query, err = url.ParseQuery(query); err != nil {
		return ruleQuery
	}
	if rule = r.readParameters(); rule != "" {
		return rule
	}
	if path, err = url.PathUnescape(path); err != nil {
		return ruleEscape
	}
	if r.kind == "unix" {
		if authority != "" || path == "" {
			return ruleSocket
		}
		r.a.bySocket(path)
		return r.readDatabase("")
	}
	return r.readServers(authority, strings.Trim(path, "/"))
}

// readServers reads the servers, of which the first ones stand before the path.
func (r *urlReader) readServers(authority, path string) (rule string) {
	a := r.a
	if r.kind == "redis-sentinel" {
		var name string
		name, path, _ = strings.Cut(path, "/")
		if !a.IsSentinel() {
			a.Option.Sentinel.MasterSet = name
		}
		if !a.IsSentinel() {
			return ruleMaster
		}
	}
	if r.query.Has("addr") && !a.IsSentinel() {
		a.Cluster = true
	}
	port := "6379"
	if a.IsSentinel() {
		port = "26379"
	}
	for _, server := range append(strings.Split(authority, ","), r.query["addr"]...) {
		server = WithDefaults(server, port)
		if !isHostPort(server) {
			return ruleHost
		}
		a.Option.InitAddress = append(a.Option.InitAddress, server)
	}
	return r.readDatabase(path)
}

func (r *urlReader) readDatabase(path string) (rule string) {
	if r.query.Has("db") {
		path = r.query.Get("db")
	}
	if path == "" {
		return ""
	}
	var err error
	if r.a.Option.SelectDB, err = strconv.Atoi(path); err != nil || r.a.Option.SelectDB < 0 {
		return ruleDatabase
	}
	return ""
}

// parameters are what may follow the question mark of a URL: those of rueidis.ParseURL.
var parameters = []string{
	"addr", "client_cache", "client_name", "db", "dial_timeout", "master_set", "max_retries", "protocol", "skip_verify",
	"write_timeout",
}

// refuseUnknown returns the rule that a parameter breaks which there is not. Ignored, master-set for master_set would
// make a locker over a sentinel.
func (r *urlReader) refuseUnknown() (rule string) {
	for _, name := range slices.Sorted(maps.Keys(r.query)) {
		if slices.Contains(parameters, name) {
			continue
		}
		if name == "" || strings.Trim(strings.ToLower(name), "abcdefghijklmnopqrstuvwxyz-_") != "" {
			name = "what a URL has after the question mark" // it may be a part of a password
		}
		return name + " is no parameter of a URL; there are " + strings.Join(parameters, ", ")
	}
	return ""
}

// readParameters reads the parameters, but for the servers and the database.
func (r *urlReader) readParameters() (rule string) {
	if rule = r.refuseUnknown(); rule != "" {
		return rule
	}
	o := &r.a.Option
	for name, limit := range map[string]*time.Duration{
		"dial_timeout": &o.Dialer.Timeout, "write_timeout": &o.ConnWriteTimeout,
	} {
		var err error
		if !r.query.Has(name) {
			continue
		}
		if *limit, err = time.ParseDuration(r.query.Get(name)); err != nil || *limit <= 0 {
			return name + " of a URL must be a positive duration, such as 2s"
		}
	}
	if r.query.Has("skip_verify") {
		var err error
		if r.skipVerify, err = strconv.ParseBool(r.query.Get("skip_verify")); err != nil {
			if r.skipVerify = r.query.Get("skip_verify") == ""; !r.skipVerify {
				return "skip_verify of a URL must be true or false"
			}
		}
	}
	o.AlwaysRESP2 = r.query.Get("protocol") == "2"
	o.DisableCache = r.query.Get("client_cache") == "0"
	o.DisableRetry = r.query.Get("max_retries") == "0"
	o.ClientName = r.query.Get("client_name")
	if !r.a.IsSentinel() {
		o.Sentinel.MasterSet = r.query.Get("master_set")
	}
	return ""
}

// WithDefaults returns an address with a host and a port.
func WithDefaults(addr, port string) string {
	host, own, err := net.SplitHostPort(addr)
	if err != nil {
		host, own = strings.Trim(addr, "[]"), port
	}
	if host == "" {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, own)
}

// AddressRule returns the rule that the address of a server breaks, or "". A client waits for a server that does not
// answer, so with a mistyped address it would wait forever. With a dial function in base any address is allowed,
// because the function defines its own form of addresses.
func AddressRule(addr string, base rueidis.ClientOption) string {
	switch {
	case strings.Contains(addr, "://"):
		return "must be host:port and no URL: Open takes one, and rueidis.ParseURL makes options of it"
	case base.DialCtxFn == nil && base.DialFn == nil && !isHostPort(addr):
		return "must be host:port"
	default:
		return ""
	}
}

// Shown returns an address for an error: one that may have a password is not quoted.
func Shown(addr string) string {
	if strings.Contains(addr, "://") {
		return "a URL"
	}
	if strings.Contains(addr, "@") {
		return "an address with a user or a password"
	}
	return addr
}

func isHostPort(addr string) bool {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	if _, err = netip.ParseAddr(host); err != nil && strings.Contains(host, ":") {
		return false // no address of IPv6, such as host:port with one more port
	}
	n, err := net.LookupPort("tcp", port)
	return err == nil && n > 0
}
