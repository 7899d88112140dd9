// Package client sends authenticated HTTP requests to a daemon and turns its error responses into
// errors with advice.
package client

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"trafficd/pipeline/lib/dial"
	"trafficd/pipeline/lib/settings"
	"trafficd/schemas/contract"
)

// Service is one of the daemon's endpoints.
type Service struct {
	Path     string
	Right    string // right that the API key must have
	TooLarge string // advice after a 413 response
}

// The daemon's services (contract 1 and 2).
var (
	Ingest   = Service{contract.IngestPath, "ingest", "use a smaller --batch, or raise the daemon's limits"}
	Forecast = Service{contract.ForecastPath, "forecast", ""}
	Health   = Service{contract.HealthPath, "ingest", ""}
	Batches  = Service{contract.BatchesPath, "ingest", ""} // Add a Batch-Id to the path.
)

// Config holds the settings of the connection to a daemon. Errors name them as Section, such as
// "trafficd.", and the name of the field.
type Config struct {
	Section string        // empty: "--", for the flags of trafficctl
	URL     string        // base URL, with or without the service's path
	Key     string        // API key
	CA      string        // PEM file of trusted CA certificates; empty: the system's CA certificates
	Cert    string        // PEM file of a client certificate, which may replace the key; empty: none
	CertKey string        // PEM file of its private key
	Timeout time.Duration // for a request, including its response
}

// ValidateURL returns an error unless base, the value of --url, is an http or https URL.
func ValidateURL(base string) error {
	if !settings.IsURL(base) {
		return fmt.Errorf("--url %q must be an http or https URL, for example https://traffic.example.org", base)
	}
	return nil
}

// name returns text, which names settings as flags, with their names in the section.
func (c Config) name(text string) string {
	if c.Section == "" {
		return text
	}
	return strings.NewReplacer("--cert-key", c.Section+"cert_key", "--", c.Section).Replace(text)
}

func (c Config) validate() error {
	if err := ValidateURL(c.URL); err != nil {
		return err
	}
	switch {
	case (c.Cert == "") != (c.CertKey == ""):
		return errors.New("--cert and --cert-key must be set together")
	case c.Key == "" && c.Cert == "":
		return errors.New("missing API key: set --key, --key-file or the environment variable TRAFFICD_KEY, or --cert and --cert-key")
	case strings.ContainsFunc(c.Key, func(r rune) bool { return r <= ' ' || r > '~' }):
		return errors.New("invalid API key: it contains spaces or non-ASCII characters; check that it was copied correctly")
	case c.Timeout < time.Second:
		return fmt.Errorf("--timeout %s must be at least 1s", c.Timeout)
	}
	return nil
}

// ReadKey returns the API key on the first line of the file that a setting or flag names.
func ReadKey(setting, path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("cannot read %s: %w", setting, err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	if line = strings.TrimSpace(line); line == "" {
		return "", fmt.Errorf("the first line of %s %s is empty; it must contain the API key", setting, path)
	}
	return line, nil
}

// Client calls one service of a daemon. It is safe for concurrent use.
type Client struct {
	HTTP http.Client

	cfg      Config
	service  Service
	endpoint string
}

// New returns a client. The caller closes it.
func New(cfg Config, service Service) (*Client, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 64
	var err error
	if transport.TLSClientConfig, err = (dial.TLS{Enabled: true, CA: cfg.CA}).Config(cmp.Or(cfg.Section, "--")); err != nil {
		return nil, err
	}
	if cfg.Cert != "" {
		load := func() (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(cfg.Cert, cfg.CertKey)
			if err != nil {
				return nil, fmt.Errorf(cfg.name("cannot load the client certificate --cert %s with its key --cert-key %s: %w"),
					cfg.Cert, cfg.CertKey, err)
			}
			return &pair, nil
		}
		if _, err := load(); err != nil {
			return nil, err
		}
		// A new connection uses a renewed certificate. The daemon gets one whose CA it does not know
		// too: its response then says what is wrong.
		transport.TLSClientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	}
	base := strings.TrimRight(cfg.URL, "/")
	return &Client{
		HTTP: http.Client{
			Transport: transport,
			Timeout:   cfg.Timeout,
			// A redirected POST becomes a GET, and the key must not reach another host.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		cfg: cfg, service: service, endpoint: strings.TrimSuffix(base, service.Path) + service.Path,
	}, nil
}

// Close closes idle connections.
func (c *Client) Close() { c.HTTP.CloseIdleConnections() }

// NewRequest returns a request to the service, with the API key.
func (c *Client) NewRequest(ctx context.Context, method string, body io.Reader) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.endpoint, body)
	if err == nil && c.cfg.Key != "" {
		req.Header.Set("Authorization", "apiKey "+c.cfg.Key)
	}
	return req, err
}

// Do sends a request. Where possible, the error contains advice.
func (c *Client) Do(req *http.Request) (*http.Response, error) {
	resp, err := c.HTTP.Do(req)
	var invalid x509.CertificateInvalidError
	switch {
	case errors.Is(err, http.ErrSchemeMismatch):
		err = fmt.Errorf("%w; %s", err, c.cfg.name("use http:// in --url"))
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired: // or not valid yet
		err = fmt.Errorf("%w; the certificate of %s is valid from %s to %s: ask the operator for a renewed one, and check this machine's clock",
			err, req.URL.Host, invalid.Cert.NotBefore.UTC().Format(time.RFC3339), invalid.Cert.NotAfter.UTC().Format(time.RFC3339))
	case refusesCertificate(err):
		err = fmt.Errorf("%w; the daemon refuses the client certificate: check that --cert has not expired, and ask the operator "+
			"whether api.tls_client_ca contains its CA", err)
	case Permanent(err):
		err = fmt.Errorf("%w; %s", err, c.cfg.name("check the host in --url, or trust the daemon's CA with --ca FILE"))
	case NotConnected(err):
		err = fmt.Errorf("%w; %s", err, c.cfg.name("check that the daemon is running and --url is right"))
	case errors.Is(err, context.DeadlineExceeded) && c.cfg.Section == "":
		err = fmt.Errorf("no response from %s within --timeout %s; increase it, or check the daemon and --url", req.URL, c.cfg.Timeout)
	case errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("no response from %s within %s; %s", req.URL, c.cfg.Timeout, c.cfg.name("check the daemon and --url"))
	}
	return resp, err
}

// Posted is the response to a batch.
type Posted struct {
	contract.Result
	Header http.Header
}

// maxResult is the maximum size of a result in bytes. A result with 140,000 rejections is smaller.
const maxResult = 128 << 20

// Post posts a batch, compressed with gzip, once. idempotencyKey may be empty. The error is an
// *Error for a status other than 207. After any other error, the batch may have been accepted;
// repeating the same request is safe if it has a key.
func (c *Client) Post(ctx context.Context, idempotencyKey string, packed []byte) (*Posted, error) {
	return c.post(ctx, http.StatusMultiStatus, "Idempotency-Key", idempotencyKey, packed)
}

// DryRun posts a batch once, for validation only (contract 1.6). With allErrors, the result has
// every error of an item.
func (c *Client) DryRun(ctx context.Context, allErrors bool, packed []byte) (*Posted, error) {
	preference := "validate-only"
	if allErrors {
		preference += ", all-errors"
	}
	p, err := c.post(ctx, http.StatusOK, "Prefer", preference, packed)
	if e, ok := errors.AsType[*Error](err); ok && e.Status == http.StatusMultiStatus {
		e.Description = "the daemon has stored a batch of the dry run; check for a proxy that removes the header Prefer"
	}
	return p, err
}

func (c *Client) post(ctx context.Context, status int, header, value string, packed []byte) (*Posted, error) {
	req, err := c.NewRequest(ctx, http.MethodPost, bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Content-Encoding", "gzip")
	req.Header.Set("Accept", "application/json")
	if value != "" {
		req.Header.Set(header, value)
	}
	resp, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != status {
		return nil, c.ReadError(resp)
	}
	p := &Posted{Header: resp.Header}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxResult)).Decode(&p.Result); err != nil {
		return nil, fmt.Errorf("cannot read the response: %w", err)
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 4<<10)) // so that the connection is reused
	return p, nil
}

// Permanent reports whether retrying after a transport error is pointless, because the certificate
// is not trusted or the server does not speak TLS.
func Permanent(err error) bool {
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	return untrusted || errors.Is(err, http.ErrSchemeMismatch) || refusesCertificate(err)
}

// refusesCertificate reports whether a transport error is a TLS alert about the client's
// certificate, which ends the handshake.
func refusesCertificate(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "remote error" && strings.Contains(op.Err.Error(), "certificate")
}

// NotConnected reports whether a transport error occurred before a connection to the daemon, or to
// a proxy, was established, so that the daemon cannot have received the request.
func NotConnected(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && (op.Op == "dial" || op.Op == "proxyconnect") || Permanent(err)
}

// Error is an error response (contract 1.1).
type Error struct {
	Status      int           `json:"-"`
	Description string        `json:"description"`
	ErrorCode   string        `json:"errorCode"`
	TraceID     string        `json:"traceId"`
	RetryAfter  time.Duration `json:"-"` // 0: none

	service Service
	cfg     Config
}

// ReadError reads an error response. The caller closes the response body.
func (c *Client) ReadError(resp *http.Response) *Error {
	e := &Error{service: c.service, cfg: c.cfg}
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10)) // a partial body is also usable
	if json.Unmarshal(text, e) != nil || e.Description == "" {
		e.Description = http.StatusText(resp.StatusCode) + ", not a response from trafficd"
	}
	if to := resp.Header.Get("Location"); to != "" {
		e.Description += c.cfg.name("; redirects are not followed, so change --url to match ") + to
	}
	e.Status, e.RetryAfter = resp.StatusCode, RetryAfter(resp.Header.Get("Retry-After"), time.Now())
	return e
}

// Error implements error.
func (e *Error) Error() string {
	text := strings.TrimSpace(fmt.Sprintf("the daemon responded with %d %s", e.Status, e.ErrorCode))
	text += ": " + strings.TrimSuffix(e.Description, ".")
	if e.RetryAfter > 0 {
		text += fmt.Sprintf("; try again after %d s", int(e.RetryAfter.Seconds()))
	}
	if e.TraceID != "" {
		text += " (trace " + e.TraceID + ")"
	}
	hint := ""
	switch e.Status {
	case http.StatusOK, http.StatusBadRequest:
		if e.ErrorCode == "INVALID_PARAMETER" {
			break // the description suffices
		}
		hint = "check that --url points to the daemon and that no proxy changes requests or responses"
	case http.StatusUnauthorized:
		hint = "check the key (--key, --key-file, TRAFFICD_KEY) and that the daemon's keys file contains its digest (trafficctl key new)"
		if e.cfg.Key == "" {
			hint = "check --cert and that the daemon's keys file contains the certificate's fingerprint (trafficctl key new --certificate)"
		}
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		hint = "check --url: it must be the daemon's base URL, including its path prefix if it has one"
	case http.StatusRequestEntityTooLarge:
		hint = e.service.TooLarge
	case http.StatusUnsupportedMediaType:
		hint = "check for a proxy that decompresses requests"
	case http.StatusUnprocessableEntity:
		hint = "the Idempotency-Key was already used for a different body; run the command again"
	}
	if hint != "" {
		text += "; " + e.cfg.name(hint)
	}
	return text
}

// Sleep waits for d. If ctx is done first, it returns the cause.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// RetryAfter parses a Retry-After header, in seconds or as a date. It returns 0 if the header is
// absent, invalid or in the past.
func RetryAfter(header string, now time.Time) time.Duration {
	if seconds, err := strconv.Atoi(header); err == nil && seconds >= 0 && seconds < 1<<30 {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(header); err == nil && at.After(now) {
		return at.Sub(now)
	}
	return 0
}
