package ingest

import (
	"errors"
	"fmt"
	"time"
)

// Config of the ingest endpoint.
//
// A client may have as much of admission_requests and admission_bytes as it leaves free for others:
// half of all if it is alone. One that sends slowly does not keep others from being served.
type Config struct {
	MaxCompressedBytes int64         `setting:"max_compressed_bytes"` // of one body, as sent
	ReceiveTimeout     time.Duration `setting:"receive_timeout"`      // for a whole body
	MinBytesPerSecond  int64         `setting:"min_bytes_per_second"` // on average since the first byte; 0: none
	RateGrace          time.Duration `setting:"rate_grace"`           // before the average counts
	AdmissionRequests  int64         `setting:"admission_requests"`   // requests whose body is being received or processed
	AdmissionBytes     int64         `setting:"admission_bytes"`      // memory of their bodies and answers
}

// DefaultConfig takes bodies of up to 16 MiB (contract 1.1), sixty times a full batch of 14,000
// items. Such a batch, 250 KiB, passes the minimum rate within a minute; a client that is slower
// than a modem would hold its place for nothing.
func DefaultConfig() Config {
	return Config{
		MaxCompressedBytes: 16 << 20,
		ReceiveTimeout:     time.Minute,
		MinBytesPerSecond:  4 << 10,
		RateGrace:          5 * time.Second,
		AdmissionRequests:  512,
		AdmissionBytes:     256 << 20,
	}
}

// Validate returns all invalid settings, joined; each error names its key.
func (c Config) Validate() error {
	var wrong []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			wrong = append(wrong, fmt.Errorf(format, args...))
		}
	}
	check(c.MaxCompressedBytes >= 1<<10, "max_compressed_bytes is %d: it must be at least 1KiB, because a batch of a few items needs as much", c.MaxCompressedBytes)
	check(c.ReceiveTimeout > 0, "receive_timeout is %v: it must be more than 0, or a client could hold its place for ever", c.ReceiveTimeout)
	check(c.MinBytesPerSecond >= 0, "min_bytes_per_second is %d: it must be 0 (no minimum) or more", c.MinBytesPerSecond)
	check(c.RateGrace >= 0 && c.RateGrace <= c.ReceiveTimeout, "rate_grace is %v: it must be between 0 and receive_timeout (%v), which ends the receiving anyway", c.RateGrace, c.ReceiveTimeout)
	check(c.AdmissionRequests >= 2, "admission_requests is %d: it must be at least 2, because a client may have half of them", c.AdmissionRequests)
	check(c.AdmissionBytes >= 2*(c.MaxCompressedBytes+blockSize),
		"admission_bytes is %d: it must be at least twice max_compressed_bytes (%d) plus %d, or the largest body could never be received: a client may have half of the memory", c.AdmissionBytes, c.MaxCompressedBytes, 2*blockSize)
	return errors.Join(wrong...)
}
