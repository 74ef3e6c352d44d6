package httpfence

import "net/http"

// kind is the status and the cause that all problems of a type share.
type kind struct {
	name   string // the type
	title  string
	status int
}

// kinds are the problems that WriteProblem sends and ResponseError knows.
var kinds = byName(
	kind{TypeStale, "Stale fencing token", http.StatusPreconditionFailed},
	kind{TypeLost, "Lock lost", http.StatusPreconditionFailed},
	kind{TypeMissing, "Fencing token required", http.StatusPreconditionRequired},
	kind{TypeMalformed, "Malformed fencing token", http.StatusBadRequest},
	kind{TypeBusy, "Resource busy", http.StatusServiceUnavailable},
	kind{TypeFailed, "Guard failed", http.StatusInternalServerError},
)

func byName(all ...kind) map[string]kind {
	names := make(map[string]kind, len(all))
	for _, k := range all {
		names[k.name] = k
	}
	return names
}

func (k kind) problem(detail string) problem {
	return problem{Type: k.name, Title: k.title, Status: k.status, Detail: detail}
}
