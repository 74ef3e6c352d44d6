package fencing

import (
	"fmt"
	"net/url"
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
	maxFences = 64
	maxHeader = 16 << 10 // bytes, all values of the field together
)

// FormatHeader returns the value of [HeaderName] for f, which must be valid.
func FormatHeader(f Fence) string {
	return fmt.Sprintf(`"%s";lock="%s";mode=%s`, f.Token, escape(f.Resource), f.Mode)
}

// ParseHeader parses the values of [HeaderName], as [FormatHeader] and other senders write them, in their order. It
// refuses, with a [*MalformedError]: a value that is not the structured field described there, an unknown, missing or
// repeated parameter, a token that is zero or that [ParseToken] refuses, a resource that [Fence.Validate] refuses, two
// different fences of one resource (at most one of them can be true), more than 64 fences, and more than 16 KiB. An
// empty value has no fence. A fence that comes twice, as from two interceptors or a proxy, is returned once.
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
		if count += len(members); count > maxFences {
			return nil, tooMany(v)
		}
	}
	return fences, nil
}

func tooMany(value string) error {
	return malformed("header", value, fmt.Sprintf("more than the limit of %d fences", maxFences))
}

func checkSize(values []string) error {
	size := 0
	for _, v := range values {
		if size += len(v); size > maxHeader {
			return malformed("header", v, fmt.Sprintf("the values exceed the limit of %d bytes", maxHeader))
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

// scanner parses one value of the header from left to right. Its methods consume the text that they accept.
type scanner struct{ value, rest string }

// parseMembers parses the fences of one value: a List of RFC 8941, section 4.2.1.
func parseMembers(value string) ([]Fence, error) {
	s := &scanner{value: value, rest: strings.Trim(value, " ")}
	var fences []Fence
	for s.rest != "" {
		f, err := s.member()
		if err != nil {
			return nil, err
		}
		fences = append(fences, f)
		if err := s.separator(); err != nil {
			return nil, err
		}
	}
	return fences, nil
}

// separator consumes the text between two members of a List, or nothing at the end of the List. It refuses a comma at
// the end, as the standard requires.
func (s *scanner) separator() error {
	s.skip(" \t")
	if s.rest == "" {
		return nil
	}
	if !s.accept(',') {
		return s.refuse("a comma must separate its members")
	}
	if s.skip(" \t"); s.rest == "" {
		return s.refuse("nothing follows its last comma")
	}
	return nil
}

func (s *scanner) member() (Fence, error) {
	var f Fence
	digits, err := s.quoted()
	if err != nil {
		return f, err
	}
	if f.Token, err = ParseToken(digits); err != nil {
		return f, err
	}
	for s.accept(';') {
		s.skip(" ")
		if err := s.parameter(&f); err != nil {
			return f, err
		}
	}
	switch {
	case f.Token == 0:
		return f, s.refuse("a token of 0 is none")
	case f.Resource == "":
		return f, s.refuse("the parameter lock is missing")
	case f.Mode == 0:
		return f, s.refuse("the parameter mode is missing")
	}
	return f, nil
}

// parameter consumes a name and a value and puts the value into f. A resource or
// mode that f has already is a repetition, since neither is ever set to its zero
// value.
func (s *scanner) parameter(f *Fence) (err error) {
	key := s.word()
	if !s.accept('=') {
		return s.refuse("every parameter must have a name and a value")
	}
	switch {
	case key == "lock" && f.Resource == "":
		f.Resource, err = s.resource()
		return err
	case key == "mode" && f.Mode == 0:
		f.Mode, err = parseMode(s.word())
		return err
	case key == "lock" || key == "mode":
		return s.refuse("the parameter " + key + " is repeated")
	default:
		return s.refuse("its parameters are lock and mode")
	}
}

func (s *scanner) resource() (string, error) {
	text, err := s.quoted()
	if err != nil {
		return "", err
	}
	name, err := url.PathUnescape(text)
	if err != nil {
		return "", malformed("resource", text, err.Error())
	}
	return name, validateResource(name)
}

// quoted consumes a String: ASCII in double quotes, where a backslash may stand
// before a quote or a backslash only.
func (s *scanner) quoted() (string, error) {
	if !s.accept('"') {
		return "", s.refuse("tokens, locks and owners must be in double quotes")
	}
	var b strings.Builder
	for i := 0; i < len(s.rest); i++ {
		switch c := s.rest[i]; {
		case c == '"':
			s.rest = s.rest[i+1:]
			return b.String(), nil
		case c == '\\':
			if i++; i == len(s.rest) || s.rest[i] != '"' && s.rest[i] != '\\' {
				return "", s.refuse("a backslash escapes nothing but a quote or a backslash")
			}
			b.WriteByte(s.rest[i])
		case c < ' ' || c > '~':
			return "", s.refuse("only printable ASCII is allowed between quotes")
		default:
			b.WriteByte(c)
		}
	}
	return "", s.refuse("a closing quote is missing")
}

// word consumes lower-case letters: the parameters' names and the modes.
func (s *scanner) word() string {
	end := 0
	for end < len(s.rest) && 'a' <= s.rest[end] && s.rest[end] <= 'z' {
		end++
	}
	w := s.rest[:end]
	s.rest = s.rest[end:]
	return w
}

func (s *scanner) accept(c byte) bool {
	if s.rest == "" || s.rest[0] != c {
		return false
	}
	s.rest = s.rest[1:]
	return true
}

func (s *scanner) skip(cutset string) { s.rest = strings.TrimLeft(s.rest, cutset) }

func (s *scanner) refuse(reason string) error { return malformed("header", s.value, reason) }
