// Package recipes has recipes for frameworks that run jobs and for libraries over SQL, each in a folder of its own and
// small enough to be copied, and their tests. docs/integrations.md says what each of them promises.
package recipes
