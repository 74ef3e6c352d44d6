package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/sumdb/dirhash"
	"golang.org/x/mod/zip"
)

const rootPath = "github.com/seed74116694/fencelock"

// published are the nested modules that other repositories may require, by folder. The remaining modules in go.work
// serve this repository only.
var published = []string{
	"fencing/grpcfence",
	"fencing/objectguard/s3bucket",
	"fencing/pgxguard",
	"locktest",
	"rwlock/gocronlock",
	"rwlock/goredisconf",
	"rwlock/rwlockotel",
}

// modules returns the folders of all modules that other repositories may require, "" for the root module.
func modules() []string { return append([]string{""}, published...) }

// prepare edits the changelog, the exported API and the requirements of the nested modules for the version, keeps its
// scripts, and returns the tags of the commit.
func prepare(repository, version string, day time.Time) (tags []string, err error) {
	if err := fits(repository, version); err != nil {
		return nil, err
	}
	folders, err := editWork(filepath.Join(repository, "go.work"), version)
	if err != nil {
		return nil, err
	}
	if err := keepScripts(repository, version); err != nil {
		return nil, err
	}
	if err := editChangelog(filepath.Join(repository, "CHANGELOG.md"), version, day); err != nil {
		return nil, err
	}
	// The root module's content is known before its nested modules' go.sum: it does not contain them.
	if _, err := git(repository, "add", "go.work", "CHANGELOG.md"); err != nil {
		return nil, err
	}
	sums, err := rootSums(repository, version)
	if err != nil {
		return nil, err
	}
	for _, folder := range folders {
		if err := editModule(filepath.Join(repository, folder), version, sums); err != nil {
			return nil, err
		}
	}
	if err := writeAPI(repository); err != nil {
		return nil, err
	}
	if _, err := git(repository, "add", "--update"); err != nil {
		return nil, err
	}
	for _, folder := range modules() {
		tags = append(tags, path.Join(folder, version))
	}
	return tags, nil
}

// editWork makes the workspace stand for the root module at the version, and returns the folders of the nested modules.
func editWork(path, version string) (folders []string, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	work, err := modfile.ParseWork(path, text, nil)
	if err != nil {
		return nil, err
	}
	for _, replace := range slices.Clone(work.Replace) {
		if replace.Old.Path == rootPath {
			if err := work.DropReplace(rootPath, replace.Old.Version); err != nil {
				return nil, err
			}
		}
	}
	if err := work.AddReplace(rootPath, version, "./", ""); err != nil {
		return nil, err
	}
	work.Cleanup()
	for _, use := range work.Use {
		if filepath.Clean(use.Path) != "." {
			folders = append(folders, use.Path)
		}
	}
	return folders, os.WriteFile(path, modfile.Format(work.Syntax), 0o666)
}

// editModule leaves a module unchanged if it does not require the root module.
func editModule(folder, version string, sums []string) error {
	path := filepath.Join(folder, "go.mod")
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	mod, err := modfile.Parse(path, text, nil)
	if err != nil {
		return err
	}
	requires := func(r *modfile.Require) bool { return r.Mod.Path == rootPath }
	if !slices.ContainsFunc(mod.Require, requires) {
		return nil
	}
	if err := mod.AddRequire(rootPath, version); err != nil {
		return err
	}
	if text, err = mod.Format(); err != nil {
		return err
	}
	if err := os.WriteFile(path, text, 0o666); err != nil {
		return err
	}
	return editSums(filepath.Join(folder, "go.sum"), sums)
}

// editSums replaces the lines of a go.sum for the root module.
func editSums(path string, sums []string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	lines := slices.Clone(sums)
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, rootPath+" ") {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return os.WriteFile(path, []byte(strings.Join(lines, "")), 0o666)
}

// rootSums returns the lines of go.sum for the root module as it is staged.
func rootSums(repository, version string) ([]string, error) {
	tree, err := git(repository, "write-tree")
	if err != nil {
		return nil, err
	}
	archive, err := os.CreateTemp("", "*.zip")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.Remove(archive.Name()) }()
	defer func() { _ = archive.Close() }()
	root := module.Version{Path: rootPath, Version: version}
	if err := zip.CreateFromVCS(archive, root, repository, tree, ""); err != nil {
		return nil, err
	}
	content, err := dirhash.HashZip(archive.Name(), dirhash.Hash1)
	if err != nil {
		return nil, err
	}
	mod, err := dirhash.Hash1([]string{"go.mod"}, func(string) (io.ReadCloser, error) {
		return os.Open(filepath.Join(repository, "go.mod"))
	})
	return []string{
		fmt.Sprintf("%s %s %s\n", rootPath, version, content),
		fmt.Sprintf("%s %s/go.mod %s\n", rootPath, version, mod),
	}, err
}

func git(folder string, args ...string) (string, error) {
	var failure bytes.Buffer
	command := exec.Command("git", args...)
	command.Dir, command.Stderr = folder, &failure
	answer, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, failure.String())
	}
	return strings.TrimSpace(string(answer)), nil
}
