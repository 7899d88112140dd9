package routing

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// Config of the routing web service.
//
// Of admission_requests, admission_bytes and max_watches a client may have as much as it
// leaves free to others: a half of all when it is alone. So one that sends slowly, or does
// not read its answers, keeps nobody else from being served.
type Config struct {
	PublicURL         string        `koanf:"public_url"`           // scheme, host and path prefix that stand in the WSDL, such as https://traffic.example.org/api; empty: as the request names them
	MaxBodyBytes      int64         `koanf:"max_body_bytes"`       // of one request, as sent and unpacked
	MaxPoints         int           `koanf:"max_points"`           // of all geometries in one request
	MaxDepth          int           `koanf:"max_depth"`            // of collections in collections
	ReceiveTimeout    time.Duration `koanf:"receive_timeout"`      // for a whole body
	MinBytesPerSecond int64         `koanf:"min_bytes_per_second"` // on the average since the body's start; 0: none
	RateGrace         time.Duration `koanf:"rate_grace"`           // for how long the average is not looked at
	AdmissionRequests int64         `koanf:"admission_requests"`   // requests under way at a time
	AdmissionBytes    int64         `koanf:"admission_bytes"`      // memory of their bodies and answers
	Concurrency       int           `koanf:"concurrency"`          // requests that are read, converted and answered at a time
	MaxWatches        int           `koanf:"max_watches"`          // those of the requests under way that may watch a job
	Jobs              JobsConfig    `koanf:"jobs"`
}

// JobsConfig is what jobs may take.
type JobsConfig struct {
	Workers           int           `koanf:"workers"`              // jobs that run at a time
	Max               int           `koanf:"max"`                  // jobs that are queued, run or are kept, of all clients
	MaxPerClient      int           `koanf:"max_per_client"`       // of one client
	MaxGeometries     int           `koanf:"max_geometries"`       // of one job
	MaxBytes          int64         `koanf:"max_bytes"`            // memory of what they hold, all together
	MaxBytesPerClient int64         `koanf:"max_bytes_per_client"` // of one client
	Keep              time.Duration `koanf:"keep"`                 // for how long a job is kept after its end
	MaxPoll           time.Duration `koanf:"max_poll"`             // longest wait of watchJob, whatever it asks for
}

// DefaultConfig takes 100,000 points in a request.
//
// As plain elements they are 5 MB of XML in a request, and 20 MB in an answer that has to show
// all four encodings. While a request is worked on, what it is unpacked to and its
// answer take up to 100 MB: as often as concurrency says. A job keeps 24 bytes a
// point, and some for each geometry.
func DefaultConfig() Config {
	return Config{
		MaxBodyBytes:      8 << 20,
		MaxPoints:         100_000,
		MaxDepth:          32,
		ReceiveTimeout:    time.Minute,
		MinBytesPerSecond: 4 << 10,
		RateGrace:         5 * time.Second,
		AdmissionRequests: 512,
		AdmissionBytes:    64 << 20,
		Concurrency:       2,
		MaxWatches:        256,
		Jobs: JobsConfig{
			Workers: 2, Max: 1024, MaxPerClient: 256, MaxGeometries: 20_000, MaxBytes: 64 << 20, MaxBytesPerClient: 32 << 20,
			Keep: 10 * time.Minute, MaxPoll: time.Minute,
		},
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
	check(c.PublicURL == "" || isBaseURL(c.PublicURL), "public_url is %q: it has to be empty or like https://traffic.example.org/api, without a slash at its end", c.PublicURL)
	check(c.MaxBodyBytes >= 1<<10, "max_body_bytes is %d: it has to be at least 1KiB, because an envelope with one point needs as much", c.MaxBodyBytes)
	check(c.MaxPoints >= 1, "max_points is %d: it has to be at least 1, or nothing could be converted", c.MaxPoints)
	check(c.MaxDepth >= 1 && c.MaxDepth <= 1000, "max_depth is %d: it has to lie between 1, or there are no collections, and 1000, because each level takes stack", c.MaxDepth)
	check(c.ReceiveTimeout > 0, "receive_timeout is %v: it has to be more than 0, or a client could hold its place for ever", c.ReceiveTimeout)
	check(c.MinBytesPerSecond >= 0, "min_bytes_per_second is %d: it has to be 0 (no minimum) or more", c.MinBytesPerSecond)
	check(c.RateGrace >= 0 && c.RateGrace <= c.ReceiveTimeout, "rate_grace is %v: it has to lie between 0 and receive_timeout (%v), which ends the receiving anyway", c.RateGrace, c.ReceiveTimeout)
	check(c.AdmissionRequests >= 4, "admission_requests is %d: it has to be at least 4, because a client may have half of them, and needs one more than that with which it watches a job", c.AdmissionRequests)
	check(c.AdmissionBytes >= 4*c.MaxBodyBytes, "admission_bytes is %d: it has to be at least four times max_body_bytes (%d), or the largest body could never be received: a client may have half of the memory, and a body is copied when it outgrows its own", c.AdmissionBytes, c.MaxBodyBytes)
	check(c.Concurrency >= 1, "concurrency is %d: it has to be at least 1, or no request is ever answered", c.Concurrency)
	check(c.MaxWatches >= 1 && int64(c.MaxWatches) <= c.AdmissionRequests-2, "max_watches is %d: it has to lie between 1 and 2 below admission_requests (%d), because a watch holds its place there while it waits, and a client that watches all it may has to have one place left", c.MaxWatches, c.AdmissionRequests)
	j := c.Jobs
	check(j.Workers >= 1, "jobs.workers is %d: it has to be at least 1, or no job ever runs", j.Workers)
	check(j.Max >= 1, "jobs.max is %d: it has to be at least 1, or no job can be started", j.Max)
	check(j.MaxPerClient >= 1, "jobs.max_per_client is %d: it has to be at least 1, or no job can be started", j.MaxPerClient)
	check(j.MaxGeometries >= 1, "jobs.max_geometries is %d: it has to be at least 1, or no job can be started", j.MaxGeometries)
	check(j.MaxBytesPerClient >= 1<<10, "jobs.max_bytes_per_client is %d: it has to be at least 1KiB, because a job of a few points needs as much", j.MaxBytesPerClient)
	check(j.MaxBytes >= j.MaxBytesPerClient, "jobs.max_bytes is %d: it has to be at least jobs.max_bytes_per_client (%d), or that could never be used up", j.MaxBytes, j.MaxBytesPerClient)
	check(j.Keep >= time.Second, "jobs.keep is %v: it has to be at least 1s, or nobody could fetch what is done", j.Keep)
	check(j.MaxPoll > 0 && j.MaxPoll <= 10*time.Minute, "jobs.max_poll is %v: it has to lie between 0, or watchJob never waits, and 10m, because a request holds its connection for as long", j.MaxPoll)
	return errors.Join(wrong...)
}

// isBaseURL wants a scheme, a host, and no query, fragment or slash at the end.
func isBaseURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil &&
		!strings.ContainsAny(text, "?#") && text[len(text)-1] != '/'
}
