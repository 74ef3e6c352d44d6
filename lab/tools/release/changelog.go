package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	"golang.org/x/mod/semver"
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
	edited := strings.Replace(string(text), nextHeading, heading, 1)
	return os.WriteFile(path, []byte(becomes.ReplaceAllString(edited, "")), 0o666)
}

// becomes is the paragraph that says which version the section of the next release becomes.
var becomes = regexp.MustCompile(`(?m)^This becomes (v[0-9]+\.[0-9]+\.[0-9]+)\.(?:.*\S.*\n)*\n?`)

// nextVersion returns the version that the changelog says it becomes, or "".
func nextVersion(changelog string) string {
	found := becomes.FindStringSubmatch(nextSection(changelog) + "\n")
	if found == nil {
		return ""
	}
	return found[1]
}

// lastVersion returns the newest version that the changelog has, or "".
func lastVersion(changelog string) (last string) {
	for _, heading := range released.FindAllStringSubmatch(changelog, -1) {
		if version := "v" + heading[1]; semver.Compare(version, last) > 0 {
			last = version
		}
	}
	return last
}

var released = regexp.MustCompile(`(?m)^## \[([0-9]+\.[0-9]+\.[0-9]+)\]`)
