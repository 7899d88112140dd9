// Package inspect looks at a journal's folder from outside: when the daemon
// does not start, or beside a running one.
//
// It opens files to read only and takes no lock. What it finds is the folder as
// it was at one moment: a daemon that goes on deleting and writing takes nothing
// from under it. Package journal knows the bytes of segments and cursors,
// package batch those of a frame, package pipeline those of a delivery's cursor;
// here is only what goes beyond one of them: to read on behind damage, and to
// count what each consumer has not yet.
package inspect
