// Package generate makes synthetic detectors and their measurements: roads
// with stations, rush hours, noise that lasts, outages, and, where it is
// asked for, items with every kind of fault that the daemon rejects one by one
// (contract 1.2, rules 2 to 13; rule 1 is a matter of the batch's size).
//
// The same Config gives the same bytes: every detector has a random source of
// its own, and no source depends on how often another one is asked. Faults are
// drawn from one more, so that the error rate does not change the good items.
package generate
