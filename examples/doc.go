// Package examples has small programs that use fencelock, each in a folder of its own, and their tests, which run them
// as processes on real servers. README.md lists them.
package examples
