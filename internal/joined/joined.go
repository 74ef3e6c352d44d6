// Package joined makes one error of several, as errors.Join does, but with its text on one line, because a log line, a
// problem body and a status message have one line.
package joined

import (
	"errors"
	"strings"
)

// Errors joins the errors that are not nil: it returns nil if there are none, the error itself if there is one, and
// otherwise an error that matches each of them. The text is the text of the errors in the given order, with "; "
// between them and in place of each line break.
func Errors(errs ...error) error {
	var all []error
	for _, err := range errs {
		if err != nil {
			all = append(all, err)
		}
	}
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	return &several{all}
}

type several struct{ errs []error }

func (s *several) Error() string {
	var lines []string
	for _, err := range s.errs {
		for line := range strings.Lines(err.Error()) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return strings.Join(lines, "; ")
}

// Unwrap is for errors.Is and errors.As.
func (s *several) Unwrap() []error { return s.errs }

// Parts returns the errors that Errors has joined: none of nil, and the error itself if there was one.
func Parts(err error) []error {
	if s, ok := err.(*several); ok {
		return s.errs
	}
	if err == nil {
		return nil
	}
	return []error{err}
}

// Part returns the first error that matches target among errors that any function joined, so that its text covers that
// error only. It returns an error that is not joined as it is.
func Part(err, target error) error {
	several, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return err
	}
	for _, part := range several.Unwrap() {
		if errors.Is(part, target) {
			return Part(part, target)
		}
	}
	return err
}
