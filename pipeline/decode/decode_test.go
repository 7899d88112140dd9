package decode

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/needs"
	"trafficd/pipeline/batch"
	"trafficd/schemas/contract"
)

// source supplies what a reader returns. The bytes after it could continue a number.
type source struct {
	io.Reader
	buf [64<<10 + Padding]byte
	end int
}

var nines = bytes.Repeat([]byte{'9'}, Padding)

func (s *source) Next(keep int) ([]byte, error) {
	copy(s.buf[:], s.buf[s.end-keep:s.end])
	for {
		n, err := s.Read(s.buf[keep : len(s.buf)-Padding])
		if s.end = keep + n; n > 0 || err != nil {
			copy(s.buf[s.end:], nines)
			return s.buf[:s.end], err
		}
	}
}

func decodeWith(d *Decoder, r io.Reader) (*batch.Items, error) {
	it := new(batch.Items)
	return it, d.Decode(&source{Reader: r}, it)
}

func codeOf(err error) contract.Code {
	var r *contract.APIError
	if errors.As(err, &r) {
		return r.Code
	}
	return contract.OK
}

func TestWholeRequestRules(t *testing.T) {
	f := func(body string, want contract.Code, offset int) {
		t.Helper()
		for _, r := range []io.Reader{strings.NewReader(body), iotest.OneByteReader(strings.NewReader(body))} {
			_, err := decodeWith(New(DefaultConfig()), r)
			require.Equal(t, want, codeOf(err), "%s: %v", body, err)
			if want == contract.InvalidJSON {
				require.Contains(t, err.Error(), fmt.Sprintf("at byte %d of the decompressed body:", offset), body)
			}
		}
	}
	f(`{"measurements":[]}`, contract.OK, 0)
	f("\xef\xbb\xbf \r\n\t{ \"measurements\" : [ ] } \n", contract.OK, 0)
	f(`{"a":1,"measurements":[],"b":[{"measurements":null}]}`, contract.OK, 0)
	f(`{"\u006deasurements":[]}`, contract.OK, 0)
	f(`{"measurements":[1,"x",null,true,[],{}]}`, contract.OK, 0)
	f("\xef\xbb\xbf\xef\xbb\xbf{}", contract.InvalidJSON, 3)
	f(``, contract.InvalidJSON, 0)
	f(` `, contract.InvalidJSON, 1)
	f(`x`, contract.InvalidJSON, 0)
	f(`nul`, contract.InvalidJSON, 3)
	f("{\"measurements\":[]}\x00", contract.InvalidJSON, 19)
	f(`{"measurements":[]} {}`, contract.InvalidJSON, 20)
	f(`{"measurements":[],}`, contract.InvalidJSON, 19)
	f(`{"measurements":[,]}`, contract.InvalidJSON, 17)
	f(`{"measurements":[{},]}`, contract.InvalidJSON, 20)
	f(`{"measurements":[{}}`, contract.InvalidJSON, 19)
	f(`{"measurements":[{"value":01}]}`, contract.InvalidJSON, 27)
	f(`{"measurements":[{"value":1.}]}`, contract.InvalidJSON, 28)
	f(`{"measurements":[{"value":+1}]}`, contract.InvalidJSON, 26)
	f(`{"measurements":[{"value":NaN}]}`, contract.InvalidJSON, 26)
	f(`{"measurements":[{"value":nuLl}]}`, contract.InvalidJSON, 28)
	f(`{"measurements":[{"value" 1}]}`, contract.InvalidJSON, 26)
	f(`{"measurements":[{value:1}]}`, contract.InvalidJSON, 18)
	f(`{"measurements":[{"a":"\ud800"}]}`, contract.InvalidJSON, 23)
	f(`{"measurements":[{"a":"\udc00"}]}`, contract.InvalidJSON, 23)
	f(`{"measurements":[{"a":"\ud800\u0041"}]}`, contract.InvalidJSON, 23)
	f(`{"measurements":[{"a":"\x"}]}`, contract.InvalidJSON, 24)
	f("{\"measurements\":[{\"a\":\"ok\xff\"}]}", contract.InvalidJSON, 25)
	f("{\"measurements\":[{\"a\":\"\xed\xa0\x80\"}]}", contract.InvalidJSON, 23)
	f("{\"measurements\":[{\"a\":\"\xc0\x80\"}]}", contract.InvalidJSON, 23)
	f("{\"measurements\":[{\"a\":\"\t\"}]}", contract.InvalidJSON, 23)
	f(`[]`, contract.InvalidType, 0)
	f(`"measurements"`, contract.InvalidType, 0)
	f(`null`, contract.InvalidType, 0)
	f(`12`, contract.InvalidType, 0)
	f(`{}`, contract.MissingField, 0)
	f(`{"Measurements":[]}`, contract.MissingField, 0)
	f(`{"measurements":null}`, contract.MissingField, 0)
	f(`{"measurements":{}}`, contract.InvalidType, 0)
	f(`{"measurements":"x"}`, contract.InvalidType, 0)
	f(`{"measurements":[],"measurements":[]}`, contract.DuplicateField, 0)
	f(`{"measurements":[],"x":`+strings.Repeat("[", 62)+strings.Repeat("]", 62)+`}`, contract.OK, 0)
	f(`{"x":`+strings.Repeat("[", 64), contract.InvalidJSON, 68)

	// The first error in the stream is reported.
	f(`"a"x`, contract.InvalidType, 0)
	f(`12 x`, contract.InvalidType, 0)
	f(`nullx`, contract.InvalidType, 0)
	f(`[1}`, contract.InvalidType, 0)
	f(`"a`, contract.InvalidJSON, 2)
	f(`nul`, contract.InvalidJSON, 3)
	f(`{}x`, contract.InvalidJSON, 2)
	f(`{"a":1}x`, contract.InvalidJSON, 7)
	f(`{"a":1`, contract.InvalidJSON, 6)
	f(`{"measurements":{x`, contract.InvalidType, 0)
	f(`{"measurements":nullx`, contract.MissingField, 0)
	f(`{"measurements":"x`, contract.InvalidJSON, 18)
	f(`{"measurements":[],"measurements"x`, contract.InvalidJSON, 33)
	f(`{"measurements":[],"measurements":x`, contract.DuplicateField, 0)
	f("\x1f", contract.InvalidJSON, 0)
	f("\x1f\x8b", contract.InvalidJSON, 0)
	_, err := decodeWith(New(DefaultConfig()), strings.NewReader("\x1f\x8b\x08"))
	require.ErrorContains(t, err, "compressed twice")
}

func TestHardLimit(t *testing.T) {
	cfg := Config{BatchLimit: 3, HardLimit: 5, MaxDepth: 8}
	f := func(items int, want contract.Code, rows int) {
		t.Helper()
		body := `{"measurements":[` + strings.TrimSuffix(strings.Repeat("{},", items), ",") + `]}`
		it, err := decodeWith(New(cfg), strings.NewReader(body))
		require.Equal(t, want, codeOf(err))
		if err == nil {
			require.Equal(t, items, it.Count)
			require.Equal(t, rows, it.Rows())
		}
	}
	f(0, contract.OK, 0)
	f(3, contract.OK, 3)
	f(5, contract.OK, 3)
	f(6, contract.TooManyItems, 0)
}

func TestReaderErrorComesAfterEarlierErrors(t *testing.T) {
	broken := errors.New("gzip: invalid checksum")
	f := func(body string, want error, code contract.Code) {
		t.Helper()
		_, err := decodeWith(New(DefaultConfig()), io.MultiReader(strings.NewReader(body), iotest.ErrReader(broken)))
		require.Equal(t, code, codeOf(err))
		if want != nil {
			require.ErrorIs(t, err, want)
		}
	}
	f(`{"measurements":[]}`, broken, contract.OK)
	f(`{"measurements":[{"value":1`, broken, contract.OK)
	f(`{"measurements":[{"a":"b`, broken, contract.OK)
	f(`{"measurements":[{"a":tru`, broken, contract.OK)
	f(`{"measurements":[x`, nil, contract.InvalidJSON)
	f(`{"measurements":null`, nil, contract.MissingField)
}

func TestFaults(t *testing.T) {
	const good = `"detectorCode":"a","measureTypeCode":"s","timestampFrom":"2026-01-01T00:00:00Z","timestampTo":"2026-01-01T00:05Z","value":1`
	all := contract.FieldSet(0)
	for f := contract.FieldDetectorCode; f <= contract.FieldValue; f++ {
		all |= f.Bit()
	}
	f := func(item string, want ...batch.Fault) {
		t.Helper()
		body := `{"measurements":[{` + good + `},` + item + `,{` + good + `}]}`
		it, err := decodeWith(New(DefaultConfig()), strings.NewReader(body))
		require.NoError(t, err)
		require.Equal(t, 3, it.Rows())
		for i := range want {
			want[i].Row = 1
		}
		require.Equal(t, want, slices.Clip(append([]batch.Fault(nil), it.Faults...)), item)
	}
	f(`{` + good + `}`)
	f(`{` + good + `,"quality":null,"linkId":null,"other":{"a":[1]}}`)
	f(`7`, batch.Fault{NotObject: true})
	f(`[{`+good+`}]`, batch.Fault{NotObject: true})
	f(`null`, batch.Fault{NotObject: true})
	f(`{}`, batch.Fault{Absent: all})
	f(`{`+good+`,"linkId":{"a":null}}`, batch.Fault{LinkID: true})
	f(`{`+good+`,"value":2}`, batch.Fault{Duplicate: contract.FieldValue.Bit()})
	f(`{`+good+`,"\u0076alue":2}`, batch.Fault{Duplicate: contract.FieldValue.Bit()})
	f(`{`+good+`,"quality":null,"quality":"x"}`, batch.Fault{Duplicate: contract.FieldQuality.Bit(), WrongType: contract.FieldQuality.Bit()})
	f(strings.Replace(`{`+good+`}`, `"a"`, `1`, 1), batch.Fault{WrongType: contract.FieldDetectorCode.Bit()})
	f(strings.Replace(`{`+good+`}`, `"a"`, `null`, 1), batch.Fault{Absent: contract.FieldDetectorCode.Bit()})
	f(strings.Replace(`{`+good+`}`, `:1`, `:"1"`, 1), batch.Fault{WrongType: contract.FieldValue.Bit()})
}

func TestColumns(t *testing.T) {
	body := `{"measurements":[
	 {"detectorCode":"a\u00e9\n","measureTypeCode":"speed","timestampFrom":"2026-01-01T00:00:00.5Z","timestampTo":"2026-01-01t00:05+00","value":-1.5e2,"quality":0.25},
	 {"value":0.1,"quality":null,"timestampTo":"nonsense","timestampFrom":"1970-01-01T00:00Z","measureTypeCode":"flow","detectorCode":""},
	 {"detectorCode":"` + strings.Repeat("x", 5000) + `","measureTypeCode":"` + strings.Repeat("y", 5000) + `","timestampFrom":"2261-12-31T23:59:60Z","timestampTo":"` + strings.Repeat("9", 5000) + `","value":1e999}]}`
	it, err := decodeWith(New(DefaultConfig()), strings.NewReader(body))
	require.NoError(t, err)
	require.Empty(t, it.Faults)
	require.Equal(t, "aé\n", string(it.Code(0)))
	require.Equal(t, "", string(it.Code(1)))
	require.Len(t, it.Code(2), batch.MaxCodeLen+1, "truncated, but over the limit")
	require.Len(t, it.TypeCode(int(it.Type[2])), 65)
	require.Equal(t, []float64{-150, 0.1, math.Inf(1)}, it.Value)
	require.Equal(t, 0.25, it.Quality[0])
	require.False(t, it.HasQuality(1))
	require.False(t, it.HasQuality(2))
	require.Equal(t, time.Date(2026, 1, 1, 0, 0, 0, 5e8, time.UTC).UnixNano(), it.From[0])
	require.Equal(t, time.Date(2026, 1, 1, 0, 5, 0, 0, time.UTC).UnixNano(), it.To[0])
	require.Equal(t, time.Date(2262, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano(), it.From[2])
	require.Equal(t, int64(batch.NoTime), it.To[1])
	require.Equal(t, "nonsense", string(it.RawOf(1, contract.FieldTimestampTo)))
	require.Equal(t, strings.Repeat("9", 64), string(it.RawOf(2, contract.FieldTimestampTo)))
	require.Nil(t, it.RawOf(0, contract.FieldTimestampTo))
}

func TestTimestamps(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		ns, ok := parseTimestamp([]byte(text))
		require.Equal(t, want != "", ok, text)
		if ok {
			require.Equal(t, want, time.Unix(0, ns).UTC().Format(time.RFC3339Nano), text)
		}
	}
	f("2026-02-28T23:59:59Z", "2026-02-28T23:59:59Z")
	f("2024-02-29t23:59:59z", "2024-02-29T23:59:59Z")
	f("2000-02-29T00:00Z", "2000-02-29T00:00:00Z")
	f("2026-01-01T00:00:00.123456789Z", "2026-01-01T00:00:00.123456789Z")
	f("2026-01-01T00:00:00,1-00:00", "2026-01-01T00:00:00.1Z")
	f("2026-01-01T00:00:00.123456789+00:00", "2026-01-01T00:00:00.123456789Z")
	f("2026-01-01T00:00-00", "2026-01-01T00:00:00Z")
	f("2016-12-31T23:59:60Z", "2017-01-01T00:00:00Z")
	f("2016-12-31T23:59:60.5Z", "2017-01-01T00:00:00.5Z")
	f("1970-01-01T00:00Z", "1970-01-01T00:00:00Z")
	f("2261-12-31T23:59:60.999999999Z", "2262-01-01T00:00:00.999999999Z")
	for _, bad := range []string{
		"", "Z", "2026-01-01", "2026-01-01T00Z", "2026-01-01T00:00", "2026-01-01 00:00:00Z", "2026-01-01T00:00:00", "2026-01-01T00:00:00+01:00",
		"2026-01-01T00:00:00+0000", "2026-01-01T00:00:00+00:01", "2026-01-01T24:00:00Z", "2026-01-01T12:59:60Z", "2026-01-01T23:58:60Z", "2026-01-01T23:59:61Z",
		"2026-02-29T00:00:00Z", "2100-02-29T00:00:00Z", "2026-04-31T00:00:00Z", "2026-00-01T00:00:00Z", "2026-13-01T00:00:00Z", "2026-01-00T00:00:00Z",
		"1969-12-31T23:59:59Z", "2262-01-01T00:00:00Z", "2026-01-01T00:00:00.Z", "2026-01-01T00:00:00.1234567890Z", "2026-01-01T00:00.5Z", "20260101T000000Z",
		"2026-01-01T00:00:0Z", "2026-01-01T0:00:00Z", "2026-01-01T00:00:00ZZ", "2026-01-01T00:00:00 Z", "+2026-01-01T00:00:00Z", "2026-01-01T00:00:00.1234567Z+00:00",
		"2026-01-01T00:00:", "2026-01-01T00:00:00.", "2026/01/01T00:00:00Z", "2026-01-01T00-00:00Z", "2026-01-01T00:00:", "2026-01-01T00:00:0",
	} {
		f(bad, "")
	}
	r := rand.New(rand.NewPCG(3, 4))
	for range 20_000 {
		want := time.Unix(r.Int64N(9_214_646_400), r.Int64N(1e9)).UTC()
		f(want.Format("2006-01-02T15:04:05.000000000Z"), want.Format(time.RFC3339Nano))
	}
}

func TestNumbers(t *testing.T) {
	d, in := New(DefaultConfig()), new(source)
	numberOf := func(text string) (lexer, fast float64) {
		in.Reader, in.end = iotest.HalfReader(strings.NewReader(text)), 0
		d.reset(in)
		require.True(t, d.num(), text)
		lexer = d.number()
		fast, next := readNumber(append([]byte(text), make([]byte, Padding)...), 0)
		require.Equal(t, len(text) <= maxDigits, next == len(text), text)
		return lexer, fast
	}
	f := func(text string) {
		t.Helper()
		want, _ := strconv.ParseFloat(text, 64)
		if len(text) > maxDigits { // strconv is wrong for these
			exact, _, err := big.ParseFloat(text, 10, 20_000, big.ToNearestEven)
			require.NoError(t, err)
			want, _ = exact.Float64()
		}
		lexer, fast := numberOf(text)
		require.Equal(t, math.Float64bits(want), math.Float64bits(lexer), "lexer %.80s", text)
		if len(text) <= maxDigits {
			require.Equal(t, math.Float64bits(want), math.Float64bits(fast), "fast %.80s", text)
		}
	}
	zeros, nines := strings.Repeat("0", 2000), strings.Repeat("9", 2000)
	for _, text := range []string{
		"0", "-0", "0.0", "-0.0", "1", "-1", "12.5", "0.1", "123456789012345", "1234567890123456", "9007199254740993", "0.000001", "50.20000076293945",
		"1e5", "1E+5", "1e-5", "1.5e300", "1e308", "1.8e308", "-1e999", "1e-400", "4.9e-324", "2.4e-324", "0e99999999999999999999", "1e99999999999999999999", "1e-99999999999999999999",
		"0." + zeros + "5e2001", "1" + zeros + "e-2000", "1" + zeros, "1." + zeros + "1", nines + "e-2000", "0." + nines, "0." + zeros, "-0." + zeros + "e5", nines + "." + nines + "e-1990",
		"1" + zeros + ".5e-2000", "9007199254740993." + zeros + "1", "9007199254740993." + zeros, "9007199254740993" + zeros + "e-2000", "9007199254740993" + zeros + "1e-2001",
	} {
		f(text)
	}
	r := rand.New(rand.NewPCG(5, 6))
	for range 20_000 {
		f(strconv.FormatFloat(math.Float64frombits(r.Uint64()&^(0x7ff<<52)|uint64(1023-r.IntN(60)+r.IntN(60))<<52), "efg"[r.IntN(3)], -1, 64))
		f(strconv.FormatFloat(float64(r.IntN(2e7)-1e7)/1000, 'f', r.IntN(5), 64))
	}
	for _, bad := range []string{"", "-", "+1", ".5", "00", "01", "1.", "1.e5", "1e", "1e+", "-a", "1.-"} {
		d := New(DefaultConfig())
		d.reset(&source{Reader: strings.NewReader(bad + "]")})
		ok := d.num() && d.next() == ']'
		require.False(t, ok, bad)
		_, next := readNumber(append([]byte(bad+"]"), make([]byte, Padding)...), 0)
		require.NotEqual(t, len(bad), next, bad)
	}
}

// TestTimesOfOneDay parses timestamps on the day of the previous one, with exceptions and invalid
// ones among them.
func TestTimesOfOneDay(t *testing.T) {
	texts := []string{
		"2016-12-31T10:00:00Z", "2016-12-31T23:59:60Z", "2016-12-31T23:59:59Z", "2016-12-31T00:00:00Z", "2017-01-01T00:00:00Z", "2016-12-31T00:00:01.5Z", "2016-12-31T00:00:02Z",
		"2016-12-31T24:00:00Z", "2016-12-31T23:60:00Z", "2016-12-31T23:00:61Z", "2016-12-31T23-00:00Z", "2016-12-31T23:00:00z", "2016-12-31t23:00:00Z", "2016-12-31t23:00:01Z", "2016-12-31T2a:00:01Z",
	}
	var items []string
	for _, text := range texts {
		items = append(items, fmt.Sprintf(`{"detectorCode":"a","measureTypeCode":"s","timestampFrom":%q,"timestampTo":%q,"value":1}`, text, text))
	}
	it, err := decodeWith(New(DefaultConfig()), strings.NewReader(`{"measurements":[`+strings.Join(items, ",")+`]}`))
	require.NoError(t, err)
	for i, text := range texts {
		want, ok := parseTimestamp([]byte(text))
		if !ok {
			want = batch.NoTime
		}
		require.Equal(t, want, it.From[i], text)
		require.Equal(t, want, it.To[i], text)
	}
}

// randomBatch returns a batch in a regular form, with irregular and invalid items.
func randomBatch(r *rand.Rand) []byte {
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	gap := pick("", "", " ", "\n\t", strings.Repeat(" ", 100))
	orders := [][]int{{0, 1, 2, 3, 4, 5}, {5, 4, 3, 2, 1, 0}, r.Perm(7), r.Perm(8), r.Perm(6)}
	order, change := orders[r.IntN(len(orders))], r.IntN(3) == 0
	var b bytes.Buffer
	b.WriteString(`{` + gap + `"measurements"` + gap + `:[`)
	for i, n := 0, r.IntN(400); i < n; i++ {
		if i > 0 {
			b.WriteString("," + gap)
		}
		if change && r.IntN(4) == 0 {
			order = orders[r.IntN(len(orders))]
		}
		odd := r.IntN(30) == 0
		member := func(k int) string {
			if odd && r.IntN(3) == 0 {
				return pick(`"value":null`, `"value":"1"`, `"value":1e400`, `"quality":1E1`, `"linkId":3`, `"x\n":[{}]`, `"timestampTo":"2026-13-01T00:00:00Z"`, `"detectorCode":"\u00fc\"\\"`, `"detectorCode":"grün"`,
					`"value":1234567890.123456789`, `"measureTypeCode":"`+strings.Repeat("t", 70)+`"`, `"x":true`, `"x":"`+strings.Repeat("é", 1500)+`"`)
			}
			switch k {
			case 0:
				return fmt.Sprintf(`"detectorCode":%s"D%d"`, gap, r.IntN(5000))
			case 1:
				return `"measureTypeCode":"` + pick("speed", "flow", "speed2", "occ", "traffic", "occupied", "occupancy", "speed", "speed") + `"`
			case 2:
				return fmt.Sprintf(`"timestampFrom":"2026-01-%02dT00:%02d:00Z"`, 1+i/100, r.IntN(2))
			case 3:
				clock := pick("00:00:00Z", "00:00:00Z", "00:05:00Z", "19:59:59Z", "00:05:00.000Z", "07:00:00.250Z", "07:01:00.5+00:00", "00:00Z",
					"23:59:60Z", "07:00:00.123456789Z", "24:00:00Z", "0a:00:00Z", "00:60:00Z", "00:00:61Z", "00.00:00Z", "00:00:00+01:00")
				return `"timestampTo":"2026-01-10T` + clock + `"`
			case 4:
				return `"value":` + pick("1", "0.5", "-12.25", "1e3", "100.125", "50.20000076293945", "0", "-0", "1234567", "12345678", "12345.67", "123456.7", "0.00001")
			case 5:
				return `"quality":` + pick("1", "0.5", "null")
			case 6:
				return `"linkId":null`
			}
			return `"id":` + pick("1", "22", `"abc"`)
		}
		b.WriteString("{")
		for j, k := range order {
			if j > 0 {
				b.WriteString("," + gap)
			}
			b.WriteString(member(k))
		}
		b.WriteString("}")
	}
	b.WriteString("]}")
	return b.Bytes()
}

func TestFastEqualsSlow(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	fast, slow, bytewise := New(DefaultConfig()), New(DefaultConfig()), New(DefaultConfig())
	slow.layouts.maxBytes, bytewise.layouts.maxBytes = 0, 0
	rounds := 150
	if needs.Long() {
		rounds = 1500
	}
	for n := range rounds {
		body := randomBatch(r)
		want, err := decodeWith(slow, bytes.NewReader(body))
		require.NoError(t, err, "%s", body)
		got, err := decodeWith(fast, iotest.HalfReader(bytes.NewReader(body)))
		require.NoError(t, err)
		requireEqual(t, want, got, body)
		if n%50 == 0 {
			got, err = decodeWith(bytewise, iotest.OneByteReader(bytes.NewReader(body)))
			require.NoError(t, err)
			requireEqual(t, want, got, body)
		}
	}
}

func requireEqual(t *testing.T, want, got *batch.Items, body []byte) {
	t.Helper()
	text := func(it *batch.Items) string {
		var b strings.Builder
		fmt.Fprintln(&b, it.Count, it.Faults, it.Raw, string(it.Text))
		for i := range it.Rows() {
			fmt.Fprintf(&b, "%q %q %d %d %x %x\n", it.Code(i), it.TypeCode(int(it.Type[i])), it.From[i], it.To[i], math.Float64bits(it.Value[i]), math.Float64bits(it.Quality[i]))
		}
		return b.String()
	}
	bare := func(it *batch.Items) *batch.Items { // a faulty row may have no type
		for _, f := range it.Faults {
			it.Type[f.Row] = 0
		}
		if it.Types() == 0 {
			it.TypeEnd = append(it.TypeEnd, 0)
		}
		return it
	}
	if w, g := text(bare(want)), text(bare(got)); w != g {
		t.Fatalf("body %s\nslow:\n%s\nfast:\n%s", body, w, g)
	}
}

func TestEveryTruncationIsInvalid(t *testing.T) {
	body := append(typical(3), ' ')
	d := New(DefaultConfig())
	for n := range len(body) - 1 {
		_, want := decodeWith(New(DefaultConfig()), bytes.NewReader(body[:n]))
		require.Equal(t, contract.InvalidJSON, codeOf(want), "%s", body[:n])
		for range 2 { // nothing is learned from a truncated item
			_, err := decodeWith(d, bytes.NewReader(body[:n]))
			require.Equal(t, want, err)
		}
	}
}

func TestNoAllocationPerItem(t *testing.T) {
	body := typical(2000)
	it, r := new(batch.Items), bytes.NewReader(nil)
	from := &source{Reader: r}
	for _, maxBytes := range []int{maxLayout, 0} {
		d := New(DefaultConfig())
		d.layouts.maxBytes = maxBytes
		require.Zero(t, testing.AllocsPerRun(20, func() {
			r.Reset(body)
			from.end = 0
			require.NoError(t, d.Decode(from, it))
		}))
	}
}

var surrogate = regexp.MustCompile(`\\u[dD][89a-fA-F]`)

// FuzzDecode compares the decoder with encoding/json regarding validity, and prediction with the
// lexer regarding contents.
func FuzzDecode(f *testing.F) {
	r := rand.New(rand.NewPCG(9, 10))
	for n := 0; n < 40; { // small seeds, because the fuzzer minimises its findings
		if body := randomBatch(r); len(body) < 3000 {
			f.Add(body)
			n++
		}
	}
	f.Add(typical(5))
	f.Add([]byte(`{"measurements":[{"detectorCode":"","measureTypeCode":"\b"}]}`)) // the type that begins it is not one of the batch
	fast, slow := New(DefaultConfig()), New(DefaultConfig())
	slow.layouts.maxBytes = 0
	f.Fuzz(func(t *testing.T, body []byte) {
		want, wantErr := decodeWith(slow, bytes.NewReader(body))
		got, err := decodeWith(fast, iotest.HalfReader(bytes.NewReader(body)))
		require.Equal(t, wantErr, err)
		if err == nil {
			requireEqual(t, want, got, body)
		}
		text := bytes.TrimPrefix(body, []byte("\xef\xbb\xbf"))
		if surrogate.Match(text) || bytes.Count(text, []byte("["))+bytes.Count(text, []byte("{")) > 60 {
			return // encoding/json accepts lone surrogates and any nesting
		}
		switch code := codeOf(err); code {
		case contract.OK:
			require.True(t, json.Valid(text) && utf8.Valid(text), "accepted invalid JSON: %q", body)
		case contract.InvalidJSON:
			require.False(t, json.Valid(text) && utf8.Valid(text), "%v: %q", err, body)
		}
	})
}
