package api

import "time"

// deadline is what a connection's reads, or its writes, have to keep to. fasthttp sets three for
// each request and waits by few of them, and each costs the runtime's timers something. So a
// deadline is only noted, and handed to the socket before a call that it is for, and only
// where the socket's own is not near enough: it may come late by the slack, never early.
//
// Only the goroutine that reads and writes touches it; others end a connection by Close.
type deadline struct {
	wanted, socket time.Time
}

// slack is small beside any time limit, and long beside the time that a request takes.
const slack = 50 * time.Millisecond

// apply sets the socket's deadline, where that is needed.
func (d *deadline) apply(set func(time.Time) error) error {
	if late := d.socket.Sub(d.wanted); late >= 0 && late <= slack && d.wanted.IsZero() == d.socket.IsZero() {
		return nil
	}
	d.socket = d.wanted
	if !d.wanted.IsZero() { // zero: none
		d.socket = d.wanted.Add(slack)
	}
	return set(d.socket)
}
