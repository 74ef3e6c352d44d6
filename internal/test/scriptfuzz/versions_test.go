package scriptfuzz_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/scriptfuzz"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/scripts"
)

// releases yields the scripts of each release with the present layout of the keys, by its name.
func releases(t *testing.T) map[string]scriptfuzz.Scripts {
	t.Helper()
	folders := expect.NoError(filepath.Glob("testdata/releases/v*")).In(t)
	all := map[string]scriptfuzz.Scripts{}
	for _, folder := range folders {
		version := expect.NoError(scriptfuzz.ReadScripts(os.DirFS(folder))).In(t, folder)
		require.NotEmpty(t, version, folder)
		all[filepath.Base(folder)] = version
	}
	return all
}

// Clients of an earlier release and of this one share keys. CONTRIBUTING.md says what to do about a failure.
func TestScriptsOfReleasesSideBySide(t *testing.T) {
	all := releases(t)
	if len(all) == 0 {
		t.Skip("no release has this layout")
	}
	for name, version := range all {
		beside(t, name, version, func(t *testing.T, p *scriptfuzz.Player) {
			n := *seeds
			if n == 0 {
				n = 3
			}
			for _, k := range scriptfuzz.Kinds {
				if *kind == "" || *kind == string(k) {
					play(t, p, k, n)
				}
			}
		})
	}
}

// A version that names a field in another way works by itself, and not beside this one.
func TestAnotherLayoutIsNoticed(t *testing.T) {
	for what, change := range map[string][2]string{
		"a field of the hash has another name": {"'d'", "'D'"},
		"a record has another form":            {"'g '", "'G '"},
	} {
		version := scriptfuzz.Scripts{}
		for name, source := range scripts.All() {
			version[name] = strings.ReplaceAll(source, change[0], change[1])
		}
		beside(t, what, version, func(t *testing.T, p *scriptfuzz.Player) {
			var noticed error
			for seed := uint64(1); noticed == nil && seed < 20; seed++ {
				_, noticed = scriptfuzz.Draw(p, seed, scriptfuzz.Plain, *steps)
			}
			require.Error(t, noticed)
		})
	}
}

// beside runs a test on the first server that is installed, with two versions.
func beside(t *testing.T, name string, older scriptfuzz.Scripts, test func(t *testing.T, p *scriptfuzz.Player)) {
	testredis.Require(t)
	on(t, name, testredis.Binaries()[0], older, test, false)
}

// A release may lack a script that is newer, and not a file that one of its scripts includes.
func TestReadScriptsOfAnEarlierRelease(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "renew.lua")
	require.NoError(t, os.WriteFile(file, []byte("return 1\n"), 0o600))
	version := expect.NoError(scriptfuzz.ReadScripts(os.DirFS(folder))).In(t)
	require.Equal(t, scriptfuzz.Scripts{scripts.Renew: "return 1\n"}, version)

	require.NoError(t, os.WriteFile(file, []byte("-- include: none.lua\n"), 0o600))
	_, err := scriptfuzz.ReadScripts(os.DirFS(folder))
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// The files of a release are assembled as those of this version are.
func TestReadScriptsAssembles(t *testing.T) {
	version := expect.NoError(scriptfuzz.ReadScripts(os.DirFS("../../../scripts"))).In(t)
	for name, source := range scripts.All() {
		require.Equal(t, source, version[name], name)
	}
}
