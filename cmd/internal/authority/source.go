package authority

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"

	"trafficd/pipeline/lib/settings"
)

const (
	fetchTimeout = 5 * time.Minute // for a request, including its response

	// Limits of a document, as sent and decompressed. The site table of the Netherlands is 12 MB,
	// decompressed 390 MB.
	maxDownload = 1 << 30
	maxDocument = 4 << 30

	maxRedirects = 5
)

// Source is a document at an address. It is not safe for concurrent use.
type Source struct {
	Path string // of the file with the last download

	url      string
	header   http.Header
	bodyFile string
	client   http.Client

	etag, lastModified string // of the version that was kept
	next               validators
}

// validators are those of the last download.
type validators struct{ etag, lastModified string }

// NewSource returns the source of a document of a feed, which is downloaded to the file at path.
func NewSource(f Feed, url, path string) (s *Source, err error) {
	s = &Source{url: url, Path: path, bodyFile: f.BodyFile}
	if s.header, err = f.Header(""); err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if transport.TLSClientConfig, err = f.TLS().Config(""); err != nil {
		return nil, err
	}
	transport.MaxResponseHeaderBytes = 64 << 10
	s.client = http.Client{Transport: transport, Timeout: fetchTimeout, CheckRedirect: func(r *http.Request, via []*http.Request) error {
		from := via[0]
		switch {
		case r.Method != from.Method:
			return errors.New("the server redirects the POST to a GET: set the address that it redirects to")
		case from.URL.Scheme == "https" && r.URL.Scheme != "https":
			return errors.New("the server redirects from https to http, which is not followed")
		case r.URL.Hostname() != from.URL.Hostname() && (len(f.Headers) > 0 || f.Cert != "" || from.URL.User != nil):
			return fmt.Errorf("the server redirects to another host, %s, which must not get the credentials: set that address", r.URL.Host)
		case len(via) > maxRedirects:
			return fmt.Errorf("more than %d redirects", maxRedirects)
		}
		return nil
	}}
	return s, nil
}

// Fetch downloads the document to the file, unless the version that was kept is still current.
// modified is when the server says that it was changed, or zero.
func (s *Source) Fetch(ctx context.Context) (changed bool, modified time.Time, err error) {
	method, body := http.MethodGet, io.Reader(nil)
	if s.bodyFile != "" {
		envelope, err := os.ReadFile(s.bodyFile)
		if err != nil {
			return false, modified, err
		}
		method, body = http.MethodPost, strings.NewReader(string(envelope))
	}
	request, err := http.NewRequestWithContext(ctx, method, s.url, body)
	if err != nil {
		return false, modified, err
	}
	request.Header = s.header.Clone()
	if body != nil && request.Header.Get("Content-Type") == "" {
		request.Header.Set("Content-Type", "text/xml; charset=utf-8")
	}
	for name, value := range map[string]string{"If-None-Match": s.etag, "If-Modified-Since": s.lastModified} {
		if value != "" && body == nil {
			request.Header.Set(name, value)
		}
	}
	address := method + " " + settings.Redact(s.url, settings.Mask)
	response, err := s.client.Do(request)
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = fmt.Errorf("%s: %w", address, e.Err) // its URL may be one that the server redirects to, with a secret
	}
	if err != nil {
		return false, modified, err
	}
	defer response.Body.Close()
	switch {
	case response.StatusCode == http.StatusNotModified && s.etag+s.lastModified != "":
		return false, modified, nil
	case response.StatusCode != http.StatusOK:
		return false, modified, fmt.Errorf("%s: %s", address, response.Status)
	}
	file, err := os.OpenFile(s.Path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return false, modified, err
	}
	size, err := io.Copy(file, io.LimitReader(response.Body, maxDownload+1))
	err = errors.Join(err, file.Close())
	switch {
	case err != nil:
		return false, modified, fmt.Errorf("%s: the response ends after %d bytes: %w", address, size, err)
	case size == 0:
		return false, modified, fmt.Errorf("%s: the response is empty", address)
	case size > maxDownload:
		return false, modified, fmt.Errorf("%s: the response is longer than %d bytes", address, maxDownload)
	}
	s.next = validators{response.Header.Get("ETag"), response.Header.Get("Last-Modified")}
	modified, _ = http.ParseTime(s.next.lastModified)
	return true, modified, nil
}

// Keep makes the last download the version that is not downloaded again. It is called after the
// document was used, so that one that cannot be read is downloaded again.
func (s *Source) Keep() { s.etag, s.lastModified = s.next.etag, s.next.lastModified }

// Read calls read with the content of a file that was downloaded, decompressed if it is gzip.
func Read(path string, read func(io.Reader) error) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	in := bufio.NewReaderSize(file, 64<<10)
	for range 2 { // a compressed file may have been compressed once more for the transfer
		if magic, _ := in.Peek(2); string(magic) != "\x1f\x8b" {
			break
		}
		plain, err := gzip.NewReader(in)
		if err != nil {
			return fmt.Errorf("cannot decompress: %w", err)
		}
		in = bufio.NewReaderSize(plain, 64<<10)
	}
	return read(io.LimitReader(in, maxDocument)) // a document that ends there is incomplete, which the format reports
}
