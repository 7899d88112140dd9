package pipeline

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/needs"
	"trafficd/pipeline/batch"
	"trafficd/pipeline/validate"
	"trafficd/schemas/contract"
)

// The oracle is a second, simple implementation of the rules of contract 1.2, based on
// encoding/json.

// verdict is a rejection.
type verdict struct{ code, parameter string }

// wanted is an accepted item.
type wanted struct {
	index          int
	detector, kind string
	from, to       time.Time
	value          float64
	quality        *float64
}

type oracle struct {
	limit   int
	codes   map[string]bool
	allowed map[string][2]float64 // nil: any
	now     time.Time
	seen    map[contract.Code]bool
}

// expect returns the rejections by index and the accepted items.
func (o oracle) expect(t *testing.T, body string) (items int, rejected map[int]verdict, accepted []wanted) {
	var root struct {
		Measurements []json.RawMessage `json:"measurements"`
	}
	require.NoError(t, json.Unmarshal([]byte(body), &root))
	rejected = map[int]verdict{}
	for i, raw := range root.Measurements {
		path := fmt.Sprintf("measurements[%d]", i)
		code, field, w := o.item(i, raw)
		if code == "" {
			accepted = append(accepted, w)
			continue
		}
		if field != "" {
			path += "." + field
		}
		rejected[i] = verdict{code, path}
	}
	return len(root.Measurements), rejected, accepted
}

var members = []string{"detectorCode", "measureTypeCode", "timestampFrom", "timestampTo", "value", "quality", "linkId"}

func (o oracle) item(i int, raw json.RawMessage) (code, field string, w wanted) {
	if i >= o.limit {
		return "BATCH_LIMIT_EXCEEDED", "", w
	}
	values, count := parse(raw)
	if values == nil {
		return "INVALID_TYPE", "", w
	}
	return o.check(i, values, count)
}

// parse returns the last value of each member and how often it occurs, or nil unless raw is an
// object.
func parse(raw json.RawMessage) (map[string]json.RawMessage, map[string]int) {
	if raw[0] != '{' {
		return nil, nil
	}
	values, count := map[string]json.RawMessage{}, map[string]int{}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.Token()
	for d.More() {
		name, _ := d.Token()
		var v json.RawMessage
		if err := d.Decode(&v); err != nil {
			panic(err)
		}
		values[name.(string)] = v
		count[name.(string)]++
	}
	return values, count
}

// all returns the errors of an item that are reported if each is corrected once it is known.
func (o oracle) all(i int, raw json.RawMessage) (list []verdict) {
	values, count := parse(raw)
	code, field, _ := o.item(i, raw)
	for code != "" {
		path := fmt.Sprintf("measurements[%d]", i)
		if field == "" {
			return append(list, verdict{code, path})
		}
		list = append(list, verdict{code, path + "." + field})
		count[field] = 1
		switch field {
		case "detectorCode":
			values[field] = []byte(`"D1"`)
		case "measureTypeCode":
			values[field] = []byte(`"flow"`) // has no range
		case "timestampFrom", "timestampTo":
			count[corrected] = 1
			if code != "INVALID_INTERVAL" {
				values[field] = []byte(`"1970-01-01T00:00Z"`)
			}
		case "value":
			values[field] = []byte("1")
		default:
			delete(values, field)
		}
		code, field, _ = o.check(i, values, count)
	}
	return list
}

// corrected is the member that all adds to an item whose interval has been corrected.
const corrected = "interval"

// check applies the rules for the members of an item.
func (o oracle) check(i int, values map[string]json.RawMessage, count map[string]int) (code, field string, w wanted) {
	for _, m := range members {
		if count[m] > 1 {
			return "DUPLICATE_FIELD", m, w
		}
	}
	present := func(m string) bool { return values[m] != nil && string(values[m]) != "null" }
	if present("linkId") {
		return "RESERVED_FIELD", "linkId", w
	}
	for _, m := range members[:5] {
		if !present(m) {
			return "MISSING_FIELD", m, w
		}
	}
	for _, m := range members[:6] {
		isNumber := m == "value" || m == "quality"
		if first := values[m]; present(m) && (isNumber && !strings.ContainsRune("-0123456789", rune(first[0])) || !isNumber && first[0] != '"') {
			return "INVALID_TYPE", m, w
		}
	}
	text := func(m string) (s string) { json.Unmarshal(values[m], &s); return }
	w.index, w.detector, w.kind = i, text("detectorCode"), text("measureTypeCode")
	if !o.codes[w.detector] {
		return "UNKNOWN_DETECTOR", "detectorCode", w
	}
	limits, ok := [2]float64{-math.MaxFloat64, math.MaxFloat64}, regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`).MatchString(w.kind)
	if o.allowed != nil {
		well := ok
		limits, ok = o.allowed[w.kind]
		for n := len(w.kind); n >= 0 && !ok; n-- { // the longest beginning
			limits, ok = o.allowed[w.kind[:n]+"*"]
		}
		ok = ok && well
	}
	if !ok {
		return "UNKNOWN_MEASURE_TYPE", "measureTypeCode", w
	}
	var okFrom, okTo bool
	w.from, okFrom = timestamp(text("timestampFrom"))
	w.to, okTo = timestamp(text("timestampTo"))
	switch {
	case !okFrom:
		return "INVALID_TIMESTAMP", "timestampFrom", w
	case !okTo:
		return "INVALID_TIMESTAMP", "timestampTo", w
	case w.to.Before(w.from) && count[corrected] == 0:
		return "INVALID_INTERVAL", "timestampTo", w
	case w.to.After(o.now.Add(time.Hour)):
		return "TIMESTAMP_IN_FUTURE", "timestampTo", w
	}
	w.value, _ = strconv.ParseFloat(string(values["value"]), 64)
	if math.IsInf(w.value, 0) || w.value < limits[0] || w.value > limits[1] {
		return "INVALID_VALUE", "value", w
	}
	if present("quality") {
		q, _ := strconv.ParseFloat(string(values["quality"]), 64)
		if w.quality = &q; math.IsInf(q, 0) {
			return "INVALID_QUALITY", "quality", w
		}
	}
	return "", "", w
}

var isoUTC = regexp.MustCompile(`^(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?(?:[Zz]|[+-]00:00|[+-]00)$`)

func timestamp(s string) (time.Time, bool) {
	m := isoUTC.FindStringSubmatch(s)
	if m == nil {
		return time.Time{}, false
	}
	n := func(i int) int { v, _ := strconv.Atoi(m[i]); return v }
	nanos, _ := strconv.Atoi((m[7] + "000000000")[:9])
	leap := n(6) == 60
	if leap && (n(4) != 23 || n(5) != 59) || n(6) > 60 {
		return time.Time{}, false
	}
	sec := n(6)
	if leap {
		sec = 59
	}
	at := time.Date(n(1), time.Month(n(2)), n(3), n(4), n(5), sec, nanos, time.UTC)
	if at.Year() != n(1) || int(at.Month()) != n(2) || at.Day() != n(3) || at.Hour() != n(4) || at.Minute() != n(5) || n(1) < 1970 || n(1) > 2261 {
		return time.Time{}, false
	}
	if leap {
		at = at.Add(time.Second)
	}
	return at, true
}

// author generates random batches with all kinds of errors.
type author struct {
	*rand.Rand
	errors int // one in this many items is invalid
}

func (a author) pick(list ...string) string { return list[a.IntN(len(list))] }

func (a author) text(s string) string {
	if a.IntN(40) > 0 || s == "" {
		return `"` + s + `"`
	}
	var b strings.Builder // the same, escaped
	for _, u := range utf16.Encode([]rune(s)) {
		fmt.Fprintf(&b, `\u%04x`, u)
	}
	return `"` + b.String() + `"`
}

func (a author) item() string {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(a.IntN(5000)) * time.Minute)
	code := fmt.Sprintf("D%d", a.IntN(300))
	if a.IntN(50) == 0 {
		code = a.pick("Grün-7", "日本", "𝄞")
	}
	m := map[string]string{
		"detectorCode": a.text(code), "measureTypeCode": a.text(a.pick("speed", "flow", "speed")),
		"timestampFrom": a.text(at.Format(time.RFC3339)), "timestampTo": a.text(at.Add(5 * time.Minute).Format(time.RFC3339)),
		"value": a.pick("1", "50.5", "-3.25", "0.1", "1e2", "50.20000076293945"),
	}
	if a.IntN(2) == 0 {
		m["quality"] = a.pick("null", "1", "0.95")
	}
	if a.IntN(10) == 0 {
		m["linkId"] = "null"
	}
	if a.IntN(20) == 0 {
		m[a.pick("vendor", "Value", "detectorcode")] = a.pick(`{"value":[1,{"linkId":2}]}`, `true`, `"x\"y"`, `-1.5`, `[]`)
	}
	duplicate := ""
	if a.IntN(a.errors) == 0 {
		for range 1 + a.IntN(3) {
			if spoil := spoilers[a.IntN(len(spoilers))]; spoil != nil {
				spoil(a, m)
			} else {
				duplicate = a.pick(members...)
			}
		}
	}
	var list []string
	for _, name := range members {
		if v, ok := m[name]; ok {
			list = append(list, `"`+name+`":`+v)
		}
		if name == duplicate {
			list = append(list, a.pick(`"`+name+`":null`, `"`+name+`":1`, `"\u00`+fmt.Sprintf("%02x", name[0])+name[1:]+`":"x"`))
		}
	}
	for name, v := range m {
		if !strings.Contains(strings.Join(members, " ")+" ", name+" ") {
			list = append(list, `"`+name+`":`+v)
		}
	}
	if a.IntN(8) == 0 {
		a.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	}
	if a.IntN(a.errors*20) == 0 {
		return a.pick("7", `"x"`, "null", "[]", "true", "{}", `[{"value":1}]`)
	}
	return "{" + strings.Join(list, a.pick(",", ",", ", ")) + "}"
}

// invalidTimes contains a few valid ones.
var invalidTimes = []string{
	`"2026-02-30T00:00:00Z"`, `"2026-01-01T00:00:00"`, `"2026-01-01T00:00:00+01:00"`, `"1969-12-31T23:59:59Z"`, `"2262-01-01T00:00Z"`, `"2261-01-01T00:00Z"`, `"2999-01-01T00:00Z"`, `"yesterday"`, `""`,
	`"2016-12-31T23:59:60Z"`, `"2016-12-31T22:59:60Z"`, `"2026-01-01t00:00:00,123456789z"`, `"2026-01-01T00:00-00"`, `"` + strings.Repeat("2", 500) + `"`,
}

// spoilers make an item violate a rule. A nil function asks the caller to add a duplicate member.
var spoilers = []func(a author, m map[string]string){
	nil,
	func(a author, m map[string]string) { m["linkId"] = a.pick(`"L1"`, "0", "{}", "[null]", "false") },
	func(a author, m map[string]string) { delete(m, a.pick(members...)) },
	func(a author, m map[string]string) { m[a.pick(members...)] = "null" },
	func(a author, m map[string]string) {
		m[a.pick(members[:6]...)] = a.pick(`{"a":1}`, "[1]", "true", "false", `"1"`, "12")
	},
	func(a author, m map[string]string) {
		m["detectorCode"] = a.pick(`"unknown"`, `""`, `"D1 "`, `"`+strings.Repeat("D", 257)+`"`, `"d1"`, `"\u0000"`)
	},
	func(a author, m map[string]string) {
		m["measureTypeCode"] = a.pick(`""`, `"sp eed"`, `"`+strings.Repeat("s", 65)+`"`, `"`+strings.Repeat("s", 64)+`"`, `"tempo"`, `"größe"`, `"a/b"`)
	},
	func(a author, m map[string]string) { m["timestampFrom"] = a.pick(invalidTimes...) },
	func(a author, m map[string]string) { m["timestampTo"] = a.pick(invalidTimes...) },
	func(_ author, m map[string]string) {
		if from, to := m["timestampFrom"], m["timestampTo"]; from != "" && to != "" {
			m["timestampFrom"], m["timestampTo"] = to, from
		}
	},
	func(a author, m map[string]string) {
		m["value"] = a.pick("1e999", "-1e999", "251", "-1e308", "1e-999", "123456789012345678901234567890")
	},
	func(a author, m map[string]string) { m["quality"] = a.pick("1e999", "-1e400", "5", "-0") },
}

func (a author) batch(items int) string {
	list := make([]string, items)
	for i := range list {
		list[i] = a.item()
	}
	return `{"measurements":[` + strings.Join(list, a.pick(",", ",\n  ")) + `]}`
}

// compare checks the result and the frame of a batch against the oracle, and adds the codes of
// rejected items to o.seen.
func (o oracle) compare(t *testing.T, h *fixture, body string) {
	t.Helper()
	_, before := h.journal.Bounds()
	s, err := h.submit(body, "")
	require.NoError(t, err)
	items, rejected, accepted := o.expect(t, body)
	require.Equal(t, items, s.Result.Items)
	require.Equal(t, len(accepted), s.Result.Accepted)
	require.Equal(t, items, s.Result.Accepted+s.Result.Len())
	last := -1
	for _, x := range s.Result.List {
		require.Greater(t, int(x.Index), last, "ascending")
		last = int(x.Index)
		path := fmt.Sprintf("measurements[%d]", x.Index)
		if x.Field != contract.FieldItem {
			path += "." + x.Field.String()
		}
		require.Equal(t, rejected[last], verdict{x.Code.String(), path}, "item %d", last)
		o.seen[x.Code] = true
	}
	if len(accepted) == 0 {
		return
	}
	_, frame, ok, err := h.journal.Reader(before).TryNext(nil)
	require.NoError(t, err)
	require.True(t, ok)
	var b batch.Batch
	require.NoError(t, batch.DecodeFrame(frame, &b, nil))
	require.Equal(t, len(accepted), b.Rows())
	for i, w := range accepted {
		got := wanted{int(b.Index[i]), string(b.Code(i)), string(b.TypeCode(int(b.Type[i]))), time.Unix(0, b.From[i]).UTC(), time.Unix(0, b.To[i]).UTC(), b.Value[i], nil}
		if b.HasQuality(i) {
			got.quality = &b.Quality[i]
		}
		if fmt.Sprint(w.index, w.detector, w.kind, w.from, w.to, w.value, deref(w.quality)) != fmt.Sprint(got.index, got.detector, got.kind, got.from, got.to, got.value, deref(got.quality)) {
			t.Fatalf("row %d: got %+v, want %+v", i, got, w)
		}
	}
}

func deref(p *float64) any {
	if p == nil {
		return nil
	}
	return *p
}

// TestAgainstTheOracle compares random batches, and checks that each rule rejects some item.
func TestAgainstTheOracle(t *testing.T) {
	codes := map[string]bool{"Grün-7": true, "日本": true, "𝄞": true}
	for i := range 299 {
		codes[fmt.Sprintf("D%d", i)] = true
	}
	list := make([]string, 0, len(codes))
	for c := range codes {
		list = append(list, c)
	}
	lo, hi, seen := -100.0, 250.0, map[contract.Code]bool{}
	rounds := 100
	if needs.Long() {
		rounds = 1000
	}
	const most = math.MaxFloat64
	for i, allowed := range []map[string][2]float64{
		nil, {"speed": {lo, hi}, "flow": {-most, most}}, {"speed": {lo, hi}, "s*": {lo - 1, hi + 1}, "flow*": {-most, most}},
	} {
		h := open(t, t.TempDir(), func(c *Config) {
			for code, limits := range allowed {
				t := validate.MeasureType{Code: code}
				if limits[0] > -math.MaxFloat64 {
					t.Min, t.Max = &limits[0], &limits[1]
				}
				c.Validate.MeasureTypes = append(c.Validate.MeasureTypes, t)
			}
		})
		h.codes["city"] = set(list...)
		o := oracle{limit: h.cfg.Decode.BatchLimit, codes: codes, allowed: allowed, now: time.Now(), seen: seen}
		if i == 0 || needs.Long() {
			o.compare(t, h, author{rand.New(rand.NewPCG(1, 1)), 3}.batch(20_000))
		}
		for n := range uint64(rounds) {
			a := author{rand.New(rand.NewPCG(2, n)), 2 + int(n%30)}
			o.compare(t, h, a.batch(a.IntN(120)))
		}
		h.close()
	}
	for code := range contract.CodeCount {
		require.Equal(t, code.OfItems(), seen[code], "%v: add an input to spoilers", code)
	}
}

var dryRunItems = flag.Int("dry-run-items", 10_000, "number of items that TestDryRun validates")

// TestDryRun compares dry runs with the batches themselves, and all errors of their items with the
// oracle. A dry run leaves no trace.
func TestDryRun(t *testing.T) {
	lo, hi := -100.0, 250.0
	list := []string{"Grün-7", "日本", "𝄞"}
	for i := range 299 {
		list = append(list, fmt.Sprintf("D%d", i))
	}
	codes := map[string]bool{}
	for _, c := range list {
		codes[c] = true
	}
	h := open(t, t.TempDir(), func(c *Config) {
		c.Decode.BatchLimit = 1900
		c.Validate.MeasureTypes = []validate.MeasureType{{Code: "speed", Min: &lo, Max: &hi}, {Code: "flow"}}
	})
	defer h.close()
	h.codes["city"] = set(list...)
	o := oracle{
		limit: h.cfg.Decode.BatchLimit, codes: codes, now: time.Now(),
		allowed: map[string][2]float64{"speed": {lo, hi}, "flow": {-math.MaxFloat64, math.MaxFloat64}},
	}
	tap := h.intake.Tap.Follow(TapFilter{})
	defer tap.Stop()
	dryRun := func(body string, allErrors bool) batch.Result {
		s := &batch.Submission{
			ProductInstance: "city", Client: "city", Body: bytes.NewReader(zipped(body)), ValidateOnly: true, AllErrors: allErrors,
		}
		_, next := h.journal.Bounds()
		stamped := h.intake.clock.stamped
		require.NoError(t, h.intake.Submit(s))
		_, after := h.journal.Bounds()
		require.Equal(t, next, after)
		require.Equal(t, stamped, h.intake.clock.stamped)
		require.Empty(t, tap.Items)
		require.Zero(t, s.Result.ID)
		return s.Result
	}
	items, several := 0, 0
	for n := uint64(0); items < *dryRunItems; n++ {
		a := author{rand.New(rand.NewPCG(3, n)), 2 + int(n%30)}
		body := a.batch(a.IntN(2000))
		short, long := dryRun(body, false), dryRun(body, true)
		s, err := h.submit(body, fmt.Sprint("key-", n))
		require.NoError(t, err)
		require.False(t, s.Result.Replay)
		for len(tap.Items) > 0 {
			<-tap.Items
		}
		s.Result.ID, s.Result.Newest = batch.ID{}, 0 // a dry run tells nothing about the client
		require.Equal(t, s.Result, short, "batch %d", n)
		require.Equal(t, []int{short.Items, short.Accepted, short.Duplicates}, []int{long.Items, long.Accepted, long.Duplicates})

		var root struct{ Measurements []json.RawMessage }
		require.NoError(t, json.Unmarshal([]byte(body), &root))
		at := 0
		for i, raw := range root.Measurements {
			var got []verdict
			for ; at < long.Len() && int(long.List[at].Index) == i; at++ {
				path := fmt.Sprintf("measurements[%d]", i)
				if f := long.List[at].Field; f != contract.FieldItem {
					path += "." + f.String()
				}
				got = append(got, verdict{long.List[at].Code.String(), path})
			}
			require.Equal(t, o.all(i, raw), got, "%s", raw)
			if len(got) > 1 {
				several++
			}
			require.LessOrEqual(t, len(got), len(members), "the contract bounds the response")
		}
		require.Equal(t, long.Len(), at)
		items += short.Items
	}
	t.Logf("%d items, %d with several errors", items, several)
	require.NotZero(t, several)
}
