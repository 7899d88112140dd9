package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/go-faster/jx"
	"github.com/klauspost/compress/gzip"
)

// Body is a request's body that is sent again and again.
type Body struct {
	Name      string // prefix of its figures, empty or ending in _
	Items     int
	Length    int // decompressed
	Gzip      []byte
	Detectors []string
}

const batchItems = 14_000

// Synthetic is a batch of 14,000 detectors, one measurement each, as an integrator sends it every five minutes.
func Synthetic() Body {
	r := rand.New(rand.NewPCG(1, 2))
	var text bytes.Buffer
	detectors := make([]string, batchItems)
	text.WriteString(`{"measurements":[`)
	for i := range batchItems {
		detectors[i] = fmt.Sprintf("DET-%06d", i*7)
		if i > 0 {
			text.WriteByte(',')
		}
		fmt.Fprintf(&text, `{"detectorCode":%q,"measureTypeCode":"speed","timestampFrom":"2026-01-20T10:00:00Z","timestampTo":"2026-01-20T10:05:00Z","value":%.2f,"quality":%.2f}`,
			detectors[i], 20+float64(r.IntN(10000))/100, float64(90+r.IntN(11))/100)
	}
	text.WriteString(`]}`)
	return NewBody("", text.Bytes(), detectors)
}

// NewBody compresses a request's JSON with gzip's default level.
func NewBody(name string, text []byte, detectors []string) Body {
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	_, err := w.Write(text)
	if err = errors.Join(err, w.Close()); err != nil {
		panic(err) // memory takes everything
	}
	return Body{Name: name, Items: bytes.Count(text, []byte(`"value"`)), Length: len(text), Gzip: zipped.Bytes(), Detectors: detectors}
}

// FromItems makes a body of measurements as JSON texts.
func FromItems(name string, items []json.RawMessage, detectors []string) (Body, error) {
	text, err := json.Marshal(map[string]any{"measurements": items})
	return NewBody(name, text, detectors), err
}

var gunzipper = sync.OnceValue(func() *gzip.Reader { return new(gzip.Reader) })

// gunzip decompresses the body and does nothing with it.
func (b Body) gunzip() error {
	z := gunzipper()
	if err := z.Reset(bytes.NewReader(b.Gzip)); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, z)
	return err
}

// scan is gunzip with jx going over the JSON without looking at it.
func (b Body) scan() error {
	z := gunzipper()
	if err := z.Reset(bytes.NewReader(b.Gzip)); err != nil {
		return err
	}
	return jx.Decode(z, 128<<10).Skip()
}

// ReadBody makes a body of an NDJSON file of measurements; the file's name up to the first dot is its name.
func ReadBody(path string) (Body, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Body{}, err
	}
	var items []json.RawMessage
	seen := map[string]bool{}
	var detectors []string
	for line := range bytes.Lines(text) {
		var m struct {
			DetectorCode string `json:"detectorCode"`
		}
		if err := json.Unmarshal(line, &m); err != nil {
			return Body{}, fmt.Errorf("cannot read line %d of %s: %w", len(items)+1, path, err)
		}
		items = append(items, bytes.TrimSpace(line))
		if !seen[m.DetectorCode] {
			seen[m.DetectorCode] = true
			detectors = append(detectors, m.DetectorCode)
		}
	}
	for n := 0; len(detectors) < batchItems; n++ { // a registry of the usual size
		detectors = append(detectors, fmt.Sprintf("other-%d", n))
	}
	name, _, _ := strings.Cut(filepath.Base(path), ".")
	return FromItems(name+"_", items, detectors)
}
