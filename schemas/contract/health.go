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
}

// HealthStates are the states of detectors, as the archive names them.
var HealthStates = []HealthState{
	{"silent", "no measurement for half an hour, or for two intervals of the detector if these are longer", "no power or no connection"},
	{"feed", "a fifth of the detectors stopped together", "the sender or its source has stopped"},
	{"few", "less than half of the usual number of measurements in three hours", "an unstable connection"},
	{"constant", "all values are equal for longer than chance allows at these hours", "the sensor or its controller hangs"},
	{"zero", "no vehicle and no speed for longer than chance allows at these hours", "the sensor does not detect"},
	{"no_vehicles", "no vehicle for longer than chance allows at these hours, but a speed", "the last speed is carried forward"},
	{"impossible", "an occupancy without vehicles, or vehicles without an occupancy, for two hours", "a wrong threshold, or a damaged loop"},
	{"range", "a value is negative, impossibly high, or more than twice the highest of 28 days", "a wrong unit, or sums sent as rates"},
	{"level", "a day is far from usual for these hours, compared with the neighbours", "double counting, or a lane was closed or moved"},
	{"drift", "three days are more than a tenth from usual in the same direction, compared with the neighbours", "the sensor's calibration"},
	{"swapped", "two detectors of a street follow each other's daily curve", "their cables or codes were exchanged"},
	{"clock", "the daily curve is shifted by whole hours", "the controller's clock or time zone"},
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
