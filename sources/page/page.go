// Package page serves the web page: the map of the forecast layer and, for operators, what the daemon does. The page is
// built from app by `make page`; the result, dist, is committed, so that go build needs no Node.
package page

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"

	"trafficd/schemas/negotiate"
)

//go:embed dist
var dist embed.FS

// Config is what the page can be told.
type Config struct {
	Clients  bool `setting:"clients"`   // serve the map at /map/ of the clients' listener too; its data needs a key with the right forecast
	LeftHand bool `setting:"left_hand"` // traffic keeps to the left: lines are drawn on that side
}

// DefaultConfig serves the map to clients.
func DefaultConfig() Config { return Config{Clients: true} }

// Settings are those of the daemon that the page needs; it gets them as settings.json.
type Settings struct {
	Horizons   []int   `json:"horizons"`   // minutes
	StaleAfter float64 `json:"staleAfter"` // s
	LeftHand   bool    `json:"leftHand"`
}

// policy lets the page load its own files and nothing else: no inline scripts or styles, no other host.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; " +
	"worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// asset is a file of the page.
type asset struct {
	mediaType, etag string
	immutable       bool // its name has a hash of its content
	identity        []byte
	compressed      func() []byte // gzip
}

// Files returns the paths that New serves, without the leading slash.
func Files() (names []string) {
	for name := range assets(Settings{}, "index.html") {
		names = append(names, name)
	}
	return names
}

// New returns a handler of the page's files, whose paths it expects without prefix. entry is the file to serve at "/":
// index.html for operators, map.html for clients.
func New(cfg Config, s Settings, entry string) http.Handler {
	s.LeftHand = cfg.LeftHand
	all := assets(s, entry)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path, "/")
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		a, ok := all[name]
		if !ok {
			http.NotFound(w, r)
			return
		}
		h.Set("Content-Type", a.mediaType)
		h.Set("Content-Security-Policy", policy)
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Vary", "Accept-Encoding")
		h.Set("Cache-Control", "public, no-cache")
		if a.immutable {
			h.Set("Cache-Control", "public, max-age=31536000, immutable")
		}
		body, etag := a.identity, a.etag
		if accepts := r.Header.Get("Accept-Encoding"); negotiate.AcceptsGzip([][]byte{[]byte(accepts)}) && r.Header.Get("Range") == "" {
			body, etag = a.compressed(), a.etag+"-gzip"
			h.Set("Content-Encoding", "gzip")
		}
		h.Set("ETag", `"`+etag+`"`)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
	})
}

// assets returns the page's files by name; "" is the entry.
func assets(s Settings, entry string) map[string]asset {
	all := map[string]asset{}
	add := func(name, from string, content []byte) {
		hash := fnv.New64a()
		hash.Write(content)
		all[name] = asset{
			mediaType: mediaType(from), etag: fmt.Sprintf("%x", hash.Sum64()), immutable: strings.HasPrefix(name, "assets/"), identity: content,
			compressed: sync.OnceValue(func() []byte {
				var b bytes.Buffer
				z, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
				_, _ = z.Write(content) // into memory
				_ = z.Close()
				return b.Bytes()
			}),
		}
	}
	_ = fs.WalkDir(dist, "dist", func(file string, d fs.DirEntry, err error) error { // embedded: it cannot fail
		if err != nil || d.IsDir() {
			return err
		}
		content, err := dist.ReadFile(file)
		switch name := strings.TrimPrefix(file, "dist/"); {
		case name == entry:
			add("", name, content)
		case strings.HasPrefix(name, "assets/"):
			add(name, name, content)
		}
		return err
	})
	text, _ := json.Marshal(s) // of numbers
	add("settings.json", "settings.json", text)
	return all
}

func mediaType(name string) string {
	if t := mime.TypeByExtension(path.Ext(name)); t != "" && path.Ext(name) != ".js" { // that of .js may come from the system
		return t
	}
	return map[string]string{".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml", ".json": "application/json"}[path.Ext(name)]
}
