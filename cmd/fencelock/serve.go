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
		"the `address` of the page; it has no password, so other addresses than loopback are for networks of your own,\n"+
			"and it breaks holds on loopback only")
	return func(ctx context.Context, s *session) (int, error) {
		s.target.by = userAtHost()
		c, err := s.target.connect(ctx)
		if err != nil {
			return 0, err
		}
		defer c.close()
		listener, err := net.Listen("tcp", *listen)
		if err != nil {
			fmt.Fprintf(s.errs, "fencelock serve: -listen %s: %v\n", *listen, err)
			return 0, errUsage
		}
		show := lockdebug.ListHandler
		address := listener.Addr().(*net.TCPAddr).IP
		if address.IsLoopback() {
			show = lockdebug.OperatorHandler
		}
		named, _, _ := net.SplitHostPort(*listen)
		page := onlyFor(address, named, show(c.locker, strings.Join(s.target.addrs, ", ")))
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

// onlyFor refuses requests for another host than the one that is listened to: a site that gives its own name the
// address of this machine would otherwise read the page in the browser of its visitor, and use it. If all interfaces
// are listened to, each address is such a host, and of names the one that the command line has.
func onlyFor(address net.IP, named string, page http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = strings.Trim(r.Host, "[]")
		}
		ip, fits := net.ParseIP(host), host == named && host != ""
		switch {
		case address.IsLoopback():
			fits = fits || host == "localhost" || ip.IsLoopback()
		case address.IsUnspecified():
			fits = fits || ip != nil
		default:
			fits = fits || address.Equal(ip)
		}
		if !fits {
			http.Error(w, fmt.Sprintf("host %q: must be the address that is listened to", r.Host), http.StatusForbidden)
			return
		}
		page.ServeHTTP(w, r)
	})
}
