// Package forecast generates street forecasts, reads and writes them as files, publishes them to the
// topic that the daemon reads, and gets the daemon's forecast layer. Package
// trafficd/sources/forecasts defines the file formats and what a valid forecast is.
package forecast

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"google.golang.org/protobuf/proto"

	"trafficd/cmd/trafficctl/internal/client"
	pb "trafficd/schemas/proto/trafficd/v1"
)

// Request asks for the layer.
type Request struct {
	client.Config
	Horizon  int    // minutes from now; negative: all periods
	ETag     string // of the layer that the caller has; may be empty
	Encoding string // zstd, gzip or identity; empty: the daemon's choice
}

// Answer is the daemon's response.
type Answer struct {
	Layer    *pb.StreetForecastResponse // nil if NotModified
	ETag     string
	Modified string // header Last-Modified
	Age      string // header Forecast-Age, in seconds
	Encoding string // Content-Encoding
	Received int64  // bytes of the body
	Size     int    // bytes of the decoded message

	NotModified bool
}

// maxLayer bounds the message: protobuf's own limit is 2 GiB.
const maxLayer = 2 << 30

// Get requests the layer once. It neither retries nor follows redirects.
func Get(ctx context.Context, r Request) (*Answer, error) {
	encoding := r.Encoding
	switch encoding {
	case "":
		encoding = "zstd, gzip"
	case "zstd", "gzip", "identity":
	default:
		return nil, fmt.Errorf("--encoding %q must be zstd, gzip or identity", r.Encoding)
	}
	c, err := client.New(r.Config, client.Forecast)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	req, err := c.NewRequest(ctx, http.MethodGet, nil)
	if err != nil {
		return nil, err
	}
	if r.Horizon >= 0 {
		req.URL.RawQuery = "horizon=" + strconv.Itoa(r.Horizon)
	}
	req.Header.Set("Accept", "application/x-protobuf")
	req.Header.Set("Accept-Encoding", encoding) // which also keeps the transport from decompressing
	if r.ETag != "" {
		req.Header.Set("If-None-Match", r.ETag)
	}
	resp, err := c.Do(req)
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
	return nil, c.ReadError(resp)
}

func (a *Answer) read(body io.Reader) error {
	counted := &counter{r: body}
	message, err := decompress(counted, a.Encoding)
	if err != nil {
		return fmt.Errorf("cannot read the response: %w", err)
	}
	a.Received, a.Size = counted.n, len(message)
	a.Layer = new(pb.StreetForecastResponse)
	if err := proto.Unmarshal(message, a.Layer); err != nil {
		return fmt.Errorf("cannot decode the response as StreetForecastResponse: %w; check that --url names a trafficd", err)
	}
	return nil
}

func decompress(r io.Reader, encoding string) ([]byte, error) {
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
		return nil, fmt.Errorf("unexpected Content-Encoding %q", encoding)
	}
	message, err := io.ReadAll(io.LimitReader(r, maxLayer))
	if err == nil && len(message) == maxLayer {
		err = errors.New("the layer exceeds 2 GiB")
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
