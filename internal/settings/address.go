package settings

import (
	"net"
	"strings"

	"github.com/redis/rueidis"
)

// AddressRule returns the rule that the address of a server breaks, or "". One that does not answer yet is waited for;
// a typo would be waited for for ever. Whoever dials by a function of his own has addresses of his own.
func AddressRule(addr string, base rueidis.ClientOption) string {
	switch {
	case strings.Contains(addr, "://"):
		return "must be host:port and no URL; rueidis.ParseURL makes options of one"
	case base.DialCtxFn == nil && base.DialFn == nil && !isHostPort(addr):
		return "must be host:port"
	default:
		return ""
	}
}

func isHostPort(addr string) bool {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	n, err := net.LookupPort("tcp", port)
	return err == nil && n > 0
}
