package main

import (
	"bytes"
	"os"
	"path/filepath"
)

// releasedScripts has the scripts of each release, by its version. The tests of package scriptfuzz play them together
// with the present ones.
const releasedScripts = "internal/test/scriptfuzz/testdata/releases"

// keepScripts stages a copy of the scripts under the version, unless an earlier release has the same ones.
func keepScripts(repository, version string) error {
	paths, err := filepath.Glob(filepath.Join(repository, "scripts", "*.lua"))
	if err != nil {
		return err
	}
	texts := make(map[string][]byte, len(paths))
	for _, path := range paths {
		if texts[filepath.Base(path)], err = os.ReadFile(path); err != nil {
			return err
		}
	}
	releases, err := filepath.Glob(filepath.Join(repository, releasedScripts, "v*"))
	if err != nil {
		return err
	}
	for _, folder := range releases {
		if filepath.Base(folder) != version && hasScripts(folder, texts) {
			return nil
		}
	}
	folder := filepath.Join(repository, releasedScripts, version)
	if err := os.RemoveAll(folder); err != nil { // of a version that was prepared before
		return err
	}
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return err
	}
	for name, text := range texts {
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o666); err != nil {
			return err
		}
	}
	_, err = git(repository, "add", folder)
	return err
}

// hasScripts reports whether the folder has these texts and no other script.
func hasScripts(folder string, texts map[string][]byte) bool {
	paths, err := filepath.Glob(filepath.Join(folder, "*.lua"))
	if err != nil || len(paths) != len(texts) {
		return false
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(text, texts[filepath.Base(path)]) {
			return false
		}
	}
	return true
}
