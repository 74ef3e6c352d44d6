package main

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// nextHeading begins the section of the changelog for the next release.
const nextHeading = "## [Unreleased]\n"

// nextSection returns the text below that heading.
func nextSection(changelog string) string {
	_, section, _ := strings.Cut(changelog, nextHeading)
	section, _, _ = strings.Cut(section, "\n## ")
	return strings.TrimSpace(section)
}

// editChangelog gives the section of the next release a version and a date.
func editChangelog(path, version string, day time.Time) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if nextSection(string(text)) == "" {
		return fmt.Errorf("%s: the section [Unreleased] has no text", path)
	}
	heading := fmt.Sprintf("%s\n## [%s] - %s\n", nextHeading, strings.TrimPrefix(version, "v"), day.Format(time.DateOnly))
	return os.WriteFile(path, []byte(strings.Replace(string(text), nextHeading, heading, 1)), 0o666)
}
