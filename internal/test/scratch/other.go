//go:build !unix

package scratch

import "os"

// Folder is a temporary folder. On this platform only Close removes it.
type Folder struct{ path string }

// New makes a folder.
func New(name string) (*Folder, error) {
	path, err := os.MkdirTemp("", name)
	return &Folder{path}, err
}

// Path returns where the folder is.
func (f *Folder) Path() string { return f.path }

// Close removes the folder.
func (f *Folder) Close() error { return os.RemoveAll(f.path) }

// Use does nothing on this platform, because no process would remove the folder.
func Use(string) {}
