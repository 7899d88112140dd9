// Package feeds reads what traffic authorities publish about their detectors: DATEX II and other
// formats. A document becomes rows (one per published value) and sites (what the registry needs to
// know about a detector).
//
//	document ─▶ xmlstream | JSON | CSV ─▶ one file per format ─▶ values of a site ─▶ rules ─▶ rows
//	                                                       └────────────────────────▶ sites
//
// The functions are pure: no network, no files, no clock. Memory use does not depend on the length
// of a document. A format is one file and one entry in Formats.
//
// Nothing is dropped silently: every published value is one row with an Outcome, and a row that is
// not a measurement says why. No value and no time is invented.
package feeds

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"trafficd/schemas/contract"
	"trafficd/schemas/feeds/xmlstream"
)

// MaxValues is the maximum number of values that a document may contain for one site, and of the
// characteristics, names and points of a site. The largest of the Netherlands have 72.
const MaxValues = 1000

// Outcome is what became of a published value.
type Outcome uint8

// The outcomes. Only Measured rows are measurements.
const (
	Measured  Outcome = iota
	NoVehicle         // a speed when no vehicle passed; the flow is 0
	Fault             // the publisher or its detector reports a fault, or the value cannot be read
	Skipped           // not a measurement of a detector, such as a forecast

	outcomes
)

func (o Outcome) String() string {
	return [...]string{"measured", "no vehicle", "fault", "skipped", "unknown"}[min(o, outcomes)]
}

// Reason is why a row is not a measurement.
type Reason string

// The reasons, by outcome.
const (
	NoInputs Reason = "no_inputs" // NoVehicle: the speed was computed from 0 vehicles
	MinusOne Reason = "minus_one" // NoVehicle: -1, where the publisher writes it for none
	NoFlow   Reason = "no_flow"   // NoVehicle: the flow of the same lane, class and interval is 0

	DataError  Reason = "data_error"   // Fault: the publisher marks the value as wrong
	Equipment  Reason = "equipment"    // Fault: the publisher marks the detector as faulty
	NoValue    Reason = "no_value"     // Fault: there is no value
	NotANumber Reason = "not_a_number" // Fault: a word, such as Error
	Sentinel   Reason = "sentinel"     // Fault: a negative number, or a number that stands for no value
	NoTime     Reason = "no_time"      // Fault: there is no time, or it cannot be read
	NoSite     Reason = "no_site"      // Fault: the value does not say where it was measured

	Kind     Reason = "kind"     // Skipped: a kind of value that is not in the table of measures
	Forecast Reason = "forecast" // Skipped: computed for the future
	Repeated Reason = "repeated" // Skipped: the same value for the same interval again, in another row
)

// Row is one published value.
type Row struct {
	Site     string // id of the site as published: the detector code
	Code     string // measure type code, such as speed.lane1.lorry
	Measure  Measure
	Index    int // of the value within the site, as published
	From, To time.Time
	Value    float64 // in the unit of Measure; 0 if it cannot be read
	Quality  float64 // NaN if it is not published
	Outcome  Outcome
	Reason   Reason // empty for measurements
}

// Measurement returns the row, whose outcome is Measured, as a measurement of the contract.
func (r *Row) Measurement() contract.Measurement {
	m := contract.Measurement{
		DetectorCode: r.Site, MeasureTypeCode: r.Code, TimestampFrom: r.From, TimestampTo: r.To, Value: jsonNumber(r.Value),
	}
	if !math.IsNaN(r.Quality) {
		m.Quality = jsonNumber(r.Quality)
	}
	return m
}

func jsonNumber(v float64) json.Number { return json.Number(strconv.FormatFloat(v, 'f', -1, 64)) }

// Site is a place with one or more detectors.
type Site struct {
	ID, Version, Name, Side string
	Lon, Lat                float64 // WGS84 degrees; NaN if there is no valid position
	X, Y                    float64 // metres of the publisher's projection; 0 if there are none
	Lanes                   int     // 0 if unknown
	Line                    Line    // OpenLR; without points if there is none
	Characteristics         []Characteristic
}

// Characteristic describes the values of a site that have the same index.
type Characteristic struct {
	Index  int
	Kind   string // as published, such as trafficSpeed
	Lane   string // part of a code, such as lane1; empty for all lanes
	Class  string // part of a code, such as lorry; empty for all vehicles
	Period time.Duration
}

// Line is a location reference of OpenLR with its points and its offsets in metres.
type Line struct {
	Points                         []Point
	PositiveOffset, NegativeOffset int
}

// Point is a location reference point. FRC and FOW have the numbers of OpenLR's binary format.
type Point struct {
	Lon, Lat, Bearing        float64
	FRC, FOW, LowestFRC, Len int // Len is the distance to the next point in metres
}

// Sink receives the contents of a document, which are valid during the call. An error ends Parse,
// which returns it. A function may be nil.
type Sink struct {
	Rows func([]Row) error // those of a site, in the order of the document
	Site func(*Site) error
}

// Summary is what a document contains, also if only a part of it could be read.
type Summary struct {
	Version   string    // of the format, if the document says it
	Published time.Time // zero if the document does not say it
	Sites     int       // sites with values; Hong Kong has each site in several periods
	Listed    int       // sites that are described
	Positions int       // of these, with a valid position
	Values    int       // the sum of Counts
	Counts    [measures][outcomes]int
}

// Of returns the number of rows with the outcome, of all measures.
func (s *Summary) Of(o Outcome) (n int) {
	for m := range s.Counts {
		n += s.Counts[m][o]
	}
	return n
}

// Options are what a document does not say. The formats have defaults.
type Options struct {
	Time   Meaning       // of timestamps that do not say what they mean
	Period time.Duration // of values whose document does not say it
	Zone   *time.Location
	Table  *Table // of the sites; may be nil

	// Modified is when the document was published according to its server. It dates documents that
	// have no date. After is the newest time in the previous document. It decides which of the two
	// hours a local time belongs to when daylight saving time ends. Both may be zero.
	Modified, After time.Time

	Mapping   *Mapping              // of the format rows
	MinusOne  bool                  // a speed of -1 means that no vehicle passed
	Sentinels map[Measure][]float64 // numbers that stand for no value; negative ones always do
}

// Format is a format, or a variant with defaults of its own.
type Format struct {
	Name     string
	marks    []string // see Guess
	Defaults Options
	zone     string // of local times, unless the options have one
	parse    func(*parser, io.Reader) error
}

// Formats lists all formats.
func Formats() []Format { return formats }

// Lookup returns the format with the name.
func Lookup(name string) (Format, bool) {
	for _, f := range formats {
		if f.Name == name {
			return f, true
		}
	}
	return Format{}, false
}

// Parse reads a document. It returns an error if the document is incomplete or not of the format;
// what was read before may have been passed to sink.
func (f Format) Parse(r io.Reader, o Options, sink Sink) (Summary, error) {
	p := &parser{Options: o, sink: sink, codes: map[codeKey]string{}}
	if p.Zone == nil && f.zone != "" {
		zone, err := time.LoadLocation(f.zone)
		if err != nil {
			return p.Summary, fmt.Errorf("cannot load the time zone of %s: %w", f.Name, err)
		}
		p.Zone = zone
	}
	in := bufio.NewReader(r)
	head, _ := in.Peek(64) // the parser reports the error
	head = bytes.TrimLeft(bytes.TrimPrefix(head, []byte("\xEF\xBB\xBF")), " \t\r\n")
	if doctype := "<!DOCTYPE html"; len(head) >= len(doctype) && strings.EqualFold(string(head[:len(doctype)]), doctype) {
		return p.Summary, fmt.Errorf("cannot read the document as %s: %w", f.Name, errHTML)
	}
	if err := cmp.Or(f.parse(p, in), p.err); err != nil {
		return p.Summary, fmt.Errorf("cannot read the document as %s: %w", f.Name, err)
	}
	return p.Summary, nil
}

// parser is the state that all formats share: the values of the current site, and what was counted.
type parser struct {
	Options
	Summary
	sink   Sink
	values []value // of the current site
	rows   []Row   // the same, for the sink
	codes  map[codeKey]string
	twins  map[twinKey]int
	last   parsed
	err    error // the first one of the sink or of a bound, which ends the document
}

// stop ends the document if err is not nil.
func (p *parser) stop(err error) {
	if p.err == nil {
		p.err = err
	}
}

// site counts a site and passes it on.
func (p *parser) site(s *Site) {
	if p.err != nil {
		return
	}
	p.Listed++
	if s.Lon == s.Lon { // not NaN
		p.Positions++
	}
	if p.sink.Site != nil {
		p.stop(p.sink.Site(s))
	}
}

// checkPosition removes a position that is not valid.
func (s *Site) checkPosition() {
	if !validPosition(s.Lon, s.Lat) {
		s.Lon, s.Lat = math.NaN(), math.NaN()
	}
}

// walk reads an XML document that must contain an element with one of the names. It calls start and
// end for each element. Both may be called before it is known whether the document is the right
// one.
func (p *parser) walk(r io.Reader, names []string, start, end func(*xmlstream.Reader)) error {
	x := xmlstream.NewReader(r)
	found := false
	root := ""
	for {
		event, err := x.Next()
		switch {
		case p.err != nil:
			return p.err
		case errors.Is(err, io.EOF) && !found:
			return fmt.Errorf("it has a root element <%.64s>, but no element <%s>", root, names[0])
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && root == "html":
			return errHTML
		case err != nil:
			return err
		case event == xmlstream.End:
			end(x)
		default:
			for i := 0; i < len(names) && !found; i++ {
				found = string(x.Name()) == names[i]
			}
			if root == "" {
				if root = string(x.Name()); bytes.EqualFold(x.Name(), []byte("html")) {
					return errHTML
				}
			}
			start(x)
		}
	}
}

var errHTML = errors.New("it is an HTML page; check the address and the credentials")
