// Package commands has tests that run the commands which the documents of this repository name.
package commands
