package send

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// Path is where the daemon takes batches (contract 1).
const Path = "/dataprovider/ingestion/v1/detectors/data/ingest"

// BatchLimit is the number of measurements that a batch may have
// (contract 1.2).
const BatchLimit = 14_000

// Config says where to send to and how. Each setting is the flag of that name.
type Config struct {
	URL         string        // base URL of the daemon, with or without Path
	Key         string        // API key with the right `ingest`
	Batch       int           // measurements in a batch
	Concurrency int           // batches under way at the same time
	Ordered     bool          // keep the order of each detector's measurements
	Timeout     time.Duration // for one request and its answer
	RetryFor    time.Duration // how long a batch is tried again
	SkipBadRows bool          // pass over rows that cannot be read
}

// DefaultConfig is for a daemon on this machine.
func DefaultConfig() Config {
	return Config{
		URL:         "http://127.0.0.1:8080",
		Batch:       BatchLimit,
		Concurrency: 4,
		Ordered:     true,
		Timeout:     time.Minute,
		RetryFor:    10 * time.Minute,
	}
}

// Validate gives the first setting that cannot be, and why.
func (c Config) Validate() error {
	base, err := url.Parse(c.URL)
	switch {
	case err != nil || base.Host == "" || (base.Scheme != "http" && base.Scheme != "https"):
		return fmt.Errorf("--url %q is no http or https URL: write for example https://traffic.example.org", c.URL)
	case c.Key == "":
		return errors.New("no API key: set --key, --key-file or the environment variable TRAFFICD_KEY")
	case strings.ContainsFunc(c.Key, func(r rune) bool { return r <= ' ' || r > '~' }):
		return errors.New("the API key has blanks or other characters that a header cannot carry: was something else copied with it?")
	case c.Batch < 1 || c.Batch > 140_000:
		return fmt.Errorf("--batch %d: a batch has at least 1 item, and the daemon refuses more than 140,000 at once (it examines the first 14,000)", c.Batch)
	case c.Concurrency < 1 || c.Concurrency > 64:
		return fmt.Errorf("--concurrency %d: from 1 to 64; each batch under way takes several MB", c.Concurrency)
	case c.Timeout < time.Second:
		return fmt.Errorf("--timeout %s: a full batch needs a second and more", c.Timeout)
	case c.RetryFor < 0 || c.RetryFor > time.Hour:
		return fmt.Errorf("--retry-for %s: from 0 to 1h, for so long the daemon remembers a batch and takes it only once", c.RetryFor)
	}
	return nil
}

// endpoint is the URL to post to.
func (c Config) endpoint() string {
	base := strings.TrimRight(c.URL, "/")
	if strings.HasSuffix(base, Path) {
		return base
	}
	return base + Path
}
