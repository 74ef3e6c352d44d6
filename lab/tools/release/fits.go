package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/semver"
)

// untilRelease is what pages say as long as there is no release, and a person deletes before the first one.
const untilRelease = "no release yet"

// fits returns an error if the repository is not ready to become the version. It names what a person has to change.
func fits(repository, version string) error {
	if version == "" || semver.Canonical(version) != version || semver.Compare(version, "v2.0.0") >= 0 {
		return fmt.Errorf("%q must be a version such as v0.2.0, below v2.0.0", version)
	}
	text, err := os.ReadFile(filepath.Join(repository, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	changelog := string(text)
	last, next := lastVersion(changelog), nextVersion(changelog)
	switch {
	case next != "" && next != version:
		return fmt.Errorf("CHANGELOG.md says that this becomes %s, not %s", next, version)
	case semver.Compare(version, last) <= 0:
		return fmt.Errorf("%s is not above %s, the last one in CHANGELOG.md", version, last)
	}
	tag, err := git(repository, "tag", "--list", version)
	if err != nil {
		return err
	}
	if tag != "" {
		return fmt.Errorf("the tag %s exists, and a tag is never moved", version)
	}
	if err := noPageIsBefore(repository); err != nil {
		return err
	}
	gone, _, err := changesOfAPI(repository)
	if err != nil {
		return err
	}
	return fitsAPI(gone, changelog, last, version)
}

// fitsAPI returns an error if what is gone from the API since the last version must not go with this one.
func fitsAPI(gone []string, changelog, last, version string) error {
	if silent := unannounced(gone, changelog); len(silent) > 0 {
		return fmt.Errorf("the section [Unreleased] of CHANGELOG.md does not name in backquotes:\n%s",
			strings.Join(silent, "\n"))
	}
	if len(gone) == 0 || last == "" {
		return nil
	}
	patch := semver.MajorMinor(last) == semver.MajorMinor(version)
	if patch || semver.Major(version) != "v0" && semver.Major(last) == semver.Major(version) {
		return fmt.Errorf("%s after %s must not break programs, and it takes away:\n%s",
			version, last, strings.Join(gone, "\n"))
	}
	return nil
}

// noPageIsBefore returns an error if a page says that there is no release.
func noPageIsBefore(repository string) error {
	pages, err := filepath.Glob(filepath.Join(repository, "docs", "*.md"))
	if err != nil {
		return err
	}
	for _, page := range append(pages, filepath.Join(repository, "README.md"), filepath.Join(repository, "llms.txt")) {
		text, err := os.ReadFile(page)
		if err != nil {
			return err
		}
		if strings.Contains(strings.Join(strings.Fields(string(text)), " "), untilRelease) {
			return fmt.Errorf("%s says %q: delete that, and commit", page, untilRelease)
		}
	}
	return nil
}
