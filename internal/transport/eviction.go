package transport

import (
	"context"
	"strings"
)

// Evicts returns the policy by which the server evicts keys that expire; "" if it does not evict, or does not tell: the
// user of the locks may not be allowed to ask, and of a Cluster it is not known which server answers for all slots.
func (n *Node) Evicts(ctx context.Context) (policy string) {
	if !n.direct && n.m.cluster() {
		return ""
	}
	text, err := n.client.Do(withoutDeadline{ctx}, n.client.B().Info().Section("memory").Build()).ToString()
	if err != nil {
		return ""
	}
	limited := false
	for line := range strings.Lines(text) {
		switch name, value, _ := strings.Cut(strings.TrimSpace(line), ":"); name {
		case "maxmemory":
			limited = value != "0"
		case "maxmemory_policy":
			policy = value
		}
	}
	if !limited || policy == "noeviction" {
		return ""
	}
	return policy
}
