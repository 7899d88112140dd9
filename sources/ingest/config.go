package ingest

import (
	"errors"
	"fmt"
	"time"
)

// Config of the ingest endpoint.
type Config struct {
	MaxCompressedBytes int64         `koanf:"max_compressed_bytes"` // of one body as it is sent
	ReceiveTimeout     time.Duration `koanf:"receive_timeout"`      // for a whole body
	MinBytesPerSecond  int64         `koanf:"min_bytes_per_second"` // on the average since the body's start; 0: none
	RateGrace          time.Duration `koanf:"rate_grace"`           // for how long the average is not looked at
	AdmissionRequests  int64         `koanf:"admission_requests"`   // requests in receiving or in the pipeline at a time
	AdmissionBytes     int64         `koanf:"admission_bytes"`      // memory of their bodies and answers
}

// DefaultConfig takes bodies of up to 16 MiB (contract 1.1), sixty times a
// full batch of 14,000 items.
//
// Such a batch, 250 KiB, passes the minimum rate within a minute; who sends
// slower than a modem holds a request's place for nothing.
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

// Validate joins all that is wrong; each error names its key.
func (c Config) Validate() error {
	var wrong []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			wrong = append(wrong, fmt.Errorf(format, args...))
		}
	}
	check(c.MaxCompressedBytes >= 1<<10, "max_compressed_bytes is %d: it has to be at least 1KiB, because a batch of a few items needs as much", c.MaxCompressedBytes)
	check(c.ReceiveTimeout > 0, "receive_timeout is %v: it has to be more than 0, or a client could hold its place for ever", c.ReceiveTimeout)
	check(c.MinBytesPerSecond >= 0, "min_bytes_per_second is %d: it has to be 0 (no minimum) or more", c.MinBytesPerSecond)
	check(c.RateGrace >= 0 && c.RateGrace <= c.ReceiveTimeout, "rate_grace is %v: it has to lie between 0 and receive_timeout (%v), which ends the receiving anyway", c.RateGrace, c.ReceiveTimeout)
	check(c.AdmissionRequests >= 1, "admission_requests is %d: it has to be at least 1, or every request is answered 503", c.AdmissionRequests)
	check(c.AdmissionBytes >= c.MaxCompressedBytes+blockSize,
		"admission_bytes is %d: it has to exceed max_compressed_bytes (%d) by %d, or the largest body could never be received", c.AdmissionBytes, c.MaxCompressedBytes, blockSize)
	return errors.Join(wrong...)
}
