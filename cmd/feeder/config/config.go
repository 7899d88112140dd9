// Package config holds the feeder's settings.
package config

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"trafficd/cmd/internal/client"
	"trafficd/cmd/internal/conf"
	"trafficd/cmd/internal/ops"
	"trafficd/pipeline/lib/dial"
	"trafficd/pipeline/lib/settings"
	"trafficd/schemas/feeds"
)

// Config holds the feeder's settings.
type Config struct {
	Log      conf.Log   `setting:"log"`      // level and format of the log
	Ops      ops.Config `setting:"ops"`      // health and metrics, for operators, and the list of sites, for trafficd
	Trafficd Trafficd   `setting:"trafficd"` // where measurements are sent
	Spool    Spool      `setting:"spool"`    // what was published and has not been accepted yet
	Feeds    []Feed     `setting:"feeds"`    // what is pulled
}

// Trafficd is the trafficd section: the daemon that gets the measurements.
type Trafficd struct {
	URL     string `setting:"url"`      // base URL of the daemon
	KeyFile string `setting:"key_file"` // file with the API key on its first line; the key needs the right ingest
	CA      string `setting:"ca"`       // PEM file of trusted CA certificates; empty: the system's CA certificates
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

// Feed is what an authority publishes at one address.
type Feed struct {
	Name   string `setting:"name"`   // name in metrics and messages, and of the directory in spool.dir
	URL    string `setting:"url"`    // address of the measurements: http://… or https://…; user:password@ means Basic
	Format string `setting:"format"` // format of the measurements, such as ndw, or datex2 for any DATEX II
	Sites  string `setting:"sites"`  // address of the site table, which is pulled every 6 hours; empty: none
	// time between pulls; 0: 30s. Half of the time between publications, so that none is missed. The
	// feed is reported as stale if nothing new is published for five times as long
	Every time.Duration `setting:"every"`
	// headers of requests, such as "Authorization: Bearer …" or "SOAPAction: …"; secret
	Headers  []string `setting:"headers"`
	BodyFile string   `setting:"body_file"` // file that is sent with POST, such as a SOAP envelope; empty: GET
	Cert     string   `setting:"cert"`      // PEM file of the client certificate; empty: none
	Key      string   `setting:"key"`       // PEM file of the private key for cert
	CA       string   `setting:"ca"`        // PEM file of trusted CA certificates; empty: the system's CA certificates
	// what times mean if the document does not say it: begin, middle or end; empty: as usual for the
	// format
	Time string `setting:"time"`
	// length of the measuring intervals if the document does not say it; 0: as usual for the format
	Period time.Duration `setting:"period"`
	Zone   string        `setting:"zone"` // time zone of times without an offset, as an IANA name; empty: as usual for the format
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
		settings.Check(len(c.Feeds) > 0 || err != nil, "feeds must be set: at least one feed with name, url and format"),
		settings.Check(c.Ops.Listen != "", "ops.listen must be set: trafficd reads the list of sites there"),
	}
	seen := map[string]bool{}
	for i, f := range c.Feeds {
		at := fmt.Sprintf("feeds[%d].", i)
		errs = append(errs, f.validate(at), settings.Check(!seen[f.Name], "%sname %q is used by another feed", at, f.Name))
		seen[f.Name] = true
	}
	return &c, origins, errors.Join(errs...)
}

func (t Trafficd) validate() error {
	return errors.Join(settings.Check(isURL(t.URL), "url is %q, must be http://… or https://… with a host", t.URL),
		settings.Check(t.KeyFile != "", "key_file must be set: trafficctl key new creates a key"))
}

// Config returns the settings of the client, with the key.
func (t Trafficd) Config(key string) client.Config {
	return client.Config{Section: "trafficd.", URL: t.URL, Key: key, CA: t.CA, Timeout: time.Minute}
}

func (s Spool) validate() error {
	return errors.Join(settings.Check(s.Dir != "", "dir must be set"),
		settings.AtLeast("max_bytes", s.MaxBytes, 16<<20, "a publication of a nation takes 3 MiB"))
}

var validName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,31}$`)

func (f Feed) validate(at string) error {
	_, err := f.Options()
	known := slices.Contains(formats(), f.Format)
	errs := []error{
		err,
		settings.Check(validName.MatchString(f.Name),
			"%sname is %q, must be 1 to 32 of a-z, 0-9, _ and -, the first a letter or digit", at, f.Name),
		settings.Check(isURL(f.URL), "%surl must be http://… or https://… with a host", at),
		settings.Check(f.Sites == "" || isURL(f.Sites), "%ssites must be http://… or https://… with a host", at),
		settings.Check(known, "%sformat is %q, must be one of %s", at, f.Format, strings.Join(formats(), ", ")),
		settings.Within(at+"every", f.Every, time.Second, time.Hour, "shorter intervals burden the server, longer ones miss publications"),
		settings.Check((f.Cert == "") == (f.Key == ""), "%scert and %skey must be set together", at, at),
	}
	_, err = f.Header()
	return errors.Join(append(errs, err)...)
}

func formats() (names []string) {
	for _, f := range feeds.Formats() {
		if f.Name != "rows" { // needs a mapping, for which there is no setting
			names = append(names, f.Name)
		}
	}
	return names
}

func isURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}

// Header returns the headers of requests.
func (f Feed) Header() (http.Header, error) {
	h := http.Header{"User-Agent": {"trafficd-feeder"}, "Accept-Encoding": {"gzip"}}
	for _, line := range f.Headers {
		name, value, ok := strings.Cut(line, ":")
		if !ok || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			return nil, fmt.Errorf("headers of feed %s: each must be Name: value", f.Name) // it may be a secret
		}
		h.Set(name, strings.TrimSpace(value))
	}
	return h, nil
}

// TLS returns the TLS settings of requests.
func (f Feed) TLS() dial.TLS { return dial.TLS{Enabled: true, CA: f.CA, Cert: f.Cert, Key: f.Key} }

var meanings = []string{"", "begin", "end", "middle"} // in the order of feeds.Meaning

// Options returns what the documents do not say.
func (f Feed) Options() (feeds.Options, error) {
	format, _ := feeds.Lookup(f.Format)
	o := format.Defaults
	meaning := slices.Index(meanings, f.Time)
	zone, err := time.LoadLocation(f.Zone)
	if f.Zone == "" {
		zone = o.Zone
	}
	o.Zone, o.Period = zone, cmp.Or(f.Period, o.Period)
	if meaning > 0 {
		o.Time = feeds.Meaning(meaning)
	}
	return o, errors.Join(
		settings.Check(meaning >= 0, "time of feed %s is %q, must be begin, middle, end or empty", f.Name, f.Time),
		settings.Check(err == nil && f.Zone != "Local",
			"zone of feed %s is %q, must be a name of the IANA database, such as Europe/Madrid", f.Name, f.Zone),
		settings.Check(f.Period >= 0, "period of feed %s is %s, must not be negative", f.Name, f.Period))
}
