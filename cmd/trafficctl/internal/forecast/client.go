package forecast

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"google.golang.org/protobuf/proto"

	pb "trafficd/schemas/proto/trafficd/v1"
)

// Path of the layer below the base URL.
const Path = "/mlf/v1/forecast/realtime"

// Request asks for the layer.
type Request struct {
	URL      string // base URL of the daemon
	Key      string
	Horizon  int    // minutes; negative: all periods
	ETag     string // of a layer that is there already; empty: none
	Encoding string // zstd, gzip or identity; empty: what the daemon prefers of the three
	Timeout  time.Duration
}

// Answer is what the daemon says.
type Answer struct {
	Layer    *pb.StreetForecastResponse // nil if NotModified
	ETag     string
	Modified string // the header Last-Modified
	Age      string // the header Forecast-Age, in seconds
	Encoding string // in which the layer came
	Received int64  // bytes of the body as they came
	Size     int    // bytes of the message

	NotModified bool
}

// maxLayer bounds the message: protobuf's own limit is 2 GiB.
const maxLayer = 2 << 30

// Get asks once. It neither follows redirections nor tries again: a key is for
// one daemon, and the caller may be a loop.
func Get(ctx context.Context, r Request) (*Answer, error) {
	req, err := r.build(ctx)
	if err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	defer transport.CloseIdleConnections()
	client := http.Client{
		Transport:     transport,
		Timeout:       r.Timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("cannot get the forecasts: %w", err)
	}
	defer resp.Body.Close()
	a := &Answer{
		ETag: resp.Header.Get("ETag"), Modified: resp.Header.Get("Last-Modified"),
		Age: resp.Header.Get("Forecast-Age"), Encoding: resp.Header.Get("Content-Encoding"),
	}
	switch resp.StatusCode {
	case http.StatusOK:
		return a, a.read(resp.Body)
	case http.StatusNotModified:
		a.NotModified = true
		return a, nil
	}
	return nil, apiErr(resp)
}

func (r Request) build(ctx context.Context) (*http.Request, error) {
	base, err := url.Parse(r.URL)
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" {
		return nil, fmt.Errorf("--url %q: write http://… or https://… with a host", r.URL)
	}
	encoding := r.Encoding
	switch encoding {
	case "":
		encoding = "zstd, gzip"
	case "zstd", "gzip", "identity":
	default:
		return nil, fmt.Errorf("--encoding %q: write zstd, gzip or identity", r.Encoding)
	}
	base = base.JoinPath(Path)
	if r.Horizon >= 0 {
		base.RawQuery = "horizon=" + strconv.Itoa(r.Horizon)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base.String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "apiKey "+r.Key)
	req.Header.Set("Accept", "application/x-protobuf")
	req.Header.Set("Accept-Encoding", encoding) // said by us, so that the transport unpacks nothing
	if r.ETag != "" {
		req.Header.Set("If-None-Match", r.ETag)
	}
	return req, nil
}

func (a *Answer) read(body io.Reader) error {
	counted := &counter{r: body}
	message, err := unpackAs(counted, a.Encoding)
	if err != nil {
		return fmt.Errorf("cannot read the answer: %w", err)
	}
	a.Received, a.Size = counted.n, len(message)
	a.Layer = new(pb.StreetForecastResponse)
	if err := proto.Unmarshal(message, a.Layer); err != nil {
		return fmt.Errorf("the answer is no StreetForecastResponse (is this a trafficd?): %w", err)
	}
	return nil
}

func unpackAs(r io.Reader, encoding string) ([]byte, error) {
	switch encoding {
	case "", "identity":
	case "gzip":
		z, err := gzip.NewReader(r)
		if err != nil {
			return nil, err
		}
		r = z
	case "zstd":
		d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(8<<20))
		if err != nil {
			return nil, err
		}
		defer d.Close()
		r = d
	default:
		return nil, fmt.Errorf("it is encoded as %q, which was not asked for", encoding)
	}
	message, err := io.ReadAll(io.LimitReader(r, maxLayer))
	if err == nil && len(message) == maxLayer {
		err = errors.New("the layer has 2 GiB or more")
	}
	return message, err
}

// counter counts the bytes that pass.
type counter struct {
	r io.Reader
	n int64
}

// Read implements io.Reader.
func (c *counter) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n += int64(n)
	return n, err
}

// refusal puts an answer that is no layer into words.
func apiErr(resp *http.Response) error {
	var says struct{ Description, ErrorCode, TraceID string }
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10)) // what could be read will do
	if json.Unmarshal(text, &says) != nil || says.Description == "" {
		return fmt.Errorf("the daemon answers %s", resp.Status)
	}
	message := fmt.Sprintf("the daemon answers %d %s: %s", resp.StatusCode, says.ErrorCode, strings.TrimSuffix(says.Description, "."))
	if after := resp.Header.Get("Retry-After"); after != "" {
		message += "; try again after " + after + " s"
	}
	if says.TraceID != "" {
		message += " (trace " + says.TraceID + ")"
	}
	return errors.New(message)
}
