package main

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// terminal passes on what a terminal shows, and escapes what would control it: servers and other processes choose
// texts. The escapes of characters are those of JSON.
type terminal struct{ io.Writer }

func (t terminal) Write(p []byte) (int, error) {
	var b strings.Builder
	for rest := p; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, rest[0])
		case r == '\n', r == '\t', unicode.IsPrint(r):
			b.Write(rest[:size])
		default:
			for _, unit := range utf16.Encode([]rune{r}) {
				fmt.Fprintf(&b, `\u%04x`, unit)
			}
		}
		rest = rest[size:]
	}
	if _, err := io.WriteString(t.Writer, b.String()); err != nil {
		return 0, err
	}
	return len(p), nil
}
