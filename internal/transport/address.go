package transport

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/redis/rueidis"
)

// ReadAddress reads host:port or a URL, as Open takes them. The rule that a URL breaks does not quote it: it may have a
// password.
func ReadAddress(addr string) (base rueidis.ClientOption, rule string) {
	if !strings.Contains(addr, "://") {
		if !isHostPort(addr) {
			rule = fmt.Sprintf("%q must be host:port or a URL", addr)
		}
		return rueidis.ClientOption{InitAddress: []string{addr}}, rule
	}
	u, err := url.Parse(addr)
	if err == nil {
		if u.Path == "/" {
			u.Path = "" // no number of a database
		}
		if base, err = rueidis.ParseURL(u.String()); err == nil {
			return base, ""
		}
	}
	if of, ok := errors.AsType[*url.Error](err); ok {
		err = of.Err
	}
	return base, "a URL that cannot be read: " + err.Error()
}

// IsOneServer reports whether options that ReadAddress returned name one server, which decides alone.
func IsOneServer(base rueidis.ClientOption) bool {
	return len(base.InitAddress) == 1 && base.Sentinel.MasterSet == ""
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

func isHostPort(addr string) bool {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	n, err := net.LookupPort("tcp", port)
	return err == nil && n > 0
}

// BaseRule returns the first field of the client options that rules out locks, with its value and the rule that it
// breaks. The rule is "" if there is none.
func BaseRule(oneServer bool, base rueidis.ClientOption) (option string, value any, rule string) {
	const beside = "beside the address of one server"
	switch sentinel, standalone := base.Sentinel, base.Standalone; {
	case base.ReplicaOnly:
		return "base.ReplicaOnly", true, "must be false: a replica grants nothing"
	case len(standalone.ReplicaAddress) > 0:
		return "base.Standalone.ReplicaAddress", standalone.ReplicaAddress, "must be empty: a replica grants nothing"
	case oneServer && sentinel.MasterSet != "":
		return "base.Sentinel.MasterSet", sentinel.MasterSet, "must be empty " + beside +
			"; for Sentinel leave that empty, and name the sentinels in base.InitAddress"
	case oneServer && standalone.EnableRedirect:
		return "base.Standalone.EnableRedirect", true, "must be false " + beside + ", which is the one that grants"
	default:
		return "", nil, ""
	}
}
