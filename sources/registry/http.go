package registry

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"trafficd/sources/internal/watch"
)

// httpSource polls a registry service for JSON. It sends the ETag of the list in use, so that a
// service that supports ETags answers 304 most of the time.
type httpSource struct {
	HTTPConfig
	shown      string // the URL without its password
	maxBytes   int64
	client     *http.Client
	last, kept string // ETags of the list read last and of the one in use
}

func newHTTPSource(cfg HTTPConfig, maxBytes int64) *httpSource {
	shown := ""
	if u, err := url.Parse(cfg.URL); err == nil {
		shown = u.Redacted()
	}
	return &httpSource{
		HTTPConfig: cfg,
		shown:      shown,
		maxBytes:   maxBytes,
		// With its own transport, close ends every connection.
		client: &http.Client{Timeout: cfg.Timeout, Transport: &http.Transport{Proxy: http.ProxyFromEnvironment}},
	}
}

func (s *httpSource) changes() <-chan struct{} { return nil }

func (s *httpSource) keep() { s.kept = s.last }

func (s *httpSource) close() { s.client.CloseIdleConnections() }

func (s *httpSource) read(ctx context.Context) ([]string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json")
	request.Header.Set("User-Agent", "trafficd")
	if s.Authorization != "" {
		request.Header.Set("Authorization", s.Authorization)
	}
	if s.kept != "" {
		request.Header.Set("If-None-Match", s.kept)
	}
	response, err := s.client.Do(request)
	if err != nil {
		return nil, err // it names method and URL
	}
	defer response.Body.Close()
	switch {
	case response.StatusCode == http.StatusNotModified && s.kept != "":
		return nil, watch.ErrUnchanged
	case response.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("GET %s: %s", s.shown, response.Status)
	}
	body, err := watch.ReadAll(response.Body, s.maxBytes)
	var codes []string
	if err == nil {
		codes, err = parseJSON(body, s.Column)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the answer of %s: %w", s.shown, err)
	}
	s.last = response.Header.Get("ETag")
	return codes, nil
}
