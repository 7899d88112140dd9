package soap

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"trafficd/schemas/xroute"
)

// Path of the service below the base URL.
const Path = "/xroute/ws/XRoute"

// Config says where the service is.
type Config struct {
	URL     string        // base URL of the daemon, with or without Path
	Key     string        // API key with the right routing
	Timeout time.Duration // for one call and its answer, beside the time that watchJob waits
}

// Validate gives the first setting that cannot be, and why.
func (c Config) Validate() error {
	base, err := url.Parse(c.URL)
	switch {
	case err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https":
		return fmt.Errorf("--url %q is no http or https URL: write for example https://traffic.example.org", c.URL)
	case c.Key == "":
		return errors.New("no API key: set --key, --key-file or the environment variable TRAFFICD_KEY")
	case strings.ContainsFunc(c.Key, func(r rune) bool { return r <= ' ' || r > '~' }):
		return errors.New("the API key has blanks or other characters that a header cannot carry: was something else copied with it?")
	case c.Timeout < time.Second:
		return fmt.Errorf("--timeout %s: it has to be 1s or more", c.Timeout)
	}
	return nil
}

// Client calls the service. Its methods may be called by several goroutines.
type Client struct {
	cfg      Config
	endpoint string
	http     *http.Client
}

// New makes a client; Close is to be called at its end.
func New(cfg Config) (*Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	endpoint := strings.TrimRight(cfg.URL, "/")
	if !strings.HasSuffix(endpoint, Path) {
		endpoint += Path
	}
	return &Client{cfg: cfg, endpoint: endpoint, http: &http.Client{
		Transport: http.DefaultTransport.(*http.Transport).Clone(),
		// A key is for one daemon: it goes nowhere else.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Close lets go of the connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Convert converts one geometry. Its coordinates are in the format that the
// caller names.
func (c *Client) Convert(ctx context.Context, g xroute.EncodedGeometry, o xroute.RequestOptions, caller *xroute.CallerContext) (xroute.EncodedGeometry, error) {
	answer, err := call[*xroute.ConvertGeometryResponse](ctx, c, 0, &xroute.ConvertGeometry{Geometry: g, Options: o, CallerContext: caller})
	if err != nil {
		return nil, err
	}
	return answer.Result, nil
}

// Start starts a job that converts geometries.
func (c *Client) Start(ctx context.Context, list []xroute.EncodedGeometry, o xroute.RequestOptions, caller *xroute.CallerContext) (xroute.Job, error) {
	answer, err := call[*xroute.StartConvertGeometriesResponse](ctx, c, 0, &xroute.StartConvertGeometries{Geometries: list, Options: o, CallerContext: caller})
	if err != nil {
		return xroute.Job{}, err
	}
	return answer.Result, nil
}

// watchStep is how often Await wants news: as often as the service gives them.
// watchFor is how long one of its calls waits where there are none.
const (
	watchStep = 250 * time.Millisecond
	watchFor  = 10 * time.Second
)

// Await watches a job until its end, shows each state before the last, and returns that.
func (c *Client) Await(ctx context.Context, id string, show func(xroute.Job)) (xroute.Job, error) {
	poll, update := int32(watchFor.Milliseconds()), int32(watchStep.Milliseconds())
	request := &xroute.WatchJob{ID: id, Options: &xroute.WatchOptions{MaximumPollingPeriod: &poll, ProgressUpdatePeriod: &update}}
	for {
		answer, err := call[*xroute.WatchJobResponse](ctx, c, watchFor, request)
		if err != nil {
			return xroute.Job{}, err
		}
		if Ended(answer.Result.Status) {
			return answer.Result, nil
		}
		show(answer.Result)
	}
}

// Ended tells whether a job will not change any more by itself. One that was
// stopped stays STOPPING.
func Ended(s xroute.JobStatus) bool {
	return s != xroute.StatusQueuing && s != xroute.StatusRunning
}

// Stop ends a job early; what is done can be fetched.
func (c *Client) Stop(ctx context.Context, id string) (xroute.Job, error) {
	answer, err := call[*xroute.StopJobResponse](ctx, c, 0, &xroute.StopJob{ID: id})
	if err != nil {
		return xroute.Job{}, err
	}
	return answer.Result, nil
}

// Delete makes the service forget a job.
func (c *Client) Delete(ctx context.Context, id string) (xroute.Job, error) {
	answer, err := call[*xroute.DeleteJobResponse](ctx, c, 0, &xroute.DeleteJob{ID: id})
	if err != nil {
		return xroute.Job{}, err
	}
	return answer.Result, nil
}

// Fetch gives what a job has made, once.
func (c *Client) Fetch(ctx context.Context, id string) (xroute.ConvertedGeometries, error) {
	answer, err := call[*xroute.FetchConvertGeometriesResponse](ctx, c, 0, &xroute.FetchConvertGeometries{ID: id})
	if err != nil {
		return xroute.ConvertedGeometries{}, err
	}
	return answer.Result, nil
}

// The bounds of an answer: some 4 million points, in collections as deep as the service
// can be set to, which in PLAIN are two elements each. What a job has made is given out
// once, and must not be lost here.
const (
	maxAnswer = 256 << 20
	maxDepth  = 2*1000 + 32
)

// call sends a request and reads the answer of the type that goes with it. The
// service may wait for so long before it answers.
func call[R xroute.Response](ctx context.Context, c *Client, wait time.Duration, request xroute.Request) (R, error) {
	var none R
	envelope, err := xroute.AppendMessage(nil, request)
	if err != nil {
		return none, fmt.Errorf("cannot write the request: %w", err)
	}
	limited, cancel := context.WithTimeout(ctx, wait+c.cfg.Timeout)
	defer cancel()
	resp, err := c.post(limited, envelope)
	if err != nil {
		return none, c.lost(ctx, fmt.Errorf("cannot reach the routing service: %w", err))
	}
	defer resp.Body.Close()
	answer, err := read(resp)
	if err != nil {
		return none, c.lost(ctx, err)
	}
	right, ok := answer.(R)
	if !ok {
		return none, fmt.Errorf("the routing service answers with a %T where a %T belongs", answer, none)
	}
	return right, nil
}

// lost gives the error of a call, or what is behind it: that there was no more time for it,
// or that the user has had enough.
func (c *Client) lost(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("interrupted (%w)", context.Cause(ctx))
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("the routing service did not answer within --timeout %s: allow more, or see whether the daemon is well", c.cfg.Timeout)
	}
	return err
}

// post sends an envelope. A daemon that is too busy is asked again, as long as
// there is time for what it says.
func (c *Client) post(ctx context.Context, envelope []byte) (*http.Response, error) {
	for {
		resp, err := c.send(ctx, envelope)
		if err != nil {
			return nil, err
		}
		wait, busy := retryAfter(resp)
		if deadline, _ := ctx.Deadline(); !busy || time.Until(deadline) < wait {
			return resp, nil
		}
		resp.Body.Close()
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(wait):
		}
	}
}

// retryAfter tells whether an answer asks to try again, and when.
func retryAfter(resp *http.Response) (time.Duration, bool) {
	if resp.StatusCode != http.StatusServiceUnavailable && resp.StatusCode != http.StatusTooManyRequests {
		return 0, false
	}
	seconds, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	return time.Duration(max(seconds, 1)) * time.Second, err == nil
}

func (c *Client) send(ctx context.Context, envelope []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.endpoint, bytes.NewReader(envelope))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "apiKey "+c.cfg.Key)
	req.Header.Set("Content-Type", "text/xml; charset=utf-8")
	req.Header.Set("SOAPAction", `""`)
	return c.http.Do(req)
}

// read tells an answer and a fault from what no SOAP service says.
func read(resp *http.Response) (xroute.Response, error) {
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusInternalServerError || !isXML(resp.Header) {
		return nil, refusalOf(resp)
	}
	answer, err := xroute.ReadResponse(resp.Body, xroute.Limits{Bytes: maxAnswer, Depth: maxDepth})
	var fault *xroute.Fault
	switch {
	case errors.As(err, &fault):
		return nil, (*Fault)(fault)
	case err != nil:
		return nil, fmt.Errorf("cannot read the answer of the routing service: %w", err)
	}
	return answer, nil
}

func isXML(h http.Header) bool { return strings.HasPrefix(h.Get("Content-Type"), "text/xml") }
