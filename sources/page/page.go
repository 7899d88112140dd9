// Package page serves the web page: the map of the forecast layer and, for operators, the state of
// the daemon. `make page` builds the page from the directory app into the directory dist, which is
// committed so that go build does not need Node.
package page

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path"
	"strings"
	"sync"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/gzip"
	"github.com/valyala/fasthttp"

	"trafficd/pipeline/lib/negotiate"
	"trafficd/pipeline/lib/settings"
)

//go:embed dist
var dist embed.FS

// Config is the ui section of the configuration.
type Config struct {
	// serve the map at /map/ of the clients' listener too; its data needs an API key with the forecast
	// right
	Clients  bool   `setting:"clients"`
	LeftHand bool   `setting:"left_hand"` // draw lines on the left side of the road, for left-hand traffic
	Basemap  string `setting:"basemap"`   // PMTiles archive with vector or raster tiles under the streets; empty: only coastlines and borders

	// ops.listen of the forecaster, which provides the details of a street that operators see
	Forecaster string `setting:"forecaster"`
}

// DefaultConfig returns the default settings: the map is served to clients.
func DefaultConfig() Config { return Config{Clients: true} }

// Validate checks the address of the forecaster.
func (c Config) Validate() error {
	return settings.Check(c.Forecaster == "" || settings.IsHostPort(c.Forecaster),
		"forecaster is %q, must be host:port, such as 127.0.0.1:8081, or empty for no details", c.Forecaster)
}

// Settings holds the settings of the daemon that the page fetches as settings.json.
type Settings struct {
	Horizons   []int   `json:"horizons"`   // minutes
	StaleAfter float64 `json:"staleAfter"` // seconds
	Forecasts  bool    `json:"forecasts"`  // whether there is a feed of forecasts
	LeftHand   bool    `json:"leftHand"`
	Basemap    bool    `json:"basemap"`    // whether basemapName exists
	Forecaster bool    `json:"forecaster"` // whether ForecasterPaths exist
	Sites      bool    `json:"sites"`      // whether the archive has current speeds of detectors, for operators

	MeasureTypes []MeasureType `json:"measureTypes,omitempty"` // for operators
}

// MeasureType is an allowed type of measurement.
type MeasureType struct {
	Code string   `json:"code"`
	Unit string   `json:"unit,omitempty"`
	Min  *float64 `json:"min,omitempty"` // lowest allowed value
	Max  *float64 `json:"max,omitempty"`
}

// policy allows the page to load only its own files: no inline scripts or styles, and nothing from
// other hosts.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; " +
	"worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// revalidate lets caches store a file, but requires them to revalidate it for each use.
const revalidate = "public, no-cache"

// Handler responds to a GET or HEAD of a file. An error replaces the response.
type Handler = func(ctx *fasthttp.RequestCtx) error

// Page holds the handlers of the page's files for one audience, by path without a leading slash.
type Page map[string]Handler

// Document returns the handler of a document that is not part of a page, such as a schema.
func Document(mediaType string, content []byte) Handler {
	etag := `"` + digest(content) + `"`
	return func(ctx *fasthttp.RequestCtx) error {
		ctx.Response.Header.Set(fasthttp.HeaderCacheControl, revalidate)
		negotiate.Serve(ctx, etag, mediaType, func() []byte { return content })
		return nil
	}
}

// Redirect returns a handler that permanently redirects to a location relative to the request's
// path, and so below the same base path.
func Redirect(location string) Handler {
	return func(ctx *fasthttp.RequestCtx) error {
		ctx.Response.Header.Set(fasthttp.HeaderLocation, location)
		ctx.SetStatusCode(fasthttp.StatusMovedPermanently)
		return nil
	}
}

func digest(content []byte) string { return fmt.Sprintf("%x", xxhash.Sum64(content)) }

const operatorsEntry = "index.html" // entry file of the page for operators

// ForecasterPaths are the paths of the forecaster's details about a street and about all streets.
// Only operators can request them, because they are not part of the contract with clients.
var ForecasterPaths = []string{"/street", "/streets"}

// Streets returns the handler of ForecasterPaths, a reverse proxy to the forecaster.
func (c Config) Streets() http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: c.Forecaster}) },
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, "cannot reach the forecaster (ui.forecaster): "+err.Error(), http.StatusBadGateway)
		},
	}
}

// New returns the page with the given entry file: index.html for operators or map.html for clients.
// The path of the entry file within the page is "".
func New(cfg Config, s Settings, entry string) Page {
	s.LeftHand, s.Basemap, s.Forecaster = cfg.LeftHand, cfg.Basemap != "", cfg.Forecaster != "" && entry == operatorsEntry
	if entry != operatorsEntry {
		s.MeasureTypes, s.Sites = nil, false
	}
	all := Page{}
	all.add("", entry, policy, content(dist, "dist/"+entry))
	assets, _ := fs.Glob(dist, "dist/assets/*") // the pattern is valid
	for _, file := range assets {
		name := strings.TrimPrefix(file, "dist/")
		all.add(name, name, policy, content(dist, file))
	}
	text, _ := json.Marshal(s) // StaleAfter is finite, so this cannot fail
	all.add("settings.json", "settings.json", policy, func() []byte { return text })
	if s.Basemap {
		all[basemapName] = cfg.serveBasemap
	}
	return all
}

// asset is a file of the page.
type asset struct {
	mediaType  string
	policy     string // Content-Security-Policy
	caching    string // Cache-Control
	etag       func() string
	identity   func() []byte // uncompressed content
	compressed func() []byte // gzip-compressed content
}

// serve implements Handler. It does not copy the content.
func (a *asset) serve(ctx *fasthttp.RequestCtx) error {
	h := &ctx.Response.Header
	h.Set(fasthttp.HeaderContentSecurityPolicy, a.policy)
	h.Set(fasthttp.HeaderReferrerPolicy, "no-referrer")
	h.Set(fasthttp.HeaderXContentTypeOptions, "nosniff")
	h.Set(fasthttp.HeaderCacheControl, a.caching)
	h.Set(fasthttp.HeaderVary, fasthttp.HeaderAcceptEncoding)
	etag, body := `"`+a.etag()+`"`, a.identity
	if negotiate.AcceptsGzip(ctx.Request.Header.PeekAll(fasthttp.HeaderAcceptEncoding)) {
		etag, body = `"`+a.etag()+`-gzip"`, a.compressed
		h.SetContentEncoding("gzip")
	}
	negotiate.Serve(ctx, etag, a.mediaType, body)
	return nil
}

// add adds a file at the path name, with the media type for the file name from. If name ends with
// .gz, the build has compressed the file; its path is name without the suffix and determines the
// media type. The content is read when the file is first requested.
func (p Page) add(name, from, policy string, content func() []byte) {
	stored := sync.OnceValue(content)
	a := asset{policy: policy, caching: revalidate, etag: sync.OnceValue(func() string { return digest(stored()) })}
	if strings.HasPrefix(name, "assets/") { // the name contains a hash of the content
		a.caching = "public, max-age=31536000, immutable"
	}
	if plain, ok := strings.CutSuffix(name, ".gz"); ok {
		name, from = plain, plain
		a.compressed, a.identity = stored, sync.OnceValue(func() []byte {
			z, _ := gzip.NewReader(bytes.NewReader(stored()))
			text, _ := io.ReadAll(z) // reading an embedded file cannot fail
			return text
		})
	} else {
		a.identity, a.compressed = stored, sync.OnceValue(func() []byte {
			var b bytes.Buffer
			z, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
			_, _ = z.Write(stored()) // writing to memory cannot fail
			_ = z.Close()
			return b.Bytes()
		})
	}
	a.mediaType = mediaType(from)
	p[name] = a.serve
}

func content(files embed.FS, name string) func() []byte {
	return func() []byte {
		text, _ := files.ReadFile(name) // the file is embedded
		return text
	}
}

// mediaType returns the media type for a file name. Unlike package mime, it does not depend on
// tables of the operating system.
func mediaType(name string) string {
	return map[string]string{
		".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
		".svg": "image/svg+xml", ".json": "application/json",
	}[path.Ext(name)]
}

// The renderer is an unmodified file of the package openapi-explorer, which `make docs` copies.
//
//go:embed docs/index.html docs/docs.css docs/openapi-explorer.min.js
var docs embed.FS

// docsPolicy is policy with inline styles allowed, because the renderer adds style elements.
var docsPolicy = strings.Replace(policy, "style-src 'self'", "style-src 'self' 'unsafe-inline'", 1)

// Docs returns the page that shows the OpenAPI document, which it fetches from schemas/openapi.yaml
// relative to the page. The page's other files are in docs/.
func Docs() Page {
	all := Page{}
	files, _ := fs.Glob(docs, "docs/*") // the pattern is valid
	for _, file := range files {
		name := strings.TrimPrefix(strings.TrimPrefix(file, "docs/"), "index.html")
		all.add(name, file, docsPolicy, content(docs, file))
	}
	return all
}
