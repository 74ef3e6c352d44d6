// Package server starts redis-server processes for measurements and reads off them what an operation has cost:
// processor time, commands, bytes. The servers listen on free loopback ports, keep nothing on disk, and end with this
// process.
package server
