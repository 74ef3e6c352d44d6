package fencing_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/seed74116694/fencelock/fencing"
)

// file is data in a file that one process at a time uses. The registers stand beside the data, so a restart forgets
// none of them.
type file struct {
	mu   sync.Mutex
	path string
}

type content struct {
	Seen fencing.Registers
	Data string
}

func (f *file) Read(fence fencing.Fence) (string, error) {
	return f.access(fence, func(data string) string { return data })
}

func (f *file) Write(fence fencing.Fence, data string) error {
	if fence.Mode != fencing.Write {
		return fmt.Errorf("%w for writing: %v", fencing.ErrMissing, fence)
	}
	_, err := f.access(fence, func(string) string { return data })
	return err
}

// access checks the fence, and replaces registers and data in one step.
func (f *file) access(fence fencing.Fence, change func(string) string) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var was content
	switch text, err := os.ReadFile(f.path); {
	case errors.Is(err, fs.ErrNotExist): // the first access
	case err != nil:
		return "", err
	default:
		if err := json.Unmarshal(text, &was); err != nil {
			return "", err
		}
	}
	if err := was.Seen.Check(fence); err != nil {
		return "", err
	}
	is := content{was.Seen.Raise(fence), change(was.Data)}
	if is == was {
		return is.Data, nil
	}
	return is.Data, f.replace(is)
}

// replace writes a new file and gives it the old one's name: after a crash one of the two is there, and whole.
func (f *file) replace(c content) error {
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	temp, err := os.Create(f.path + ".new")
	if err != nil {
		return err
	}
	_, err = temp.Write(text)
	err = errors.Join(err, temp.Sync(), temp.Close())
	if err != nil {
		return err
	}
	return os.Rename(temp.Name(), f.path) // then sync the folder too, where its file system needs that
}

// A file outlives the process, and a [fencing.Watermark] does not: so the registers are in the file.
func ExampleRegisters_file() {
	folder, err := os.MkdirTemp("", "fencing")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "account")
	current := fencing.Fence{Resource: "account/7", Token: 34, Mode: fencing.Write}
	paused := fencing.Fence{Resource: "account/7", Token: 33, Mode: fencing.Write}

	before := &file{path: path}
	fmt.Println(before.Write(current, "balance 100"))

	restarted := &file{path: path}
	fmt.Println(restarted.Write(paused, "balance 1"))
	fmt.Println(restarted.Read(fencing.Fence{Resource: "account/7", Token: 35, Mode: fencing.Read}))
	fmt.Println(restarted.Write(current, "balance 2")) // a newer reader has been there
	// Output:
	// <nil>
	// fencing: stale token: "account/7" has seen 34, got 33
	// balance 100 <nil>
	// fencing: stale token: "account/7" has seen 35, got 34
}
