package fencing

import (
	"fmt"
	"strings"
)

// HeaderName is the field that carries fences, in HTTP and, in lower case, in
// gRPC's metadata.
//
// It is a structured field (RFC 8941), a List of Strings with two parameters:
//
//	Fencing-Token: "1763712345678901";lock="orders/42";mode=write
//
// The token is a String of decimal digits, not an Integer, since the standard's
// Integers end at 15 digits. The parameter lock is the resource as a String: the
// standard allows only ASCII there, so what is not a letter, a digit or one of
// -._~/: is percent-encoded. The parameter mode is the Token read or write.
// Several fences are several values, or members of one value with commas
// between, as intermediaries may join them.
const HeaderName = "Fencing-Token"

// The limits of one message. They bound a receiver's work before it has authenticated the sender; servers limit the
// size of a header to a similar value anyway.
const (
	MaxFences = 64
	MaxHeader = 16 << 10 // bytes, all values of the field together
)

// FormatHeader returns the value of [HeaderName] for f, which must be valid.
func FormatHeader(f Fence) string {
	return fmt.Sprintf(`"%s";lock="%s";mode=%s`, f.Token, escape(f.Resource), f.Mode)
}

// ParseHeader parses the values of [HeaderName], as [FormatHeader] and other senders write them, in their order. It
// refuses, with a [*MalformedError]: a value that is not the structured field described there, an unknown, missing or
// repeated parameter, a token that is zero or that [ParseToken] refuses, a resource that [Fence.Validate] refuses, two
// different fences of one resource (at most one of them can be true), more than [MaxFences] fences, and more than
// [MaxHeader] bytes. An empty value has no fence. A fence that comes twice, as from two interceptors or a proxy, is
// returned once.
func ParseHeader(values []string) ([]Fence, error) {
	if err := checkSize(values); err != nil {
		return nil, err
	}
	var fences []Fence
	seen, count := make(map[string]Fence), 0
	for _, v := range values {
		members, err := parseMembers(v)
		if err != nil {
			return nil, err
		}
		for _, f := range members {
			switch first, repeated := seen[f.Resource]; {
			case !repeated:
				seen[f.Resource] = f
				fences = append(fences, f)
			case first != f:
				return nil, malformed("header", v, fmt.Sprintf("a second fence for %q", clip(f.Resource)))
			}
		}
		if count += len(members); count > MaxFences {
			return nil, malformed("header", v, fmt.Sprintf("more than the limit of %d fences", MaxFences))
		}
	}
	return fences, nil
}

func checkSize(values []string) error {
	size := 0
	for _, v := range values {
		if size += len(v); size > MaxHeader {
			return malformed("header", v, fmt.Sprintf("the values exceed the limit of %d bytes", MaxHeader))
		}
	}
	return nil
}

// escape percent-encodes s for the parameter lock. The characters that it leaves alone need no escape in a structured
// field's String either.
func escape(s string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; plain(c) {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		}
	}
	return b.String()
}

func plain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~/:", c) >= 0
}
