// Package authority reads what traffic authorities publish: the settings of a feed, downloads, and
// the entries of its sites in the registry.
package authority

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"trafficd/pipeline/lib/dial"
	"trafficd/pipeline/lib/settings"
	"trafficd/schemas/feeds"
)

// Feed is what an authority publishes at one address.
type Feed struct {
	Name   string `setting:"name"`   // name in metrics and messages, and of the directory in spool.dir
	URL    string `setting:"url"`    // address of the measurements: http://… or https://…; user:password@ means Basic
	Format string `setting:"format"` // format of the measurements, such as ndw, or datex2 for any DATEX II
	// address of the site table, which is pulled every 6 hours; empty: none. A table of rows has the
	// columns name, lon and lat instead
	Sites string `setting:"sites"`
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
	// what the columns of a table in CSV, JSON or XML mean, for the format rows
	Rows *feeds.Mapping `setting:"rows"`
}

var validName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,31}$`)

// Validate reports every invalid setting. at is the key of the feed.
func (f Feed) Validate(at string) error {
	_, err := f.Options(at)
	errs := []error{
		err,
		settings.Check(validName.MatchString(f.Name),
			"%sname is %q, must be 1 to 32 of a-z, 0-9, _ and -, the first a letter or digit", at, f.Name),
		settings.Check(settings.IsURL(f.URL), "%surl must be http://… or https://… with a host", at),
		settings.Check(f.Sites == "" || settings.IsURL(f.Sites) && f.Format != rows,
			"%ssites must be http://… or https://… with a host, and empty for the format rows", at),
		settings.Within(at+"every", f.Every, time.Second, time.Hour, "shorter intervals burden the server, longer ones miss publications"),
		settings.Check((f.Cert == "") == (f.Key == ""), "%scert and %skey must be set together", at, at),
	}
	_, err = f.Header(at)
	return errors.Join(append(errs, err)...)
}

// rows is the name of the format that needs a mapping.
const rows = "rows"

// Formats returns the names of the formats.
func Formats() (names []string) {
	for _, f := range feeds.Formats() {
		names = append(names, f.Name)
	}
	return names
}

// Header returns the headers of requests. Its error begins with at.
func (f Feed) Header(at string) (http.Header, error) {
	h := http.Header{"User-Agent": {"trafficd-feeder"}, "Accept-Encoding": {"gzip"}}
	for _, line := range f.Headers {
		name, value, ok := strings.Cut(line, ":")
		if !ok || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			return nil, fmt.Errorf("%sheaders must each be Name: value", at) // it may be a secret
		}
		h.Set(name, strings.TrimSpace(value))
	}
	return h, nil
}

// TLS returns the TLS settings of requests.
func (f Feed) TLS() dial.TLS { return dial.TLS{Enabled: true, CA: f.CA, Cert: f.Cert, Key: f.Key} }

var meanings = []string{"", "begin", "end", "middle"} // in the order of feeds.Meaning

// Options returns what the documents do not say. Its errors begin with at and the name of a
// setting.
func (f Feed) Options(at string) (feeds.Options, error) {
	format, known := feeds.Lookup(f.Format)
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
	errs := []error{
		settings.Check(known, "%sformat is %q, must be one of %s", at, f.Format, strings.Join(Formats(), ", ")),
		settings.Check(meaning >= 0, "%stime is %q, must be begin, middle, end or empty", at, f.Time),
		settings.Check(err == nil && f.Zone != "Local",
			"%szone is %q, must be a name of the IANA database, such as Europe/Madrid", at, f.Zone),
		settings.Check(f.Period >= 0, "%speriod is %s, must not be negative", at, f.Period),
		settings.Check(f.Rows == nil || f.Format == rows, "%srows is only for the format rows, not for %s", at, f.Format),
	}
	if f.Format == rows {
		o.Mapping = f.Rows
		if err := f.Rows.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("%srows: %w", at, err))
		}
		errs = append(errs, settings.Check(f.Rows == nil || f.Rows.At == "" || f.Period > 0,
			"%speriod must be set, given rows.at: it is the length of the intervals", at))
	}
	return o, errors.Join(errs...)
}
