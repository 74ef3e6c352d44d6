// Package server starts redis-server processes for measurements and reports the cost of an operation: processor time,
// commands, bytes. The servers listen on free loopback ports, keep nothing on disk, and end with this process.
package server
