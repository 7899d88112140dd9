package ingest

import (
	"errors"

	"trafficd/pipeline/lib/settings"
	"trafficd/sources/internal/upload"
)

// Config configures the ingest endpoint.
//
// A client may use at most half of what other clients leave of admission_requests and
// admission_bytes.
type Config struct {
	MaxCompressedBytes int64 `setting:"max_compressed_bytes"` // maximum size of a body, as sent
	upload.Limits      `setting:"-"`
	// maximum number of requests whose body is being received or processed; further ones get a 503
	AdmissionRequests int64 `setting:"admission_requests"`
	// Maximum memory used by the bodies and responses of these requests; further ones get a 503. Raise
	// it with the machine's memory.
	AdmissionBytes int64 `setting:"admission_bytes"`
}

// DefaultConfig returns the default settings. They allow bodies of up to 16 MiB (contract 1.1). A
// batch of 14,000 items is about 250 KiB, which takes a minute at the minimum rate.
func DefaultConfig() Config {
	return Config{
		MaxCompressedBytes: 16 << 20,
		Limits:             upload.DefaultLimits(),
		AdmissionRequests:  512,
		AdmissionBytes:     256 << 20,
	}
}

// Validate returns an error for each invalid setting, joined.
func (c Config) Validate() error {
	return errors.Join(
		settings.AtLeast("max_compressed_bytes", c.MaxCompressedBytes, 1<<10, "a batch of a few items needs this much"),
		settings.AtLeast("admission_requests", c.AdmissionRequests, 2, "a client may have half of them"),
		settings.AtLeast("admission_bytes", c.AdmissionBytes, 2*(c.MaxCompressedBytes+blockSize),
			"a body of max_compressed_bytes could never be received, because a client may have half of the memory"),
	)
}
