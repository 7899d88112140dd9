// Command trafficctl is the tool of operators and integrators: it sends
// measurements to the daemon, sends rejected ones again, makes synthetic ones
// and makes keys; it converts geometries, and looks at a daemon's routing jobs,
// journal and dead letters.
//
// It speaks to the daemon over HTTP, and reads the files of one that may not
// run; it never writes to those. One file a sub-command; what the sending ones
// share is in sending.go.
package main
