package launch

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"

	"google.golang.org/protobuf/proto"

	"trafficd/cmd/dev/must"
	"trafficd/schemas/contract"
	pb "trafficd/schemas/proto/trafficd/v1"
)

// Response is an HTTP response whose body was read.
type Response struct {
	Status int
	Header http.Header
	Body   []byte
}

// Request sends an HTTP request and reads the response. headers alternates names and values.
func Request(ctx context.Context, client *http.Client, method, url string, body []byte, headers ...string) (response Response, err error) {
	defer must.Return(&err)
	req := must.Get(http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body)))
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	r, err := client.Do(req)
	must.Do(err)
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	return Response{r.StatusCode, r.Header, text}, err
}

// Post posts a batch, compressed with gzip, to a daemon or a proxy at base, such as
// http://127.0.0.1:8080. Result returns its result.
func Post(ctx context.Context, client *http.Client, base, key string, packed []byte, headers ...string) (Response, error) {
	return Request(ctx, client, http.MethodPost, base+contract.IngestPath, packed, slices.Concat([]string{
		"Authorization", "apiKey " + key, "Content-Type", "application/json", "Content-Encoding", "gzip",
	}, headers)...)
}

// Result returns the result of a batch. It returns an error unless r is a 207.
func (r Response) Result() (result contract.Result, err error) {
	if r.Status != http.StatusMultiStatus {
		return result, fmt.Errorf("status %d: %.300s", r.Status, r.Body)
	}
	if err := json.Unmarshal(r.Body, &result); err != nil {
		return result, fmt.Errorf("cannot decode the result of a batch: %w", err)
	}
	return result, nil
}

// GetLayer requests the forecast layer as protobuf. query begins with ? unless it is empty. Layer
// returns the forecasts.
func GetLayer(ctx context.Context, client *http.Client, base, key, query string, headers ...string) (Response, error) {
	return Request(ctx, client, http.MethodGet, base+contract.ForecastPath+query, nil,
		append([]string{"Authorization", "apiKey " + key}, headers...)...)
}

// Layer returns the forecasts in a response. It returns an error unless r is a 200 with protobuf.
func (r Response) Layer() (*pb.StreetForecastResponse, error) {
	if r.Status != http.StatusOK {
		return nil, fmt.Errorf("status %d: %.300s", r.Status, r.Body)
	}
	layer := new(pb.StreetForecastResponse)
	if err := proto.Unmarshal(r.Body, layer); err != nil {
		return nil, fmt.Errorf("cannot decode the layer: %w", err)
	}
	return layer, nil
}
