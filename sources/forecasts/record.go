package forecasts

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"trafficd/schemas/contract"
	pb "trafficd/schemas/proto/trafficd/v1"
)

// Bounds of plausible values. The contract defines no units, so the bounds are wide enough for km/h
// and for the vehicles per hour on the widest road.
const (
	MaxSpeed = 500.0 // default of the setting max_speed
	// HighestMaxSpeed is the maximum of the setting max_speed.
	HighestMaxSpeed = 1e6

	MaxFlow = 1_000_000.0

	maxPeriods = 10_000
	maxCode    = 4096 // maximum size of an openLRcode, in bytes

	maxLength = 1_000_000.0 // of a street, in metres
)

// basisPattern is what a basis may be. It needs no escaping in JSON.
var basisPattern = regexp.MustCompile(`^[a-z_]{1,32}$`)

// Remarks are the defects in a record that is not skipped.
type Remarks struct {
	Count int
	First error // nil if Count is 0
}

func (r *Remarks) add(err error) {
	if r.Count++; r.First == nil {
		r.First = err
	}
}

// Normalise normalises f: times are in UTC and whole seconds, with Z; only usable periods remain,
// without duplicates, sorted by start and end; speed_valid is set; timezone is not. Contract 2 and
// the package comment list the rules. Periods with a valid speed over maxSpeed are unusable. After
// an error, the content of f is undefined.
func Normalise(f *pb.StreetForecast, maxSpeed float64) (Remarks, error) {
	var remarks Remarks
	if err := checkStreet(f); err != nil {
		return remarks, err
	}
	if !isBase64(f.OpenLRcode) {
		remarks.add(fmt.Errorf("openLRcode %.64q is not base64", f.OpenLRcode))
	}
	if f.Length != nil && !(*f.Length > 0 && *f.Length <= maxLength) {
		remarks.add(fmt.Errorf("length %g is not above 0 and at most %g", *f.Length, maxLength))
		f.Length = nil
	}
	if f.FreeFlowSpeed != nil && !(*f.FreeFlowSpeed > 0 && *f.FreeFlowSpeed <= maxSpeed) {
		remarks.add(fmt.Errorf("free_flow_speed %g is not above 0 and at most %g", *f.FreeFlowSpeed, maxSpeed))
		f.FreeFlowSpeed = nil
	}
	before := len(f.Forecast)
	f.Forecast = normalisePeriods(f.Forecast, maxSpeed, &remarks)
	if before > 0 && len(f.Forecast) == 0 {
		return remarks, fmt.Errorf("none of the %d periods is usable: %w", before, remarks.First)
	}
	return remarks, nil
}

var errNoForecast = errors.New("no forecast")

func checkStreet(f *pb.StreetForecast) error {
	switch {
	case f == nil:
		return errNoForecast
	case f.Street == 0 && f.Fromnode == 0:
		return errors.New("missing street identity: street and fromnode are both 0")
	case len(f.OpenLRcode) > maxCode:
		return fmt.Errorf("openLRcode has %d bytes, must have at most %d", len(f.OpenLRcode), maxCode)
	case !utf8.ValidString(f.OpenLRcode):
		return fmt.Errorf("openLRcode %.64q is not UTF-8", f.OpenLRcode)
	}
	return checkPeriods(len(f.Forecast))
}

func checkPeriods(n int) error {
	if n > maxPeriods {
		return fmt.Errorf("forecast has %d periods, must have at most %d", n, maxPeriods)
	}
	return nil
}

func isBase64(code string) bool {
	_, err := base64.StdEncoding.Strict().DecodeString(code)
	return err == nil && !strings.ContainsAny(code, "\r\n") // Go's decoder skips them
}

func normalisePeriods(periods []*pb.ForecastPeriod, maxSpeed float64, remarks *Remarks) []*pb.ForecastPeriod {
	good := periods[:0]
	for i, p := range periods {
		if err := normalisePeriod(p, maxSpeed, remarks); err != nil {
			remarks.add(fmt.Errorf("period %d: %w", i, err))
			continue
		}
		good = append(good, p)
	}
	// Normalised times sort chronologically as strings.
	slices.SortStableFunc(good, comparePeriods)
	kept := good[:0]
	for _, p := range good {
		if n := len(kept); n > 0 && comparePeriods(kept[n-1], p) == 0 {
			remarks.add(fmt.Errorf("duplicate period from %s to %s", p.Start, p.End))
			kept[n-1] = p
			continue
		}
		kept = append(kept, p)
	}
	return kept
}

func comparePeriods(a, b *pb.ForecastPeriod) int {
	return cmp.Or(strings.Compare(a.Start, b.Start), strings.Compare(a.End, b.End))
}

func normalisePeriod(p *pb.ForecastPeriod, maxSpeed float64, remarks *Remarks) error {
	if p == nil {
		return errors.New("must not be null")
	}
	var err error
	if p.Start, err = normaliseTime(p.Start); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	if p.End, err = normaliseTime(p.End); err != nil {
		return fmt.Errorf("end: %w", err)
	}
	if p.End <= p.Start {
		return fmt.Errorf("end %s is not after start %s", p.End, p.Start)
	}
	p.Timezone = ""
	if p.SpeedValid == nil {
		p.SpeedValid = proto.Bool(true)
	}
	if !within(p.Speed, maxSpeed) {
		err := fmt.Errorf("speed %g is not between 0 and %g", p.Speed, maxSpeed)
		if *p.SpeedValid {
			return err
		}
		p.Speed = 0
		remarks.add(err)
	}
	if !within(p.Flow, MaxFlow) {
		remarks.add(fmt.Errorf("flow %g is not between 0 and %g", p.Flow, MaxFlow))
		p.Flow, p.FlowValid = 0, false
	}
	p.Speed, p.Flow = p.Speed+0, p.Flow+0 // -0 becomes 0
	normaliseOptional(p, maxSpeed, remarks)
	return nil
}

// normaliseOptional removes optional members that are not plausible. The speed may be outside of
// the bounds, because feeds may round it.
func normaliseOptional(p *pb.ForecastPeriod, maxSpeed float64, remarks *Remarks) {
	for _, bound := range []**float64{&p.SpeedLow, &p.SpeedHigh} {
		if *bound == nil {
			continue
		}
		if !within(**bound, maxSpeed) {
			remarks.add(fmt.Errorf("the bound %g of the speed is not between 0 and %g", **bound, maxSpeed))
			*bound = nil
			continue
		}
		**bound += 0 // -0 becomes 0
	}
	if p.SpeedLow != nil && p.SpeedHigh != nil && *p.SpeedLow > *p.SpeedHigh {
		remarks.add(fmt.Errorf("speed_low %g is above speed_high %g", *p.SpeedLow, *p.SpeedHigh))
		p.SpeedLow, p.SpeedHigh = nil, nil
	}
	if p.Basis != nil && !basisPattern.MatchString(*p.Basis) {
		remarks.add(fmt.Errorf("basis %.64q must have 1 to 32 of the characters a to z and _", *p.Basis))
		p.Basis = nil
	}
}

// within reports whether v is between 0 and limit; NaN is not.
func within(v, limit float64) bool { return v >= 0 && v <= limit }

// The range of years that every part of the system can represent (contract 1.2, rule 9).
const (
	firstYear = 1970
	lastYear  = 2261
)

// maxTime is the maximum length of a time in bytes, enough for nine fractional digits and a zone.
const maxTime = 40

// normaliseTime converts an ISO 8601 date-time with a zone to the format in contract 2. Seconds are
// optional, the decimal separator may be a comma, and T and Z may be lower case.
func normaliseTime(text string) (string, error) {
	if len(text) == len("2006-01-02T15:04:05Z") { // most times already have the format of contract 2
		if t, err := contract.ParseForecastTime(text); err == nil {
			return text, checkYear(t)
		}
	}
	t, err := parseTime(text)
	if err != nil {
		return "", fmt.Errorf("%.64q is not a date-time like 2026-11-20T18:15:00Z", text)
	}
	return formatTime(t)
}

func formatTime(t time.Time) (string, error) { return contract.FormatForecastTime(t), checkYear(t) }

func checkYear(t time.Time) error {
	if year := t.UTC().Year(); year < firstYear || year > lastYear {
		return fmt.Errorf("year %d is not between %d and %d", year, firstYear, lastYear)
	}
	return nil
}

func parseTime(text string) (t time.Time, err error) {
	if len(text) > maxTime {
		return t, fmt.Errorf("longer than %d bytes", maxTime)
	}
	text = strings.Replace(strings.ToUpper(text), ",", ".", 1)
	const minutes = len("2006-01-02T15:04")
	if len(text) > minutes && strings.IndexByte("Z+-", text[minutes]) >= 0 {
		text = text[:minutes] + ":00" + text[minutes:]
	}
	if len(text) <= minutes || text[minutes-3] != ':' || text[minutes] != ':' {
		return t, errors.New("the hour must have two digits") // time.Parse accepts one
	}
	t, err = time.Parse(time.RFC3339, text)
	if _, zone := t.Zone(); err == nil && max(zone, -zone) >= 24*60*60 {
		err = errors.New("the zone must be within a day of UTC") // time.Parse accepts more
	}
	return t, err
}
