package main

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

var build = flag.Bool("build", false, "build a stranger's program with each module")

// A replace in a module's own go.mod holds for that module only: whoever depends on it would look for the version that
// it requires. The workspace stands for that version instead.
func TestNestedModulesReplaceNothing(t *testing.T) {
	repository := filepath.Join("..", "..", "..")
	text, err := os.ReadFile(filepath.Join(repository, "go.work"))
	require.NoError(t, err)
	work, err := modfile.ParseWork("go.work", text, nil)
	require.NoError(t, err)
	require.Len(t, work.Replace, 1)
	require.Equal(t, rootPath, work.Replace[0].Old.Path)
	require.Equal(t, "./", work.Replace[0].New.Path)

	used := map[string]bool{}
	for _, use := range work.Use {
		folder := strings.TrimPrefix(use.Path, "./")
		used[folder] = true
		text, err := os.ReadFile(filepath.Join(repository, folder, "go.mod"))
		require.NoError(t, err)
		mod, err := modfile.Parse(folder, text, nil)
		require.NoError(t, err)
		for _, r := range mod.Replace {
			require.NotEqual(t, rootPath, r.Old.Path, folder)
			require.NotContains(t, published, folder, "%s replaces %s", folder, r.Old.Path)
		}
		for _, r := range mod.Require {
			if r.Mod.Path == rootPath {
				require.Equal(t, work.Replace[0].Old.Version, r.Mod.Version, folder)
			}
		}
	}
	for _, folder := range published {
		require.True(t, used[folder], folder)
	}
}

// Whoever depends on a nested module may have a later version of the root module in the build, whose internal packages
// promise nothing. Tests run in this repository only, beside the version that they are for.
func TestPublishedModulesImportNothingInternal(t *testing.T) {
	for _, folder := range published {
		paths, err := filepath.Glob(filepath.Join("..", "..", "..", folder, "*.go"))
		require.NoError(t, err)
		require.NotEmpty(t, paths)
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
			require.NoError(t, err)
			for _, spec := range file.Imports {
				require.NotContains(t, spec.Path.Value, rootPath+"/internal", path)
			}
		}
	}
}

// The whole procedure in a temporary repository, and then what a stranger does: a module that requires a nested one,
// from a module proxy that has what the tags have, outside any workspace.
func TestAReleaseCanBeFetched(t *testing.T) {
	const version = "v0.7.3"
	repository := cloneForTest(t)
	makeReady(t, repository, version)
	tags, err := prepare(repository, version, time.Date(2031, 2, 3, 4, 5, 6, 7, time.UTC))
	require.NoError(t, err)
	require.Len(t, tags, 1+len(published))
	require.Subset(t, tags, []string{version, "rwlock/gocronlock/" + version})
	must(t)(git(repository, "commit", "-m", "release"))
	for _, tag := range tags {
		must(t)(git(repository, "tag", tag))
	}
	require.Empty(t, must(t)(git(repository, "status", "--porcelain")))
	require.Contains(t, must(t)(git(repository, "show", version+":CHANGELOG.md")), "\n## [0.7.3] - 2031-02-03\n")
	gone, added, err := changesOfAPI(repository)
	require.NoError(t, err)
	require.Empty(t, gone)
	require.Empty(t, added)

	proxy := newProxy(t)
	proxy.add(t, repository, module.Version{Path: rootPath, Version: version}, "")
	for _, folder := range published {
		nested := module.Version{Path: path.Join(rootPath, folder), Version: version}
		proxy.add(t, repository, nested, folder)
	}
	t.Run("the root module", func(t *testing.T) {
		stranger := newStranger(t, path.Join(rootPath, "redlock"), path.Join(rootPath, "reentrant"))
		proxy.run(t, stranger, "get", path.Join(rootPath, "redlock")+"@"+version)
		proxy.run(t, stranger, "list", "-deps", "./...")
		if *build {
			proxy.run(t, stranger, "build", "-trimpath", "-o", os.DevNull)
		}
	})
	for _, folder := range published {
		nested := module.Version{Path: path.Join(rootPath, folder), Version: version}
		t.Run(folder, func(t *testing.T) {
			stranger := newStranger(t, nested.Path)
			proxy.run(t, stranger, "get", nested.String())
			require.Contains(t, proxy.run(t, stranger, "list", "-m", rootPath), version)
			proxy.run(t, stranger, "list", "-deps", "./...")
			if *build {
				proxy.run(t, stranger, "build", "-trimpath", "-o", os.DevNull)
			}

			// And what the tag has of the module itself states all that it and its tests need, with its sums.
			proxy.run(t, filepath.Join(repository, folder), "list", "-mod=readonly", "-deps", "-test", "./...")
		})
	}
}

// A release keeps its scripts, unless an earlier one has the same; preparing it again replaces them.
func TestAReleaseKeepsItsScripts(t *testing.T) {
	needGit(t)
	repository := t.TempDir()
	must(t)(git(repository, "init"))
	script := filepath.Join(repository, "scripts", "a.lua")
	kept := func(version string) string {
		text, err := os.ReadFile(filepath.Join(repository, releasedScripts, version, "a.lua"))
		if err != nil {
			return ""
		}
		return string(text)
	}
	for _, step := range []struct{ version, script, kept string }{
		{"v0.1.0", "one", "one"}, {"v0.1.1", "one", ""}, {"v0.2.0", "two", "two"}, {"v0.2.0", "three", "three"},
	} {
		write(t, script, step.script)
		require.NoError(t, keepScripts(repository, step.version))
		require.Equal(t, step.kept, kept(step.version), step)
	}
	require.Equal(t, "one", kept("v0.1.0"))
	require.Contains(t, must(t)(git(repository, "status", "--porcelain")), "A  "+releasedScripts+"/v0.2.0/a.lua")
}

// newStranger returns the folder of a module that imports packages.
func newStranger(t *testing.T, packages ...string) string {
	t.Helper()
	folder := t.TempDir()
	write(t, filepath.Join(folder, "go.mod"), "module example.com/stranger\n\ngo 1.26.0\n")
	write(t, filepath.Join(folder, "main.go"),
		fmt.Sprintf("package main\n\nimport (\n\t_ \"%s\"\n)\n\nfunc main() {}\n", strings.Join(packages, "\"\n\t_ \"")))
	return folder
}

func TestPrepareRefusesOtherVersions(t *testing.T) {
	for _, version := range []string{"", "0.2.0", "v0.2", "v1", "v2.0.0", "v0.2.0+x", "latest"} {
		_, err := prepare(t.TempDir(), version, time.Now())
		require.ErrorContains(t, err, "must be a version", version)
	}
}

// makeReady does what a person does before the first release: the pages stop saying that there is none.
func makeReady(t *testing.T, repository, version string) {
	t.Helper()
	edit(t, repository, "CHANGELOG.md", "This becomes v0.1.0.", "This becomes "+version+".")
	for _, page := range []string{"README.md", "llms.txt", "docs/integrations.md"} {
		edit(t, repository, page, untilRelease, "a release")
	}
}

// edit replaces a text that a file has, and commits.
func edit(t *testing.T, repository, path, old, replacement string) {
	t.Helper()
	path = filepath.Join(repository, path)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Contains(t, string(text), old, path)
	write(t, path, strings.ReplaceAll(string(text), old, replacement))
	must(t)(git(repository, "commit", "--quiet", "--all", "--allow-empty", "-m", "edit"))
}

func TestWhatDoesNotFitIsRefused(t *testing.T) {
	repository := cloneForTest(t)
	require.ErrorContains(t, fits(repository, "v0.2.0"), "this becomes v0.1.0, not v0.2.0")
	require.ErrorContains(t, fits(repository, "v0.1.0"), untilRelease)
	makeReady(t, repository, "v0.1.0")

	must(t)(git(repository, "tag", "v0.1.0"))
	require.ErrorContains(t, fits(repository, "v0.1.0"), "the tag v0.1.0 exists")
	must(t)(git(repository, "tag", "--delete", "v0.1.0"))

	edit(t, repository, "CHANGELOG.md", "## [Unreleased]\n", "## [Unreleased]\n\n## [0.1.0] - 2030-01-01\n")
	require.ErrorContains(t, fits(repository, "v0.1.0"), "v0.1.0 is not above v0.1.0")
	edit(t, repository, "rwlock/errors.go", "func Indeterminate(", "func Undecided(")
	require.ErrorContains(t, fits(repository, "v0.2.0"), "in backquotes:\nfencelock/rwlock: func Indeterminate")
}

func TestWhatAVersionMayTakeAway(t *testing.T) {
	gone := []string{"fencelock/rwlock: func Indeterminate func(error) bool"}
	const named = "## [Unreleased]\n\n- `Indeterminate` is gone.\n"
	for versions, refused := range map[[2]string]string{
		{"", "v0.1.0"}: "", {"v0.1.0", "v0.2.0"}: "", {"v0.9.0", "v1.0.0"}: "",
		{"v0.1.0", "v0.1.1"}: "v0.1.1 after v0.1.0 must not break programs",
		{"v1.1.0", "v1.2.0"}: "v1.2.0 after v1.1.0 must not break programs",
	} {
		err := fitsAPI(gone, named, versions[0], versions[1])
		if refused == "" {
			require.NoError(t, err, versions)
			continue
		}
		require.ErrorContains(t, err, refused)
	}
	require.NoError(t, fitsAPI(nil, "", "v1.1.0", "v1.1.1"))
	require.ErrorContains(t, fitsAPI(gone, "", "v0.1.0", "v0.2.0"), "does not name in backquotes")
}

// What a page says for the time before the first release: a clone in the place of the module, in one command for each.
func TestACloneStandsForTheModule(t *testing.T) {
	repository := cloneForTest(t)
	stranger := newStranger(t, path.Join(rootPath, "redlock"), path.Join(rootPath, "locktest"))
	proxy := newProxy(t)
	proxy.run(t, stranger, "mod", "edit", "-replace="+rootPath+"="+repository)
	nested := path.Join(rootPath, "locktest")
	proxy.run(t, stranger, "mod", "edit", "-replace="+nested+"="+filepath.Join(repository, "locktest"))
	proxy.run(t, stranger, "mod", "tidy")
	proxy.run(t, stranger, "list", "-deps", "./...")
}

// cloneForTest returns a repository with one commit, of the files that this one has now.
func cloneForTest(t *testing.T) string {
	t.Helper()
	needGit(t)
	t.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
	t.Setenv("GIT_CONFIG_NOSYSTEM", "1")
	for _, who := range []string{"AUTHOR", "COMMITTER"} {
		t.Setenv("GIT_"+who+"_NAME", "test")
		t.Setenv("GIT_"+who+"_EMAIL", "test@example.com")
	}
	source, clone := filepath.Join("..", "..", ".."), t.TempDir()
	require.NoError(t, filepath.WalkDir(source, func(from string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.Name() == ".git" && entry.IsDir():
			return filepath.SkipDir
		case entry.Name() == ".git" || !entry.Type().IsRegular():
			return nil
		}
		text, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		to := filepath.Join(clone, strings.TrimPrefix(from, source))
		if err := os.MkdirAll(filepath.Dir(to), 0o777); err != nil {
			return err
		}
		return os.WriteFile(to, text, 0o666)
	}))
	must(t)(git(clone, "init", "--quiet"))
	must(t)(git(clone, "add", "--all"))
	must(t)(git(clone, "commit", "--quiet", "-m", "as it is"))
	return clone
}

func must(t *testing.T) func(string, error) string {
	return func(answer string, err error) string {
		t.Helper()
		require.NoError(t, err)
		return answer
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o777))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o666))
}

func needGit(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		skip(t, "git is not installed: apt-get install git")
	}
}

// skip is for what is missing on this machine; where everything has to run, that is a failure.
func skip(t *testing.T, reason string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(reason)
	}
	t.Skip(reason)
}

// proxy is a module proxy in a folder, and a module cache of its own: what is fetched from here must not stay in the
// user's cache as a version that was never published.
type proxy struct{ folder, cache, behind string }

func newProxy(t *testing.T) *proxy {
	t.Helper()
	p := &proxy{folder: t.TempDir(), cache: t.TempDir()}
	// What else is needed comes from the user's cache, and only what is not there from the network.
	p.behind = "file://" + filepath.Join(goEnv(t, "GOMODCACHE"), "cache", "download") + "," + goEnv(t, "GOPROXY")
	return p
}

// add has the proxy serve what the tag of a module has.
func (p *proxy) add(t *testing.T, repository string, m module.Version, folder string) {
	t.Helper()
	files := filepath.Join(p.folder, filepath.FromSlash(m.Path), "@v", m.Version)
	tag := strings.TrimPrefix(folder+"/"+m.Version, "/")
	mod, err := git(repository, "show", tag+":"+strings.TrimPrefix(folder+"/go.mod", "/"))
	require.NoError(t, err)
	write(t, files+".mod", mod+"\n")
	write(t, filepath.Join(filepath.Dir(files), "list"), m.Version+"\n")
	write(t, files+".info", fmt.Sprintf(`{"Version":%q}`, m.Version))
	archive, err := os.Create(files + ".zip")
	require.NoError(t, err)
	require.NoError(t, zip.CreateFromVCS(archive, m, repository, tag, folder))
	require.NoError(t, archive.Close())
}

// run runs the go command as somebody who has neither the workspace nor anything of ours.
func (p *proxy) run(t *testing.T, folder string, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", args...)
	command.Dir = folder
	command.Env = append(os.Environ(),
		"GOWORK=off", "GOFLAGS=-modcacherw", "GOMODCACHE="+p.cache,
		"GOPROXY=file://"+p.folder+","+p.behind, "GONOPROXY=", "GOPRIVATE=", "GOSUMDB=off")
	answer, err := command.CombinedOutput()
	if strings.Contains(string(answer), "dial tcp") {
		skip(t, "no network, and a module that is not in the cache is needed:\n"+string(answer))
	}
	require.NoError(t, err, "go %s: %s", strings.Join(args, " "), answer)
	return string(answer)
}

func goEnv(t *testing.T, name string) string {
	t.Helper()
	answer, err := exec.CommandContext(t.Context(), "go", "env", name).Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(answer))
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A user who upgrades reads the changelog.
func TestIncompatibleChangesAreInTheChangelog(t *testing.T) {
	repository, err := filepath.Abs(filepath.Join("..", "..", ".."))
	require.NoError(t, err)
	changelog, err := os.ReadFile(filepath.Join(repository, "CHANGELOG.md"))
	require.NoError(t, err)
	gone, _, err := changesOfAPI(repository)
	require.NoError(t, err)
	require.Empty(t, unannounced(gone, string(changelog)),
		"name them in backquotes in the section [Unreleased] of CHANGELOG.md")
}

func TestWhatAChangelogHasToName(t *testing.T) {
	const before = `
		type Lease struct{ id string }
		func (l *Lease) Release(wait bool) error { return nil }
		func (l *Lease) Name() string { return "" }
		type Stats struct{ Lost int }
		type Source interface { Next() int }
		type Hooks struct { Lost func(name string, tokens map[string][]func(x int)) }
		func New() *Lease { return nil }`
	for _, c := range []struct{ name, old, now, changelog, silent string }{
		{"nothing has changed", "", "", "", ""},
		{"a function is new", "func New", "func Old() {}; func New", "", ""},
		{"a method is new", "type Stats", "func (l Lease) Old() {}; type Stats", "", ""},
		{"a field is new", "Lost int", "Lost int; Won int", "", ""},
		{"a private field is new", "id string }", "id string; n int }", "", ""},
		{"parameters have other names", "name string, tokens map", "n string, t map", "", ""},
		{"a nested one has another name", "func(x int)", "func(int)", "", ""},
		{"a method is gone", "Name() string", "name() string", "", "Lease.Name func() string"},
		{"a method that is named", "Name() string", "name() string", "`Lease.Name` is gone", ""},
		{"named with its package", "Name() string", "name() string", "`p.Lease.Name()` is gone", ""},
		{"a longer name", "Name() string", "name() string", "`Lease.Names` is new", "Lease.Name func() string"},
		{"no backquotes", "Name() string", "name() string", "Lease.Name is gone", "Lease.Name func() string"},
		{
			"named for the last release", "Name() string", "name() string", "Else.\n\n## [0.1.0]\n`Lease.Name`",
			"Lease.Name func() string",
		},
		{"a field has another type", "Lost int", "Lost string", "", "field Stats.Lost int"},
		{"a signature is another", "wait bool", "wait ...bool", "", "Lease.Release func(bool) error"},
		{"a method of the pointer alone", "(l *Lease) Name", "(l Lease) Name", "", "method-of-pointer Lease.Name"},
		{"a struct that cannot be compared", "id string }", "id []string }", "", "comparable-struct Lease struct{}"},
		{"an interface gets a method", "Next() int", "Next() int; Close()", "", "type Source interface{Next() int}"},
		{"a callback gets an argument", "Lost func(", "Lost func(n int, ", "", "field Hooks.Lost func(string, "},
	} {
		t.Run(c.name, func(t *testing.T) {
			was := linesOf(typed(t, before))
			gone := without(was, linesOf(typed(t, strings.Replace(before, c.old, c.now, 1))))
			silent := unannounced(gone, "# Changelog\n\n## [Unreleased]\n\n"+c.changelog)
			if c.silent == "" {
				require.Empty(t, silent)
				return
			}
			require.Len(t, silent, 1)
			require.Contains(t, silent[0], c.silent)
		})
	}
}

func TestTheChangelogOfARelease(t *testing.T) {
	const heading = "# Changelog\n\nWords.\n\n## [Unreleased]\n"
	day := time.Date(2031, 2, 3, 4, 5, 6, 7, time.UTC)
	path := filepath.Join(t.TempDir(), "CHANGELOG.md")

	write(t, path, heading+"\nThis becomes v0.2.0. A person\ntags it.\n\n- New.\n\n## [0.1.0] - 2030-01-01\n\n- Old.\n")
	require.NoError(t, editChangelog(path, "v0.2.0", day))
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, heading+"\n## [0.2.0] - 2031-02-03\n\n- New.\n\n## [0.1.0] - 2030-01-01\n\n- Old.\n", string(text))

	require.ErrorContains(t, editChangelog(path, "v0.3.0", day), "has no text")
	write(t, path, "# Changelog\n")
	require.ErrorContains(t, editChangelog(path, "v0.3.0", day), "has no text")
}

func typed(t *testing.T, text string) *types.Package {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "p.go", "package p\n"+text, 0)
	require.NoError(t, err)
	pkg, err := new(types.Config).Check("example.com/p", files, []*ast.File{file}, nil)
	require.NoError(t, err)
	return pkg
}
