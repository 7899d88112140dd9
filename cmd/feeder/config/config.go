// Package config holds the feeder's settings.
package config

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"trafficd/cmd/internal/authority"
	"trafficd/cmd/internal/client"
	"trafficd/cmd/internal/conf"
	"trafficd/cmd/internal/ops"
	"trafficd/pipeline/lib/settings"
)

// Config holds the feeder's settings.
type Config struct {
	Log      conf.Log         `setting:"log"`      // level and format of the log
	Ops      ops.Config       `setting:"ops"`      // health and metrics, for operators, and the list of sites, for trafficd
	Trafficd Trafficd         `setting:"trafficd"` // where measurements are sent
	Spool    Spool            `setting:"spool"`    // what was published and has not been accepted yet
	Feeds    []authority.Feed `setting:"feeds"`    // what is pulled
}

// Trafficd is the trafficd section: the daemon that gets the measurements.
type Trafficd struct {
	URL     string `setting:"url"`      // base URL of the daemon
	KeyFile string `setting:"key_file"` // file with the API key on its first line; the key needs the right ingest
	CA      string `setting:"ca"`       // PEM file of trusted CA certificates; empty: the system's CA certificates
	Cert    string `setting:"cert"`     // PEM file of a client certificate, which trafficd may accept instead of a key
	CertKey string `setting:"cert_key"` // PEM file of its private key
}

// Spool is the spool section: measurements on disk that the daemon has not accepted yet.
type Spool struct {
	// directory for measurements that trafficd has not accepted yet, and for what was sent; it must
	// survive restarts
	Dir string `setting:"dir"`
	// maximum size of the unsent measurements of a feed; at the limit, the feed is not pulled until
	// trafficd has accepted the oldest ones. A nation's detectors take about 3 MiB a minute
	MaxBytes int64 `setting:"max_bytes"`
}

// defaultEvery is half of a minute, the time between most publications.
const defaultEvery = 30 * time.Second

// Default returns the default settings, without feeds.
func Default() Config {
	return Config{
		Log: conf.Log{Level: "info", Format: "auto"}, Ops: ops.Config{Listen: "127.0.0.1:8083"},
		Trafficd: Trafficd{URL: "http://127.0.0.1:8080"},
		Spool:    Spool{Dir: "/var/lib/feeder", MaxBytes: 1 << 30},
	}
}

// Load returns the effective configuration, even if it also returns an error.
func Load(o conf.Options) (*Config, conf.Origins, error) {
	c := Default()
	origins, err := conf.Load(&c, o)
	for i, f := range c.Feeds { // conf sets no defaults in the entries of a list
		c.Feeds[i].Every = cmp.Or(f.Every, defaultEvery)
	}
	errs := []error{
		err, origins.Section("log", c.Log.Validate()), origins.Section("ops", c.Ops.Validate()),
		origins.Section("trafficd", c.Trafficd.validate()), origins.Section("spool", c.Spool.validate()),
		settings.Check(len(c.Feeds) > 0 || err != nil, "feeds must be set: trafficctl feed add adds a feed"),
		settings.Check(c.Ops.Listen != "", "ops.listen must be set: trafficd reads the list of sites there"),
	}
	seen := map[string]bool{}
	for i, f := range c.Feeds {
		at := fmt.Sprintf("feeds[%d].", i)
		errs = append(errs, f.Validate(at), settings.Check(!seen[f.Name], "%sname %q is used by another feed", at, f.Name))
		seen[f.Name] = true
	}
	return &c, origins, errors.Join(errs...)
}

func (t Trafficd) validate() error {
	return errors.Join(settings.Check(settings.IsURL(t.URL), "url is %q, must be http://… or https://… with a host", t.URL),
		settings.Check(t.KeyFile != "" || t.Cert != "", "key_file must be set: trafficctl feed add and key new create keys"))
}

// Client returns a client of the daemon. The caller closes it.
func (t Trafficd) Client() (*client.Client, error) {
	c := client.Config{Section: "trafficd.", URL: t.URL, CA: t.CA, Cert: t.Cert, CertKey: t.CertKey, Timeout: time.Minute}
	if t.KeyFile != "" {
		var err error
		if c.Key, err = client.ReadKey("trafficd.key_file", t.KeyFile); err != nil {
			return nil, err
		}
	}
	return client.New(c, client.Ingest)
}

func (s Spool) validate() error {
	return errors.Join(settings.Check(s.Dir != "", "dir must be set"),
		settings.AtLeast("max_bytes", s.MaxBytes, 16<<20, "a publication of a nation takes 3 MiB"))
}
