// Package soap calls the daemon's routing web service (contract 3).
package soap

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"trafficd/cmd/internal/must"
	"trafficd/cmd/trafficctl/internal/client"
	"trafficd/cmd/trafficctl/internal/interrupt"
	"trafficd/schemas/xroute"
)

// Client calls the service. It is safe for concurrent use.
type Client struct{ http *client.Client }

// New returns a client that uses c. The caller must close c.
func New(c *client.Client) *Client { return &Client{c} }

// Start starts a job that converts geometries. caller holds the geometries' coordinate format.
func (c *Client) Start(
	ctx context.Context, list []xroute.EncodedGeometry, o xroute.RequestOptions, caller *xroute.CallerContext,
) (xroute.Job, error) {
	request := &xroute.StartConvertGeometries{Geometries: list, Options: o, CallerContext: caller}
	resp, err := call[xroute.StartConvertGeometriesResponse](ctx, c, request)
	return resp.Result, err
}

const (
	watchStep = 250 * time.Millisecond // the shortest update interval that the service supports
	watchFor  = 10 * time.Second       // how long a call to watchJob may wait, at most half of the timeout
)

// Await watches a job until it ends and returns its final state. It calls show with each earlier
// state.
func (c *Client) Await(ctx context.Context, id string, show func(xroute.Job)) (xroute.Job, error) {
	wait := min(watchFor, c.http.HTTP.Timeout/2)
	request := &xroute.WatchJob{ID: id, Options: &xroute.WatchOptions{
		MaximumPollingPeriod: new(int32(wait.Milliseconds())), ProgressUpdatePeriod: new(int32(watchStep.Milliseconds())),
	}}
	for {
		resp, err := call[xroute.WatchJobResponse](ctx, c, request)
		if err != nil || resp.Result.Status.Ended() {
			return resp.Result, err
		}
		show(resp.Result)
	}
}

// Stop stops a job. The results so far can still be fetched.
func (c *Client) Stop(ctx context.Context, id string) (xroute.Job, error) {
	resp, err := call[xroute.StopJobResponse](ctx, c, &xroute.StopJob{ID: id})
	return resp.Result, err
}

// Delete deletes a job and its results.
func (c *Client) Delete(ctx context.Context, id string) (xroute.Job, error) {
	resp, err := call[xroute.DeleteJobResponse](ctx, c, &xroute.DeleteJob{ID: id})
	return resp.Result, err
}

// Fetch returns a job's results. The service returns them only once.
func (c *Client) Fetch(ctx context.Context, id string) (xroute.ConvertedGeometries, error) {
	resp, err := call[xroute.FetchConvertGeometriesResponse](ctx, c, &xroute.FetchConvertGeometries{ID: id})
	return resp.Result, err
}

// Limits of a response. Because a job's results are returned only once, every valid response must
// be within the limits: they allow about 4 million points, and collections of the maximum depth
// that can be configured. In the PLAIN encoding, each level of collections nests two elements.
const (
	maxResponse = 256 << 20
	maxDepth    = 1000
	maxElements = 2*maxDepth + 32 // depth of nested elements
)

// call sends a request and returns the response of type R.
func call[R any](ctx context.Context, c *Client, request xroute.Request) (none R, _ error) {
	envelope, err := xroute.AppendMessage(nil, request)
	if err != nil {
		return none, fmt.Errorf("cannot encode the request: %w", err)
	}
	resp, err := c.post(ctx, envelope)
	switch {
	case err != nil && ctx.Err() != nil:
		return none, interrupt.Error(ctx)
	case err != nil:
		return none, err
	}
	result, ok := resp.(any).(*R)
	if !ok {
		return none, fmt.Errorf("unexpected response from the routing service: %T instead of %T", resp, result)
	}
	return *result, nil
}

// post sends an envelope and reads the response. It retries a request that the daemon rejects with
// Retry-After, until the client's timeout.
func (c *Client) post(ctx context.Context, envelope []byte) (result xroute.Response, err error) {
	defer must.Return(&err)
	for start := time.Now(); ; {
		req := must.Get(c.http.NewRequest(ctx, http.MethodPost, bytes.NewReader(envelope)))
		req.Header.Set("Content-Type", "text/xml; charset=utf-8")
		req.Header.Set("SOAPAction", `""`)
		resp, err := c.http.Do(req)
		must.Do(err, "cannot reach the routing service")
		result, err := c.read(resp)
		resp.Body.Close()
		e, ok := errors.AsType[*client.Error](err)
		isBusy := ok && (e.Status == http.StatusServiceUnavailable || e.Status == http.StatusTooManyRequests)
		if !isBusy || resp.Header.Get("Retry-After") == "" {
			return result, err
		}
		wait := max(e.RetryAfter, time.Second)
		if time.Since(start)+wait > c.http.HTTP.Timeout {
			return nil, err
		}
		must.Do(client.Sleep(ctx, wait))
	}
}

// read decodes a SOAP response. The error is a *Fault for a SOAP fault, and a *client.Error for any
// other HTTP response.
func (c *Client) read(resp *http.Response) (xroute.Response, error) {
	isXML := strings.HasPrefix(resp.Header.Get("Content-Type"), "text/xml")
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusInternalServerError || !isXML {
		return nil, c.http.ReadError(resp)
	}
	result, err := xroute.ReadResponse(resp.Body, xroute.Limits{Bytes: maxResponse, Depth: maxElements})
	if fault, ok := errors.AsType[*xroute.Fault](err); ok {
		return nil, (*Fault)(fault)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the response from the routing service: %w", err)
	}
	return result, nil
}

// Fault is a SOAP fault of the service.
type Fault xroute.Fault

// Error returns the exception's key, causes and location, and advice.
func (f *Fault) Error() string {
	if f.Exception == nil {
		return f.Text
	}
	text := describe(f.Exception, "")
	if id := f.Exception.Base().TransactionID; id != nil {
		text += " (trace " + *id + ")"
	}
	return text
}

// Reason describes why a job could not convert a geometry, without the geometry's index in the
// request.
func Reason(x xroute.Exception) string { return describe(x, "geometries[") }

// describe returns a description of an exception. If omitted is not empty, places that start with
// it are omitted.
func describe(x xroute.Exception, omitted string) string {
	name, reason, location := reflect.TypeOf(x).Elem().Name(), "no reason given", ""
	if e := x.Base().StackElement; e != nil {
		if e.ErrorKey != nil && *e.ErrorKey != "" {
			name = *e.ErrorKey
		}
		places := slices.Clone(e.Context)
		if omitted != "" {
			places = slices.DeleteFunc(places, func(place string) bool { return strings.HasPrefix(place, omitted) })
		}
		if len(places) > 0 {
			location = " (at " + strings.Join(places, ", ") + ")"
		}
		var causes []string // each is the cause of the previous one, which may contain its text
		for ; e != nil; e = e.Cause {
			if e.Message == nil {
				continue
			}
			text := strings.TrimSuffix(*e.Message, ".")
			if text != "" && (len(causes) == 0 || !strings.Contains(causes[len(causes)-1], text)) {
				causes = append(causes, text)
			}
		}
		reason = strings.Join(causes, ": ")
	}
	text := name + ": " + reason + location
	if remedy := remedies[name]; remedy != "" {
		text += "; " + remedy
	}
	return text
}

// remedies maps error keys of contract 3 to advice.
var remedies = map[string]string{
	string(xroute.CodeInvalidWKT):        "check that the geometry is valid WKT",
	string(xroute.CodeInvalidWKB):        "check that the geometry is valid WKB",
	string(xroute.CodeInvalidKML):        "check that the geometry is valid KML",
	string(xroute.CodePlacemarkNotFound): "put the geometry into a Placemark",
	string(xroute.CodeCoordinateFormat):  "check --format-from and --format-to of trafficctl geometry",
	"UnexpectedException":                "try again; if it recurs, report the trace ID",
}

// tooLarge reports whether the service may have rejected a request because it is too large.
func tooLarge(err error) bool {
	if f, ok := errors.AsType[*Fault](err); ok {
		_, illegal := f.Exception.(*xroute.IllegalParameterException)
		return illegal
	}
	e, ok := errors.AsType[*client.Error](err)
	return ok && e.Status == http.StatusRequestEntityTooLarge
}
