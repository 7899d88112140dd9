package launch

import (
	"bytes"
	"context"
	"io"
	"net/http"
)

// Response is an HTTP response whose body was read.
type Response struct {
	Status int
	Header http.Header
	Body   []byte
}

// Request sends an HTTP request and reads the response. headers alternates names and values.
func Request(ctx context.Context, client *http.Client, method, url string, body []byte, headers ...string) (Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return Response{}, err
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	r, err := client.Do(req)
	if err != nil {
		return Response{}, err
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	return Response{r.StatusCode, r.Header, text}, err
}
