package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"

	"trafficd/cmd/internal/launch"
)

const (
	instance = "quickstart" // the product instance of the key and the registry
	keysFile = "keys.yaml"

	// The key in clear text, and as a header for curl. Only a demonstration stores it.
	keyFile    = "key"
	headerFile = "auth"

	rejectedFile = "rejected.ndjson"
	sampleFile   = "sample.json"
)

// sent is the summary that `trafficctl send --json` prints.
type sent struct {
	Accepted uint64  `json:"accepted"`
	Rejected uint64  `json:"rejected"`
	Batches  uint64  `json:"batches"`
	Retries  uint64  `json:"retries"`
	Seconds  float64 `json:"seconds"`

	Codes map[string]uint64 `json:"codes"` // of the rejections
}

// rights of the key: everything that the printed commands need.
var rights = []string{"ingest", "forecast", "routing"}

// makeKey uses the API key of an earlier start, or adds one to the keys file if that key has lost a right. It never changes
// or removes what is in the file.
func (q *quickstart) makeKey(ctx context.Context) error {
	text, err := os.ReadFile(q.path(keysFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot read the keys: %w", err)
	}
	var file struct {
		Keys []struct {
			Name            string
			SHA256          string
			ProductInstance string `yaml:"product_instance"`
			Rights          []string
		}
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		return fmt.Errorf("cannot read the keys in %s: %w; correct or remove the file", q.path(keysFile), err)
	}
	key, _ := os.ReadFile(q.path(keyFile)) // without it, there is no earlier key
	q.key = strings.TrimSpace(string(key))
	digest, usable, names := fmt.Sprintf("%x", sha256.Sum256([]byte(q.key))), false, map[string]bool{}
	for _, k := range file.Keys {
		names[k.Name] = true
		lacks := func(right string) bool { return !slices.Contains(k.Rights, right) }
		usable = usable || k.SHA256 == digest && k.ProductInstance == instance && !slices.ContainsFunc(rights, lacks)
	}
	if !usable {
		say("creating an API key")
		name := instance
		for n := 2; names[name]; n++ {
			name = fmt.Sprint(instance, "-", n)
		}
		out, err := q.trafficctl(ctx, "key", "new", "--name", name, "--product-instance", instance,
			"--rights", strings.Join(rights, ","), "--file", q.path(keysFile))
		if err != nil {
			return err
		}
		q.key, _, _ = strings.Cut(out, "\n")
	}
	err = os.WriteFile(q.path(keyFile), []byte(q.key+"\n"), 0o600)
	if err == nil {
		err = os.WriteFile(q.path(headerFile), []byte("Authorization: apiKey "+q.key+"\n"), 0o600)
	}
	if err != nil {
		return fmt.Errorf("cannot write the key: %w", err)
	}
	return nil
}

// source is the traffic to send and the registry of its detectors.
type source struct {
	file     string
	flags    []string // of trafficctl send
	registry string   // CSV file
	column   string   // of the registry's detector codes
	codes    string   // file of OpenLR codes, the streets of the forecasts; empty = synthetic ones
	about    string
}

// streets describes the streets of the forecasts.
func (s source) streets() string {
	if s.codes == "" {
		return "a synthetic town"
	}
	return "the streets in " + filepath.Base(s.codes)
}

// example returns a detector of the registry.
func (s source) example() string {
	f, err := os.Open(s.registry)
	if err != nil {
		return "?"
	}
	defer f.Close()
	rows := csv.NewReader(f)
	header, err := rows.Read()
	first, err2 := rows.Read()
	if at := slices.Index(header, s.column); err == nil && err2 == nil && at >= 0 {
		return first[at]
	}
	return "?"
}

// writeSample writes a batch of a valid item and an invalid one, for a printed command.
func (q *quickstart) writeSample() error {
	hour := time.Now().UTC().Truncate(time.Hour)
	item := func(detector string) string {
		return fmt.Sprintf(`{"detectorCode": %q, "measureTypeCode": "speed", "timestampFrom": %q, "timestampTo": %q, "value": 48.5}`,
			detector, hour.Add(-time.Hour).Format(time.RFC3339), hour.Format(time.RFC3339))
	}
	text := "{\"measurements\": [\n  " + item(q.source.example()) + ",\n  " + item("no-such-detector") + "\n]}\n"
	if err := os.WriteFile(q.path(sampleFile), []byte(text), 0o644); err != nil {
		return fmt.Errorf("cannot write the sample: %w", err)
	}
	return nil
}

// makeTraffic finds the data set, or generates traffic of the last days.
func (q *quickstart) makeTraffic(ctx context.Context) error {
	if q.data != "" {
		return q.findTraffic()
	}
	first := time.Now().UTC().AddDate(0, 0, -q.days).Format(time.DateOnly)
	say("generating %d × 24 h of traffic of %d detectors, some items invalid on purpose", q.days, q.detectors)
	q.source = source{
		file:     q.path("traffic.ndjson.gz"),
		registry: q.path("detectors.csv"),
		column:   "detectorCode",
		about:    fmt.Sprintf("synthetic traffic of %d detectors, %d day(s) from %s", q.detectors, q.days, first),
	}
	_, err := q.trafficctl(ctx, "generate", "--quiet", "--detectors", strconv.Itoa(q.detectors), "--days", strconv.Itoa(q.days),
		"--from", first, "--interval", "5m", "--types", "speed,flow", "--all-types", "--error-rate", "0.001",
		"--registry-out", q.source.registry, "--output", q.source.file)
	return err
}

func (q *quickstart) findTraffic() error {
	p, err := findProfile(q.root, q.data, q.profile)
	if err != nil {
		return err
	}
	folder, err := filepath.Abs(q.data)
	if err != nil {
		return fmt.Errorf("cannot find the data: %w", err)
	}
	q.source = source{
		file:     filepath.Join(folder, p.Observations),
		flags:    p.Send,
		registry: filepath.Join(folder, p.Detectors.File),
		column:   p.Detectors.Column,
		about:    p.name + ": " + p.Attribution,
	}
	if codes := filepath.Join(folder, p.Codes); p.Codes != "" && exists(codes) {
		q.source.codes = codes
	}
	for _, file := range []string{q.source.file, q.source.registry} {
		if _, err := os.Stat(file); err != nil {
			return fmt.Errorf("cannot find the data (profile %s): %w", p.name, err)
		}
	}
	return nil
}

// send runs trafficctl, which shows its progress, and restarts the daemon if it exits meanwhile.
func (q *quickstart) send(ctx context.Context) (sent, error) {
	if err := q.writeSample(); err != nil {
		return sent{}, err
	}
	say("sending %s", q.source.about)
	_ = os.Remove(q.path(rejectedFile)) // of the last run
	args := append([]string{
		"send", q.source.file, "--url", "http://" + q.daemon.API, "--key-file", q.path(keyFile),
		"--rejected", q.path(rejectedFile), "--json",
	}, q.source.flags...)
	var summary bytes.Buffer
	cmd := exec.Command(q.bin("trafficctl"), args...)
	cmd.Stdout, cmd.Stderr = &summary, os.Stderr
	p, err := launch.StartGroup(cmd, unix.SIGTERM)
	if err != nil {
		return sent{}, err
	}
	if err := q.until(ctx, func() (bool, error) { return p.Exited(), nil }); err != nil {
		_ = p.Stop(10 * time.Second)
		return sent{}, err
	}
	if code := p.State().ExitCode(); code != 0 && code != 2 { // 2: some were rejected
		return sent{}, fmt.Errorf("trafficctl could not send everything: exit code %d; see above", code)
	}
	var s sent
	if err := json.Unmarshal(summary.Bytes(), &s); err != nil {
		return s, fmt.Errorf("cannot parse trafficctl's summary %q: %w", summary.String(), err)
	}
	return s, nil
}
