package scriptfuzz

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/seed74116694/fencelock/scripts"
)

// Scripts are the texts of one version of the scripts.
type Scripts map[scripts.Name]string

// ReadScripts assembles the scripts of a release from its files, which include each other as those of package scripts
// do. Scripts that are newer than the release are absent.
func ReadScripts(folder fs.FS) (Scripts, error) {
	version := Scripts{}
	for name := range scripts.All() {
		file := string(name) + ".lua"
		if _, err := fs.Stat(folder, file); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		text, err := assemble(folder, file)
		if err != nil {
			return nil, err
		}
		version[name] = string(text)
	}
	return version, nil
}

var include = []byte("-- include: ")

func assemble(folder fs.FS, file string) ([]byte, error) {
	text, err := fs.ReadFile(folder, file)
	if err != nil {
		return nil, err
	}
	var all []byte
	for line := range bytes.Lines(text) {
		if part, ok := bytes.CutPrefix(bytes.TrimSpace(line), include); ok {
			if line, err = assemble(folder, string(bytes.TrimSpace(part))); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
		}
		all = append(all, line...)
	}
	return all, nil
}

// Runner runs a script instead of the server, and has the server run the commands that the script calls.
type Runner interface {
	Run(script string, keys, args []string) (any, error)
}

// scriptCache has the server run the scripts, by the digests that it gives them.
type scriptCache struct {
	do      func(args ...string) (any, error)
	digests map[string]string // by the text
}

// Run runs a script, which the server learns before its first run.
func (c *scriptCache) Run(script string, keys, args []string) (any, error) {
	if c.digests[script] == "" {
		digest, err := c.do("SCRIPT", "LOAD", script)
		if err != nil {
			return nil, err
		}
		c.digests[script] = digest.(string)
	}
	return c.do(slices.Concat([]string{"EVALSHA", c.digests[script], fmt.Sprint(len(keys))}, keys, args)...)
}
