package routing

import (
	"errors"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"time"

	"trafficd/pipeline/lib/settings"
	"trafficd/sources/internal/upload"
)

// Config configures the routing web service.
//
// A client may use up to half of what other clients leave free of AdmissionRequests, AdmissionBytes
// and MaxWatches. Fields without a key are constants that tests vary.
type Config struct {
	// Scheme, host and path prefix in the WSDL, such as https://traffic.example.org/api; empty: from
	// the request. Set it behind a proxy.
	PublicURL string `setting:"public_url"`
	// Addresses or CIDR ranges of proxies whose X-Forwarded-Proto and -Host are trusted. They must
	// overwrite both headers, because clients can send them too.
	TrustedProxies []string `setting:"trusted_proxies"`
	// prefix of coordinate formats in the WSDL, such as PTV for PTV_MERCATOR; VENDOR is always
	// accepted too
	VendorPrefix  string `setting:"vendor_prefix"`
	MaxBodyBytes  int64  `setting:"-"`             // maximum size of a request, both as sent and decompressed
	MaxPoints     int    `setting:"-"`             // maximum number of points in a request
	MaxDepth      int    `setting:"-"`             // maximum nesting depth of collections
	DropMeasures  bool   `setting:"drop_measures"` // true: drop the M coordinates of WKT and WKB; false: reject them
	upload.Limits `setting:"-"`
	// maximum number of requests whose body is being received or processed; further ones get a 503
	AdmissionRequests int64 `setting:"-"`
	// maximum memory used by the bodies and responses of these requests; further ones get a 503
	AdmissionBytes int64 `setting:"-"`
	// maximum number of requests processed concurrently; more than one per CPU slows each down
	Concurrency int        `setting:"-"`
	MaxWatches  int        `setting:"-"` // maximum number of admitted requests that watch a job
	Jobs        JobsConfig `setting:"-"` // limits of jobs
}

// JobsConfig configures the jobs.
type JobsConfig struct {
	Workers       int           `setting:"-"` // maximum number of jobs that run concurrently
	Max           int           `setting:"-"` // maximum number of jobs, whether queued, running or ended
	MaxGeometries int           `setting:"-"` // maximum number of geometries in a job
	MaxBytes      int64         `setting:"-"` // maximum memory used by all jobs
	Keep          time.Duration `setting:"-"` // time for which an ended job can be fetched
	Replica       string        `setting:"-"` // name of this replica in job IDs: the host name and api.listen
	MaxPoll       time.Duration `setting:"-"` // maximum time that watchJob waits, whatever the request specifies
}

// DefaultConfig returns the default settings. They allow 100,000 points in a request: 5 MB of XML
// as plain elements, and 20 MB in a response with all four encodings. Each request being processed
// (at most Concurrency) uses up to 100 MB for its decompressed body and its response. A job uses 24
// bytes per point, 512 per geometry, and the text of its errors.
func DefaultConfig() Config {
	return Config{
		VendorPrefix:      "VENDOR",
		MaxBodyBytes:      8 << 20, // at most an eighth of AdmissionBytes: a client may use half of it, and a growing buffer is copied
		MaxPoints:         100_000,
		MaxDepth:          32,
		Limits:            upload.DefaultLimits(),
		AdmissionRequests: 512,
		AdmissionBytes:    64 << 20,
		Concurrency:       2,
		MaxWatches:        256,
		Jobs: JobsConfig{
			Workers: 2, Max: 1024, MaxGeometries: 20_000, MaxBytes: 64 << 20,
			Keep: 10 * time.Minute, MaxPoll: time.Minute,
		},
	}
}

// Validate returns all invalid settings, joined; each error names its key.
func (c Config) Validate() error {
	_, err := proxies(c.TrustedProxies)
	return errors.Join(
		settings.Check(c.PublicURL == "" || isBaseURL(c.PublicURL),
			"public_url is %q, must be empty or like https://traffic.example.org/api, without a trailing slash",
			settings.Redact(c.PublicURL, settings.Mask)),
		settings.Check(err == nil, "trusted_proxies: %v: must be addresses or CIDR ranges, such as 10.0.0.0/8", err),
		settings.Check(prefix.MatchString(c.VendorPrefix) && c.VendorPrefix != "OG",
			"vendor_prefix is %q, must be upper-case letters, digits and underscores such as PTV, and not OG, which has its own formats",
			c.VendorPrefix),
	)
}

func proxies(list []string) ([]netip.Prefix, error) {
	var all []netip.Prefix
	for _, text := range list {
		p, err := netip.ParsePrefix(text)
		if !strings.Contains(text, "/") {
			var address netip.Addr
			address, err = netip.ParseAddr(text)
			p = netip.PrefixFrom(address, address.BitLen())
		}
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

var prefix = regexp.MustCompile("^[A-Z]([A-Z0-9_]*[A-Z0-9])?$")

// isBaseURL reports whether text is an HTTP(S) URL without user, query, fragment or trailing slash.
func isBaseURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil &&
		!strings.ContainsAny(text, "?#") && text[len(text)-1] != '/'
}
