//go:build !linux

package main

// dieWithParent does nothing: only Linux signals the children of a process that dies. Closing standard input still works.
func dieWithParent() error { return nil }
