package fencing

import "fmt"

// Mode is the mode in which a lock was taken. Its zero value is neither reading nor writing: a fence with a forgotten
// mode is refused instead of being taken for one of them.
type Mode uint8

// The modes of a lock.
const (
	Read  Mode = 1 // shared with other readers
	Write Mode = 2 // exclusive
)

// String returns "read", "write", or "none" for the zero value.
func (m Mode) String() string {
	switch m {
	case 0:
		return "none"
	case Read:
		return "read"
	case Write:
		return "write"
	default:
		return fmt.Sprintf("Mode(%d)", uint8(m))
	}
}

func parseMode(s string) (Mode, error) {
	switch s {
	case "read":
		return Read, nil
	case "write":
		return Write, nil
	default:
		return 0, malformed("mode", s, `it must be "read" or "write"`)
	}
}

// MarshalText returns the text of [Mode.String]. A mode that does not exist is a [*MalformedError].
func (m Mode) MarshalText() ([]byte, error) {
	if m > Write {
		return nil, malformed("mode", m.String(), "there is no such mode")
	}
	return []byte(m.String()), nil
}

// UnmarshalText parses the output of MarshalText, "none" included; on an error m is unchanged.
func (m *Mode) UnmarshalText(text []byte) error {
	if string(text) == "none" {
		*m = 0
		return nil
	}
	parsed, err := parseMode(string(text))
	if err != nil {
		return err
	}
	*m = parsed
	return nil
}
