package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

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
