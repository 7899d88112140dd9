package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-faster/jx"
	"github.com/klauspost/compress/gzip"

	"trafficd/cmd/dev/must"
	"trafficd/pipeline/lib/gunzip"
	"trafficd/pipeline/lib/gunzip/compress"
	"trafficd/schemas/contract"
)

type body struct {
	name         string // prefix of the names of its figures; empty or ending in _
	items        int
	length       int      // decompressed length in bytes
	zipped       []byte   // compressed with gzip
	detectors    []string // codes for the daemon's registry
	wantResponse string   // text that the response must contain
}

const batchItems = 14_000

// synthetic returns a batch with one measurement from each of 14,000 detectors, such as an
// integrator would send every five minutes.
func synthetic() body {
	r := rand.New(rand.NewPCG(1, 2))
	m := contract.Measurement{MeasureTypeCode: "speed", TimestampFrom: time.Date(2026, 1, 20, 10, 0, 0, 0, time.UTC)}
	m.TimestampTo = m.TimestampFrom.Add(5 * time.Minute)
	detectors, items := make([]string, batchItems), make([][]byte, batchItems)
	for i := range items {
		detectors[i] = fmt.Sprintf("DET-%06d", i*7)
		m.DetectorCode = detectors[i]
		m.Value = json.Number(fmt.Sprintf("%.2f", 20+float64(r.IntN(10000))/100))
		m.Quality = json.Number(fmt.Sprintf("%.2f", float64(90+r.IntN(11))/100))
		items[i] = m.AppendJSON(nil)
	}
	return newBody("", contract.Batch(items...), detectors)
}

// newBody returns a body that contains text, compressed with gzip at its default level.
func newBody(name string, text []byte, detectors []string) body {
	items := bytes.Count(text, []byte(`"value"`))
	return body{name, items, len(text), compress.Gzip(text), detectors, fmt.Sprintf(`"accepted":%d,`, items)}
}

var (
	gunzipper gzip.Reader
	inflater  gunzip.Reader
)

// gunzip decompresses the body and discards it.
func (b body) gunzip() {
	must.Do(gunzipper.Reset(bytes.NewReader(b.zipped)))
	must.Get(io.Copy(io.Discard, &gunzipper))
}

// scan decompresses the body and skips over its JSON with jx.
func (b body) scan() {
	must.Do(gunzipper.Reset(bytes.NewReader(b.zipped)))
	must.Do(jx.Decode(&gunzipper, 128<<10).Skip())
}

// inflate decompresses the body as the daemon does, and discards it.
func (b body) inflate() {
	inflater.Reset(bytes.NewReader(b.zipped))
	for {
		_, err := inflater.Next(0)
		if err == io.EOF {
			return
		}
		must.Do(err)
	}
}

// prose returns text that compresses like a book: random words, a few of which are frequent.
func prose() body {
	r := rand.New(rand.NewPCG(3, 4))
	vocabulary := make([]string, 20_000)
	for i := range vocabulary {
		word := make([]byte, 2+r.IntN(4)+r.IntN(6))
		for k := range word {
			word[k] = "etaoinshrdlucmfwypvbgkjqxz"[int(min(25, r.ExpFloat64()*6))]
		}
		vocabulary[i] = string(word)
	}
	frequency := rand.NewZipf(r, 1.1, 4, uint64(len(vocabulary)-1))
	var text bytes.Buffer
	for text.Len() < 2<<20 {
		text.WriteString(vocabulary[frequency.Uint64()])
		text.WriteString([]string{" ", " ", " ", " ", " ", " ", ", ", ". ", "\n"}[r.IntN(9)])
	}
	return newBody("text_", text.Bytes(), nil)
}

// readBody returns a body with the measurements in an NDJSON file. Its name is that of the file up
// to the first dot, and an underscore.
func readBody(path string) (b body, err error) {
	defer must.Return(&err)
	var items [][]byte
	seen := map[string]bool{}
	var detectors []string
	for line := range bytes.Lines(must.Get(os.ReadFile(path))) {
		var m struct {
			DetectorCode string `json:"detectorCode"`
		}
		if err := json.Unmarshal(line, &m); err != nil {
			return b, fmt.Errorf("cannot read line %d of %s: %w", len(items)+1, path, err)
		}
		items = append(items, bytes.TrimSpace(line))
		if !seen[m.DetectorCode] {
			seen[m.DetectorCode] = true
			detectors = append(detectors, m.DetectorCode)
		}
	}
	for n := 0; len(detectors) < batchItems; n++ { // make the registry as large as the synthetic one
		detectors = append(detectors, fmt.Sprintf("other-%d", n))
	}
	name, _, _ := strings.Cut(filepath.Base(path), ".")
	return newBody(name+"_", contract.Batch(items...), detectors), nil
}
