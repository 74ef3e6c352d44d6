package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/seed74116694/fencelock/lockdebug"
)

func defineServe(flags *flag.FlagSet) func(context.Context, *session) (int, error) {
	listen := flags.String("listen", "127.0.0.1:8379",
		"the `address` of the page; it has no password, so other addresses than loopback are for networks of your own")
	return func(ctx context.Context, s *session) (int, error) {
		c, err := s.target.connect()
		if err != nil {
			return 0, err
		}
		defer c.close()
		listener, err := net.Listen("tcp", *listen)
		if err != nil {
			fmt.Fprintf(s.errs, "fencelock serve: -listen %s: %v\n", *listen, err)
			return 0, errUsage
		}
		page := lockdebug.ListHandler(c.locker, strings.Join(s.target.addrs, ", "))
		if address := listener.Addr().(*net.TCPAddr); address.IP.IsLoopback() {
			page = onlyLoopback(page)
		}
		server := &http.Server{Handler: page, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
		stop := context.AfterFunc(ctx, func() { _ = server.Close() })
		defer stop()
		fmt.Fprintf(s.out, "http://%s/\n", listener.Addr())
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return 0, err
		}
		return statusOK, nil // interrupted, as wanted
	}
}

// onlyLoopback refuses requests for other hosts than this machine: a site that gives its own name the address 127.0.0.1
// would otherwise read the page in the browser of its visitor.
func onlyLoopback(page http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		ip := net.ParseIP(strings.Trim(host, "[]"))
		if host != "localhost" && !ip.IsLoopback() {
			http.Error(w, fmt.Sprintf("host %q: must be localhost or a loopback address", r.Host), http.StatusForbidden)
			return
		}
		page.ServeHTTP(w, r)
	})
}
