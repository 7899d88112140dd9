package daemontest

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// BatchLimit is how many items of a batch are examined.
const BatchLimit = 14_000

var (
	required  = []string{"detectorCode", "measureTypeCode", "timestampFrom", "timestampTo", "value"}
	known     = append(required[:len(required):len(required)], "quality", "linkId")
	typeCode  = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)
	timestamp = regexp.MustCompile(`^\d{4}-\d\d-\d\d[Tt]\d\d:\d\d(:\d\d([.,]\d{1,9})?)?([Zz]|[+-]00(:00)?)$`)
)

// Judge applies the rules of contract 1.2 in their order and gives the code
// of the first that the item breaks, "" if there is none, and the field.
func (d *Daemon) Judge(index int, item json.RawMessage) (code, field string) {
	if index >= BatchLimit {
		return "BATCH_LIMIT_EXCEEDED", ""
	}
	members, twice, ok := membersOf(item)
	if !ok {
		return "INVALID_TYPE", ""
	}
	if twice != "" {
		return "DUPLICATE_FIELD", twice
	}
	if present(members["linkId"]) {
		return "RESERVED_FIELD", "linkId"
	}
	for _, name := range required {
		if !present(members[name]) {
			return "MISSING_FIELD", name
		}
	}
	for _, name := range append(required[:len(required):len(required)], "quality") {
		if v := members[name]; present(v) && (isOther(v) || (v[0] == '"') == (name == "value" || name == "quality")) {
			return "INVALID_TYPE", name
		}
	}
	return d.judgeValues(members)
}

func (d *Daemon) judgeValues(m map[string]json.RawMessage) (code, field string) {
	if detector := text(m["detectorCode"]); len(detector) > 256 || (d.Known != nil && !d.Known[detector]) {
		return "UNKNOWN_DETECTOR", "detectorCode"
	}
	if !typeCode.MatchString(text(m["measureTypeCode"])) {
		return "UNKNOWN_MEASURE_TYPE", "measureTypeCode"
	}
	from, ok := instant(text(m["timestampFrom"]))
	if !ok {
		return "INVALID_TIMESTAMP", "timestampFrom"
	}
	to, ok := instant(text(m["timestampTo"]))
	switch {
	case !ok:
		return "INVALID_TIMESTAMP", "timestampTo"
	case to.Before(from):
		return "INVALID_INTERVAL", "timestampTo"
	case to.After(time.Now().AddDate(100, 0, 0)): // generous: the tests' data is of any year
		return "TIMESTAMP_IN_FUTURE", "timestampTo"
	case !finite(m["value"]):
		return "INVALID_VALUE", "value"
	case present(m["quality"]) && !finite(m["quality"]):
		return "INVALID_QUALITY", "quality"
	}
	return "", ""
}

// membersOf gives the members of an object, and one that stands twice.
func membersOf(item json.RawMessage) (members map[string]json.RawMessage, twice string, ok bool) {
	in := json.NewDecoder(bytes.NewReader(item))
	if start, err := in.Token(); err != nil || start != json.Delim('{') {
		return nil, "", false
	}
	members = map[string]json.RawMessage{}
	for in.More() {
		name, err := in.Token()
		var value json.RawMessage
		if err = errors.Join(err, in.Decode(&value)); err != nil {
			return nil, "", false
		}
		key := name.(string)
		if _, again := members[key]; again && slices.Contains(known, key) {
			twice = key
		}
		members[key] = value
	}
	return members, twice, true
}

func present(v json.RawMessage) bool { return v != nil && string(v) != "null" }

// isOther tells whether a value is there and neither a text nor a number.
func isOther(v json.RawMessage) bool {
	return present(v) && v[0] != '"' && v[0] != '-' && (v[0] < '0' || v[0] > '9')
}

func text(v json.RawMessage) (s string) {
	json.Unmarshal(v, &s)
	return s
}

func finite(v json.RawMessage) bool {
	f, err := strconv.ParseFloat(string(v), 64)
	return err == nil && !math.IsInf(f, 0)
}

func instant(s string) (time.Time, bool) {
	if !timestamp.MatchString(s) {
		return time.Time{}, false
	}
	s = strings.ToUpper(strings.Replace(s, ",", ".", 1))
	for _, layout := range []string{"2006-01-02T15:04:05Z07:00", "2006-01-02T15:04Z07:00", "2006-01-02T15:04:05Z07", "2006-01-02T15:04Z07"} {
		if t, err := time.Parse(layout, s); err == nil && t.Year() >= 1970 && t.Year() <= 2261 {
			return t, true
		}
	}
	return time.Time{}, false
}
