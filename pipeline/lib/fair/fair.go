// Package fair divides a limit between clients: each may hold at most half of what the others leave
// (contract 1.1, Quotas).
package fair

import (
	"iter"
	"maps"
)

// Shares records how much of a limit each client holds. A client may hold half of the limit if it
// is the only one, and a third if another one holds as much, so there is always something left for
// the next client. Shares must not be used concurrently.
type Shares struct {
	limit, total int64
	held         map[string]int64 // has no zero values
}

// New returns the shares of a limit, of which nothing is in use.
func New(limit int64) *Shares { return &Shares{limit: limit, held: map[string]int64{}} }

// Verdict is the result of Check.
type Verdict int

// The verdicts.
const (
	Granted  Verdict = iota
	Exceeded         // the client holds something, and n more would exceed its share
	Full             // nothing is left for any client
)

// Check reports whether a client may hold n more. It grants any n to a client that holds nothing,
// as long as anything is left, so that a large response is possible under any limit.
func (s *Shares) Check(client string, n int64) Verdict { return Check(s.held[client], n, s.Free()) }

// Check reports whether a client that holds own may hold n more if free is left.
func Check(own, n, free int64) Verdict {
	switch {
	case own == 0 && free > 0, own+n <= free-n:
		return Granted
	case own == 0:
		return Full
	}
	return Exceeded
}

// Add adds n, which may be negative, to what a client holds, even if that exceeds its share.
func (s *Shares) Add(client string, n int64) {
	s.total += n
	if s.held[client] += n; s.held[client] == 0 {
		delete(s.held, client)
	}
}

// Held returns what a client holds.
func (s *Shares) Held(client string) int64 { return s.held[client] }

// Clients returns the clients that hold something, in no particular order.
func (s *Shares) Clients() iter.Seq[string] { return maps.Keys(s.held) }

// Total returns what all clients hold together.
func (s *Shares) Total() int64 { return s.total }

// Free returns what is left for all clients. It is negative if Add has exceeded the limit.
func (s *Shares) Free() int64 { return s.limit - s.total }
