package generate

import (
	"bufio"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"trafficd/cmd/trafficctl/internal/measurement"
)

// Samples returns the valid measurements, ordered by interval and detector, and whether each is the last
// of its interval. The fields are valid until the next iteration.
func (n *Network) Samples() iter.Seq2[*measurement.Fields, bool] {
	return func(yield func(*measurement.Fields, bool) bool) {
		p := pending{yield: yield}
		for i := range n.cfg.Intervals() {
			from := n.cfg.From.Add(time.Duration(i) * n.cfg.Interval)
			n.interval(from, &p)
			if !p.flush(true) {
				return
			}
		}
	}
}

// interval generates the measurements of one interval.
func (n *Network) interval(from time.Time, p *pending) {
	p.times(from, from.Add(n.cfg.Interval))
	for i := range n.detectors {
		d := &n.detectors[i]
		s, ok := d.next(from, n.cfg.GapRate)
		if !ok {
			continue
		}
		for _, kind := range d.types {
			if !p.flush(false) {
				return
			}
			p.set(d, kind, s)
		}
	}
}

// pending delays each measurement until it is known whether it is the last of its interval.
type pending struct {
	yield   func(*measurement.Fields, bool) bool
	fields  measurement.Fields
	filled  bool
	stopped bool
}

func (p *pending) flush(last bool) bool {
	if p.filled && !p.stopped {
		p.stopped = !p.yield(&p.fields, last)
	}
	p.filled = false
	return !p.stopped
}

func (p *pending) times(from, to time.Time) {
	p.fields.From = measurement.AppendTime(p.fields.From[:0], from)
	p.fields.To = measurement.AppendTime(p.fields.To[:0], to)
}

func (p *pending) set(d *detector, kind string, s state) {
	f := &p.fields
	f.Detector, f.Type = d.code, kind
	f.Quality = f.Quality[:0]
	if d.hasQuality {
		f.Quality = strconv.AppendFloat(f.Quality, s.quality, 'f', 2, 64)
	}
	switch kind {
	case "speed":
		f.Value = strconv.AppendFloat(f.Value[:0], s.speed, 'f', 1, 64)
	case "flow":
		f.Value = strconv.AppendFloat(f.Value[:0], s.flow, 'f', 0, 64)
	default:
		f.Value = strconv.AppendFloat(f.Value[:0], s.occupancy, 'f', 1, 64)
	}
	p.filled = true
}

// Items returns the same measurements as JSON, some of them invalid. Each interval ends its batch.
func (n *Network) Items() iter.Seq2[measurement.Item, error] {
	return func(yield func(measurement.Item, error) bool) {
		chance := rand.New(rand.NewPCG(n.cfg.Seed, faultStream))
		var item measurement.Item
		for f, last := range n.Samples() {
			if chance.Float64() < n.cfg.ErrorRate {
				item.JSON = Faults[chance.IntN(len(Faults))].append(item.JSON[:0], *f)
			} else {
				item.JSON = f.AppendJSON(item.JSON[:0])
			}
			item.Order = measurement.OrderOf(f.Detector)
			item.Place.Row++
			item.EndsBatch = last
			if !yield(item, nil) {
				return
			}
		}
	}
}

// WriteNDJSON writes one item per line and returns their number.
func (n *Network) WriteNDJSON(w io.Writer) (items int64, err error) {
	out := bufio.NewWriterSize(w, 64<<10)
	for item, err := range n.Items() {
		if err != nil {
			return items, err
		}
		if _, err := out.Write(item.JSON); err != nil {
			return items, err
		}
		if err := out.WriteByte('\n'); err != nil {
			return items, err
		}
		items++
	}
	return items, out.Flush()
}

// WriteCSV writes the valid measurements as CSV, with the member names as header, and returns their number.
func (n *Network) WriteCSV(w io.Writer) (items int64, err error) {
	out := bufio.NewWriterSize(w, 64<<10)
	out.WriteString(strings.Join([]string{
		measurement.DetectorCode, measurement.MeasureTypeCode, measurement.TimestampFrom,
		measurement.TimestampTo, measurement.Value, measurement.Quality,
	}, ",") + "\n")
	var line []byte
	for f := range n.Samples() {
		line = fmt.Appendf(line[:0], "%s,%s,%s,%s,%s,%s\n", f.Detector, f.Type, f.From, f.To, f.Value, f.Quality) // nothing needs quotes
		if _, err := out.Write(line); err != nil {
			return items, err
		}
		items++
	}
	return items, out.Flush()
}
