package follow

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"time"

	"trafficd/cmd/trafficctl/internal/route"
	"trafficd/pipeline/lib/replace"
)

// osrm writes OSRM's segment speed file: node, next node, speed in km/h; a closed pair has speed 0.
type osrm struct {
	path     string
	cover    *cover[[2]int64]
	prefixes [][]byte // of the units' lines
	text     []byte   // content of the file
	modified time.Time
}

// OSRM returns a target that replaces the segment speed file at path atomically.
func OSRM(path string, matches []route.Match, streets Streets) (Target, error) {
	o := &osrm{path: path, cover: newCover[[2]int64](len(streets))}
	for i := range matches {
		m := &matches[i]
		pairs(m, streets.of(m), func(i int, p part) { o.cover.add([2]int64{m.Nodes[i], m.Nodes[i+1]}, p) })
	}
	for _, nodes := range o.cover.keys {
		line := strconv.AppendInt(nil, nodes[0], 10)
		o.prefixes = append(o.prefixes, append(strconv.AppendInt(append(line, ','), nodes[1], 10), ','))
	}
	info, err := os.Stat(path)
	if err == nil {
		o.modified = info.ModTime()
		o.text, err = os.ReadFile(path)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("cannot read the segment speed file --output: %w", err)
	}
	return o, nil
}

func (o *osrm) Updated() time.Time { return o.modified }

func (o *osrm) Close() error { return nil }

// minCover is the least part of a pair of nodes that must have a speed.
const minCover = 0.5

func (o *osrm) Write(speeds []speed, _ []int32, now time.Time) (int, error) {
	text, lines := make([]byte, 0, len(o.text)+4096), 0
	for unit, parts := range o.cover.parts {
		s, covered := mean(parts, speeds, 0, 1)
		if !s.closed && covered < minCover {
			continue
		}
		text = append(text, o.prefixes[unit]...)
		if s.closed {
			text = append(text, '0')
		} else {
			text = strconv.AppendFloat(text, float64(max(s.kmh, minSpeed)), 'f', 1, 32)
		}
		text = append(text, '\n')
		lines++
	}
	if o.modified.IsZero() || !bytes.Equal(text, o.text) {
		err := replace.File(o.path, 0o644, func(w io.Writer) error {
			_, err := w.Write(text)
			return err
		})
		if err != nil {
			return 0, fmt.Errorf("cannot write the segment speed file: %w", err)
		}
		o.text, o.modified = text, now
	}
	return lines, nil
}
