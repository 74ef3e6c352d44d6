package objectguard

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/seed74116694/fencelock/fencing"
)

// ErrUnguarded reports that an object was not written by this package, so its writers are unknown. Only [Guard.Adopt]
// accepts it.
var ErrUnguarded = errors.New("objectguard: not a guarded object")

// header is the line before the data.
type header struct {
	Version  int           `json:"fencing"`
	Lock     string        `json:"lock"`
	MaxWrite fencing.Token `json:"max_write"`
	MaxRead  fencing.Token `json:"max_read"`
	IDs      string        `json:"id"`                // random, of the last writes; the newest first
	Deleted  bool          `json:"deleted,omitempty"` // or not written so far
}

const (
	version = 1
	// A lock's name has up to 512 bytes, each of up to 6 bytes in JSON; the rest is small.
	maxHeader = 4096
	// So many writes an object names: a write that no more than these have overtaken can tell what became of it.
	remembered = 32
)

// names reports whether the write of this id was the last one of the object or is remembered.
func (h header) names(id string) bool { return slices.Contains(strings.Fields(h.IDs), id) }

// lacks reports whether the write of o is certainly not among those that led to h: its register would have risen, or h
// names all writes since the one that o was to follow.
func (h header) lacks(o header) bool {
	last, _, _ := strings.Cut(o.IDs, " ")
	if last == "" {
		return h.MaxWrite < o.MaxWrite || len(strings.Fields(h.IDs)) < remembered
	}
	return h.MaxWrite < o.MaxWrite || h.names(last)
}

func (h header) registers() fencing.Registers {
	return fencing.Registers{MaxRead: h.MaxRead, MaxWrite: h.MaxWrite}
}

// open is the inverse of seal; data is a part of content.
func open(content []byte) (h header, data []byte, err error) {
	line, data, found := bytes.Cut(content, []byte{'\n'})
	if !found || len(line) > maxHeader {
		return header{}, nil, fmt.Errorf("%w: no header in the first %d bytes", ErrUnguarded, maxHeader)
	}
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&h); err != nil {
		return header{}, nil, fmt.Errorf("%w: header: %w", ErrUnguarded, err)
	}
	if h.Version != version || h.IDs == "" || decoder.InputOffset() != int64(len(line)) {
		return header{}, nil, fmt.Errorf("%w: not a header of version %d", ErrUnguarded, version)
	}
	if err := (fencing.Fence{Resource: h.Lock, Token: 1, Mode: fencing.Read}).Validate(); err != nil {
		return header{}, nil, fmt.Errorf("%w: header: %w", ErrUnguarded, err)
	}
	return h, data, nil
}

// Open extracts the data of a guarded object's content, for readers that bypass the guard and hold no lock: no register
// is raised, and such a reader may see older data than it saw before. A deleted object has no data. A content that is
// not a guarded object's is [ErrUnguarded].
func Open(content []byte) (data []byte, seen fencing.Registers, err error) {
	h, data, err := open(content)
	if err != nil {
		return nil, fencing.Registers{}, err
	}
	return data, h.registers(), nil
}
