package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/gzip"

	"trafficd/cmd/internal/authority"
	"trafficd/pipeline/lib/negotiate"
)

// siteList is the list of the sites of all feeds. trafficd must have read it before it gets the
// measurements of a new site, which it would reject.
type siteList struct {
	mu      sync.Mutex
	feeds   []*feedSites
	body    []byte // JSON, compressed; nil until a feed has sites
	etag    string
	changed time.Time
	read    bool // trafficd has the current version
}

// feedSites are the sites of a feed: those of its table, and others that have values.
type feedSites struct {
	table []byte // one JSON object a line, compressed
	known map[string]bool
	seen  map[string]bool // have values, but are not in the table
}

// set replaces the table of a feed.
func (l *siteList) set(f *feedSites, table []byte, known map[string]bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	f.table, f.known = table, known
	for id := range f.seen {
		if known[id] {
			delete(f.seen, id)
		}
	}
	return l.build()
}

// add adds sites that have values. It reports whether any of them is new.
func (l *siteList) add(f *feedSites, ids []string) (added bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		if !f.known[id] && !f.seen[id] {
			f.seen[id], added = true, true
		}
	}
	if !added {
		return false, nil
	}
	return true, l.build()
}

// build builds the list. l.mu is locked.
func (l *siteList) build() error {
	var packed bytes.Buffer
	z, _ := gzip.NewWriterLevel(&packed, gzip.BestSpeed) // fails only for invalid levels
	hash := xxhash.New()
	out := bufio.NewWriter(io.MultiWriter(z, hash))
	before := "[\n"
	entry := func(line []byte) {
		out.WriteString(before)
		out.Write(line)
		before = ",\n"
	}
	for _, f := range l.feeds {
		if len(f.table) > 0 {
			plain, err := gzip.NewReader(bytes.NewReader(f.table))
			if err != nil {
				return err
			}
			lines := bufio.NewScanner(plain)
			lines.Buffer(nil, 1<<20)
			for lines.Scan() {
				entry(lines.Bytes())
			}
			if err := lines.Err(); err != nil {
				return err
			}
		}
		for _, id := range slices.Sorted(maps.Keys(f.seen)) {
			line, _ := json.Marshal(authority.Entry{DetectorCode: id}) // cannot fail
			entry(line)
		}
	}
	out.WriteString(strings.TrimSuffix(before, ",\n") + "\n]\n")
	if err := cmp.Or(out.Flush(), z.Close()); err != nil {
		return err
	}
	if etag := fmt.Sprintf(`W/"%016x"`, hash.Sum64()); etag != l.etag {
		l.body, l.etag, l.changed, l.read = packed.Bytes(), etag, time.Now(), false
	}
	return nil
}

// patience is how long measurements wait for trafficd to read a new list: two of its polls. Another
// replica may still not have read it, and a trafficd with another registry never does.
const patience = 2*time.Minute + 10*time.Second

// wait returns how long to wait for trafficd to read the list. It is 0 once it has.
func (l *siteList) wait() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.read || l.body == nil {
		return 0
	}
	return max(0, time.Until(l.changed.Add(patience)))
}

// isReady reports whether there is a list.
func (l *siteList) isReady() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.body != nil
}

// ServeHTTP serves the list. A client that has the current version says so with If-None-Match: from
// then on, it accepts the measurements of all sites.
func (l *siteList) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	body, etag := l.body, l.etag
	if body != nil && r.Header.Get("If-None-Match") == etag {
		l.read = true
	}
	l.mu.Unlock()
	h := w.Header()
	switch {
	case body == nil:
		h.Set("Retry-After", "10")
		http.Error(w, "no site has been read yet", http.StatusServiceUnavailable)
		return
	case r.Header.Get("If-None-Match") == etag:
		h.Set("ETag", etag)
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("ETag", etag)
	h.Set("Content-Type", "application/json")
	h.Set("Vary", "Accept-Encoding")
	if negotiate.AcceptsGzip([][]byte{[]byte(r.Header.Get("Accept-Encoding"))}) {
		h.Set("Content-Encoding", "gzip")
		h.Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = w.Write(body) // fails only if the client has disconnected
		return
	}
	if plain, err := gzip.NewReader(bytes.NewReader(body)); err == nil { // it was written by build
		_, _ = io.Copy(w, plain)
	}
}
