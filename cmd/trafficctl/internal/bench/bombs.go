package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/klauspost/compress/gzip"
)

// bomb is a small body that decompresses to a large one.
type bomb struct {
	name         string
	head, repeat string
	times        int
	status       int
}

var bombs = []bomb{
	{"zeros", "", "\x00", 1 << 30, http.StatusBadRequest},
	{"string", `{"measurements":[{"detectorCode":"`, "a", 512 << 20, http.StatusRequestEntityTooLarge},
	{"spaces", `{"measurements":[`, " ", 512 << 20, http.StatusRequestEntityTooLarge},
	{"items", `{"measurements":[{}`, ",{}", 33_000_000, http.StatusRequestEntityTooLarge},
}

func (b bomb) gzip() []byte {
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	_, err := io.WriteString(w, b.head)
	block := bytes.Repeat([]byte(b.repeat), 1<<16)
	for left := b.times; left > 0 && err == nil; left -= 1 << 16 {
		_, err = w.Write(block[:min(left, 1<<16)*len(b.repeat)])
	}
	if err = errors.Join(err, w.Close()); err != nil {
		panic(err) // memory takes everything
	}
	return zipped.Bytes()
}

// defuse measures what bombs cost the daemon, and what memory is left behind.
func (o Options) defuse(ctx context.Context) error {
	d, err := start(ctx, o.Daemon, []string{"A"})
	if err != nil {
		return err
	}
	defer d.stop()
	for _, b := range bombs {
		body := b.gzip()
		fmt.Fprintf(o.Notes, "bomb of %s: %d bytes of gzip\n", b.name, len(body))
		const times = 5
		before := d.cpu()
		for range times {
			if err := d.refused(body, b.status); err != nil {
				return fmt.Errorf("bomb of %s: %w", b.name, err)
			}
		}
		o.line("bomb_"+b.name+"_ms", float64((d.cpu()-before).Microseconds())/1000/times, "ms")
	}
	peak, err := d.peakMB()
	if err == nil {
		o.line("bombs_rss_mb", peak, "MB")
	}
	return err
}

// refused posts a body that has to be turned down.
func (d *daemon) refused(body []byte, status int) error {
	c, err := d.dial()
	if err != nil {
		return err
	}
	defer c.Close()
	fmt.Fprintf(c, "POST /dataprovider/ingestion/v1/detectors/data/ingest HTTP/1.1\r\nHost: bench\r\nAuthorization: apiKey %s\r\nContent-Length: %d\r\n\r\n", benchKey, len(body))
	go func() { _, _ = c.Write(body) }() // the daemon may answer before it has read all
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != status {
		err = fmt.Errorf("status %d, wanted %d: %.300s", resp.StatusCode, status, text)
	}
	return err
}
