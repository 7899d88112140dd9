package forecasts

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	pb "trafficd/schemas/proto/trafficd/v1"
)

// Bounds of what is believed. The specification gives no units: they are wide
// enough for km/h and for vehicles an hour on the widest road.
const (
	MaxSpeed = 500.0
	MaxFlow  = 1_000_000.0

	maxPeriods = 10_000
	maxCode    = 4096 // bytes of an openLRcode
)

// Remarks are the faults of a record that did not cost it its place.
type Remarks struct {
	Count int
	First error // nil if Count is 0
}

func (r *Remarks) add(err error) {
	if r.Count++; r.First == nil {
		r.First = err
	}
}

// Normalise brings f into the form in which a layer takes it: times in UTC, in
// whole seconds with Z; usable periods only, each once, sorted by start and
// end; no timezone. The table of the package comment is what it does. With an
// error no part of f can be used, and what it holds then is not defined.
func Normalise(f *pb.StreetForecast) (Remarks, error) {
	var remarks Remarks
	if err := checkStreet(f); err != nil {
		return remarks, err
	}
	if !isBase64(f.OpenLRcode) {
		remarks.add(fmt.Errorf("openLRcode %.64q is no base64", f.OpenLRcode))
	}
	had := len(f.Forecast)
	f.Forecast = normalisePeriods(f.Forecast, &remarks)
	if had > 0 && len(f.Forecast) == 0 {
		return remarks, fmt.Errorf("none of its %d periods can be used: %w", had, remarks.First)
	}
	return remarks, nil
}

// Check tells why f is not in the form that [Normalise] brings it into; f is
// not changed. An openLRcode that is no base64 is no reason.
func Check(f *pb.StreetForecast) error {
	if f == nil {
		return errNoForecast
	}
	normal := proto.CloneOf(f)
	remarks, err := Normalise(normal)
	switch {
	case err != nil:
		return err
	case proto.Equal(f, normal):
		return nil
	case remarks.Count > 0 && len(normal.Forecast) != len(f.Forecast):
		return remarks.First
	}
	return errors.New("not in normal form: times in UTC, whole seconds with Z; periods sorted; unusable numbers 0; no timezone")
}

var errNoForecast = errors.New("there is no forecast in it")

func checkStreet(f *pb.StreetForecast) error {
	switch {
	case f == nil:
		return errNoForecast
	case f.Street == 0 && f.Fromnode == 0:
		return errors.New("street and fromnode are both 0 or missing: it is nobody's forecast")
	case len(f.OpenLRcode) > maxCode:
		return fmt.Errorf("openLRcode has %d bytes, want %d or fewer", len(f.OpenLRcode), maxCode)
	case !utf8.ValidString(f.OpenLRcode):
		return fmt.Errorf("openLRcode %.64q is no UTF-8", f.OpenLRcode)
	case len(f.Forecast) > maxPeriods:
		return fmt.Errorf("it has %d periods, want %d or fewer", len(f.Forecast), maxPeriods)
	}
	return nil
}

// isBase64 says yes to no code at all as well: streets may have none.
func isBase64(code string) bool {
	_, err := base64.StdEncoding.Strict().DecodeString(code)
	return err == nil && !strings.ContainsAny(code, "\r\n") // which Go's decoder skips
}

func normalisePeriods(periods []*pb.ForecastPeriod, remarks *Remarks) []*pb.ForecastPeriod {
	good := periods[:0]
	for i, p := range periods {
		if err := normalisePeriod(p, remarks); err != nil {
			remarks.add(fmt.Errorf("period %d: %w", i, err))
			continue
		}
		good = append(good, p)
	}
	// All times have one length now, so that their text sorts as they do.
	slices.SortStableFunc(good, comparePeriods)
	return lastOfEach(good, remarks)
}

func comparePeriods(a, b *pb.ForecastPeriod) int {
	if c := strings.Compare(a.Start, b.Start); c != 0 {
		return c
	}
	return strings.Compare(a.End, b.End)
}

// lastOfEach leaves the last of neighbours with the same start and end.
func lastOfEach(sorted []*pb.ForecastPeriod, remarks *Remarks) []*pb.ForecastPeriod {
	kept := sorted[:0]
	for _, p := range sorted {
		if n := len(kept); n > 0 && comparePeriods(kept[n-1], p) == 0 {
			remarks.add(fmt.Errorf("the period from %s to %s stands more than once", p.Start, p.End))
			kept[n-1] = p
			continue
		}
		kept = append(kept, p)
	}
	return kept
}

func normalisePeriod(p *pb.ForecastPeriod, remarks *Remarks) error {
	if p == nil {
		return errors.New("it is null")
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
	return normaliseNumbers(p, remarks)
}

func normaliseNumbers(p *pb.ForecastPeriod, remarks *Remarks) error {
	if !within(p.Speed, MaxSpeed) {
		err := fmt.Errorf("speed %g is not from 0 to %g", p.Speed, MaxSpeed)
		if p.SpeedValid {
			return err
		}
		p.Speed = 0
		remarks.add(err)
	}
	if !within(p.Flow, MaxFlow) {
		remarks.add(fmt.Errorf("flow %g is not from 0 to %g", p.Flow, MaxFlow))
		p.Flow, p.FlowValid = 0, false
	}
	p.Speed, p.Flow = p.Speed+0, p.Flow+0 // -0 becomes 0
	return nil
}

// within is false for NaN, too.
func within(v, limit float64) bool { return v >= 0 && v <= limit }
