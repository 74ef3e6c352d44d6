// Package recipes has recipes for frameworks that run jobs, for libraries over SQL, for etcd and for locks of other
// libraries, and their tests. Each one has a folder of its own and is small enough to be copied. docs/integrations.md
// and docs/fencing.md say what each of them promises.
package recipes
