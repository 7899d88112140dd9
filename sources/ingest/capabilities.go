package ingest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/gzip"
	"github.com/valyala/fasthttp"

	"trafficd/pipeline/batch"
	"trafficd/pipeline/lib/negotiate"
	"trafficd/schemas/contract"
)

// CapabilitiesPath is the path of Capabilities below the base path (contract 1.7).
const CapabilitiesPath = contract.CapabilitiesPath

// A response of Capabilities lists at most this many detectors, and ends after a code that reaches
// this many bytes.
const (
	listedDetectors = 10_000
	listedBytes     = 256 << 10
)

// Capabilities responds with what the calling key may send. It is safe for concurrent use.
type Capabilities struct {
	contract.Capabilities // what is the same for all keys
	Registry              interface {
		Snapshot(productInstance string) *batch.Detectors
		HasFeed(productInstance string) bool
	}
}

// Admit implements api.Endpoint.
func (*Capabilities) Admit(*contract.Client, *fasthttp.RequestHeader) *contract.APIError { return nil }

// Handle implements api.Endpoint.
func (e *Capabilities) Handle(client *contract.Client, ctx *fasthttp.RequestCtx) (items int, err error) {
	known := e.Registry.Snapshot(client.ProductInstance)
	if known == nil {
		return 0, contract.NoRegistry(client.ProductInstance, e.Registry.HasFeed(client.ProductInstance))
	}
	from := 0
	if args := ctx.QueryArgs(); args.Has("from") {
		if from, err = args.GetUint("from"); err != nil || from > math.MaxInt32 {
			return 0, contract.NewParameterError(contract.InvalidParameter, "from",
				fmt.Sprintf("from is %q, must be a position in the list of detectors, such as next in the response before",
					contract.Echo(args.Peek("from"))))
		}
	}
	c := e.Capabilities
	c.Client, c.ProductInstance = client.Name, client.ProductInstance
	c.Limits.RequestsPerSecond, c.Limits.ItemsPerSecond = client.RequestsPerSecond, client.ItemsPerSecond
	c.Detectors = contract.AllowedDetectors{Version: known.Version(), Count: known.Len(), From: from, Codes: []string{}}
	next := from
	for size := 0; next < known.Len() && next-from < listedDetectors && size < listedBytes; next++ {
		code := known.Code(next)
		c.Detectors.Codes, size = append(c.Detectors.Codes, string(code)), size+len(code)
	}
	if next < known.Len() {
		c.Detectors.Next = next
	}
	body, err := json.Marshal(c)
	if err != nil {
		return 0, fmt.Errorf("cannot encode the capabilities: %w", err)
	}
	etag := fmt.Sprintf("%016x", xxhash.Sum64(body))
	h := &ctx.Response.Header
	h.Set(fasthttp.HeaderVary, "Authorization, Accept-Encoding")
	h.Set(fasthttp.HeaderCacheControl, "private, no-cache")
	compressed := negotiate.AcceptsGzip(ctx.Request.Header.PeekAll(fasthttp.HeaderAcceptEncoding))
	if compressed {
		etag += "-gzip"
		h.SetContentEncoding("gzip")
	}
	negotiate.Serve(ctx, `"`+etag+`"`, "application/json", func() []byte {
		if compressed {
			var out bytes.Buffer
			w := gzipWriters.Get().(*gzip.Writer)
			w.Reset(&out)
			_, _ = w.Write(body) // writing to memory cannot fail
			_ = w.Close()
			gzipWriters.Put(w)
			return out.Bytes()
		}
		return body
	})
	return 0, nil
}
