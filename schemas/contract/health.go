package contract

import "time"

// Health is the state of the detectors of a product instance whose measurements mislead (contract
// 1.8).
type Health struct {
	ProductInstance string         `json:"productInstance"`
	CheckedAt       time.Time      `json:"checkedAt"` // time of the latest test
	Count           int            `json:"count"`     // of all entries, also those that Detectors does not list
	Detectors       []SickDetector `json:"detectors"`
}

// SickDetector is a state of a detector.
type SickDetector struct {
	DetectorCode    string    `json:"detectorCode"` // empty: of many detectors
	MeasureTypeCode string    `json:"measureTypeCode"`
	State           string    `json:"state"` // a name of HealthStates
	Since           time.Time `json:"since"` // start of the first measurements that fail the test
	Last            time.Time `json:"last"`  // time of the latest test
	Rule            string    `json:"rule"`
	Reason          string    `json:"reason"` // the numbers with which the rule was broken
}

// HealthState is a test of the detectors' measurements.
type HealthState struct {
	Name, Rule string
	Cause      string // what it usually is
	flags      int
}

const (
	hourly  = 1 << iota // needs a complete hour, others are tested in each interval
	refused             // the values of the detector are worthless
	off                 // by default: misses too many sick detectors, as measured in schemas/clickhouse/README.md
)

// Hourly reports whether detectors are tested each hour only, not in each interval.
func (s HealthState) Hourly() bool { return s.flags&hourly != 0 }

// Refused reports whether forecasts do not use the values of a detector in the state.
func (s HealthState) Refused() bool { return s.flags&refused != 0 }

// Off reports whether detectors are tested only if model.detector_tests of the forecaster names the
// state.
func (s HealthState) Off() bool { return s.flags&off != 0 }

// HealthStates are the states of detectors, as the archive names them, in the order of their tests.
var HealthStates = []HealthState{
	{
		"silent", "no measurement for half an hour, or for two intervals of the detector if these are longer",
		"no power or no connection", 0,
	},
	{"feed", "a fifth of the detectors stopped together", "the sender or its source has stopped", 0},
	{"few", "less than half of the usual number of measurements in three hours", "an unstable connection", hourly},
	{
		"constant", "all values are equal, and not 0, for longer than occurs once in a million at these hours",
		"the sensor or its controller hangs", hourly | refused,
	},
	{
		"zero", "no vehicle and no speed for longer than occurs once in a million at these hours",
		"the sensor does not detect", hourly | refused,
	},
	{
		"no_vehicles", "a speed, but no vehicle for longer than occurs once in a million at these hours",
		"the last speed is carried forward", hourly | refused,
	},
	{
		"impossible", "an occupancy without vehicles, or vehicles without an occupancy, for two hours",
		"a wrong threshold, or a damaged loop", hourly | refused,
	},
	{
		"range", "a value is negative, a speed over 250, an occupancy over 100, or any over twice the highest of 28 days",
		"a wrong unit, or sums sent as rates", hourly | refused,
	},
	{
		"level", "a day is far from usual for these hours, compared with the neighbours",
		"double counting, or a lane was closed or moved", hourly | refused | off,
	},
	{
		"drift", "three days are over a tenth off in the same direction, compared with the neighbours",
		"the sensor's calibration", hourly | refused | off,
	},
	{
		"swapped", "two detectors of a street follow each other's daily curve",
		"their cables or codes were exchanged", hourly | refused | off,
	},
	{"clock", "the daily curve is shifted by whole hours", "the controller's clock or time zone", hourly | refused | off},
}

// Description returns the rule, and that the test is off by default if it is.
func (s HealthState) Description() string {
	if s.Off() {
		return s.Rule + " (off by default)"
	}
	return s.Rule
}

// OptionalHealthStates returns the names of the states that are off by default.
func OptionalHealthStates() (names []string) {
	for _, s := range HealthStates {
		if s.Off() {
			names = append(names, s.Name)
		}
	}
	return names
}

// HealthRule returns the rule of a state, or "" if it is unknown.
func HealthRule(state string) string {
	for _, s := range HealthStates {
		if s.Name == state {
			return s.Rule
		}
	}
	return ""
}
