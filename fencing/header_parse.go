package fencing

import (
	"net/url"
	"strings"
)

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
		f.Mode, err = ParseMode(s.word())
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
