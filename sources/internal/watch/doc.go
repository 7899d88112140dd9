// Package watch is what the feeds of registry and forecasts share with the keys file: the
// pace of their checks, and a file that others put in place while we look.
package watch
