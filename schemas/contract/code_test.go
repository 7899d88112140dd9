package contract

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCodes(t *testing.T) {
	names := map[string]bool{}
	for c := OK; c < CodeCount; c++ {
		require.NotEmpty(t, c.String())
		require.False(t, names[c.String()], c)
		names[c.String()] = true
		require.True(t, c.Status() != 0 || codes[c].item != "", c)
	}
	for c := NotFound; c <= InternalError; c++ {
		require.GreaterOrEqual(t, c.Status(), 400, c)
	}
	require.Zero(t, UnknownDetector.Status())
	require.Zero(t, CodeCount.Status())
	require.Equal(t, "UNKNOWN", CodeCount.String())
	require.Equal(t, "linkId", FieldLinkID.String())
	require.Empty(t, FieldCount.String())
}

// TestStoredNumbers checks that the numbers in journals and idempotency stores never change, and
// that a new code has a higher one.
func TestStoredNumbers(t *testing.T) {
	codes := map[Code]byte{
		BatchLimitExceeded: 18, InvalidType: 19, DuplicateField: 20, ReservedField: 21, MissingField: 22, UnknownDetector: 23,
		UnknownMeasureType: 24, InvalidTimestamp: 25, InvalidInterval: 26, TimestampInFuture: 27, InvalidValue: 28, InvalidQuality: 29,
	}
	known := map[byte]bool{}
	for c := range CodeCount {
		if c.OfItems() {
			if n, released := codes[c]; released {
				require.Equal(t, n, c.Stored(), c)
			} else {
				require.Greater(t, c.Stored(), byte(29), c)
			}
			require.False(t, known[c.Stored()], c)
			known[c.Stored()] = true
			require.Equal(t, c, CodeOf(c.Stored()))
		}
	}
	for n := range 256 {
		if !known[byte(n)] {
			require.Equal(t, UnknownCode, CodeOf(byte(n)))
		}
	}
	fields := map[Field]byte{
		FieldItem: 0, FieldDetectorCode: 1, FieldMeasureTypeCode: 2, FieldTimestampFrom: 3, FieldTimestampTo: 4, FieldValue: 5,
		FieldQuality: 6, FieldLinkID: 7,
	}
	for f := range FieldCount {
		require.Equal(t, fields[f], f.Stored(), f)
		require.Equal(t, f, FieldOf(f.Stored()))
	}
	require.Len(t, fields, int(FieldCount))
	require.Equal(t, FieldItem, FieldOf(200))
	require.Equal(t, "the item was rejected for a reason that this version of the daemon does not know", describe(t, UnknownCode, FieldItem, "detail"))
}

// describe returns the description of a rejected item with JSON escapes decoded.
func describe(t *testing.T, code Code, field Field, detail string) (text string) {
	t.Helper()
	allowed := Allowed{ProductInstance: `"demo"`, MeasureTypes: "allowed are flow, speed", FutureTolerance: "1h0m0s"}
	raw := append(AppendItemDescription([]byte{'"'}, code, field, []byte(detail), &allowed), '"')
	require.NoError(t, json.Unmarshal(raw, &text), string(raw))
	return text
}

func TestItemDescriptions(t *testing.T) {
	f := func(code Code, field Field, detail, want string) {
		t.Helper()
		require.Equal(t, want, describe(t, code, field, detail))
	}
	f(UnknownDetector, FieldDetectorCode, "X1", `detectorCode "X1" does not exist in product instance "demo"`)
	f(UnknownDetector, FieldDetectorCode, "", `detectorCode is empty and does not exist in product instance "demo"`)
	long := strings.Repeat("x", 63)
	f(UnknownDetector, FieldDetectorCode, long+"\xc3", `detectorCode "`+long+`" does not exist in product instance "demo"`)
	f(UnknownDetector, FieldDetectorCode, "x\xc3", "detectorCode \"x\ufffd\" does not exist in product instance \"demo\"")
	f(UnknownMeasureType, FieldMeasureTypeCode, "a\"\n\\", "measureTypeCode \"a\"\n\\\" is not an allowed measure type; allowed are flow, speed")
	f(UnknownMeasureType, FieldMeasureTypeCode, "", `measureTypeCode is empty and is not an allowed measure type; allowed are flow, speed`)
	f(InvalidTimestamp, FieldTimestampFrom, "2026-01-31T12:00:00+01:00", `timestampFrom "2026-01-31T12:00:00+01:00" is not an ISO 8601 `+
		`date-time in UTC, with Z at its end, from 1970 to 2261, such as 2026-01-31T12:00:00Z`)
	f(TimestampInFuture, FieldTimestampTo, "2999-01-01T00:00:00Z", `timestampTo 2999-01-01T00:00:00Z is more than 1h0m0s after the daemon's time, which the header Date shows`)
	f(InvalidValue, FieldValue, "", `value is not a finite number`)
	f(InvalidQuality, FieldQuality, "2\xff from 0 to 1", `quality 2 is not a finite number from 0 to 1`)
	f(UnknownDetector, FieldDetectorCode, "815\xff08\"15", `detectorCode "815" does not exist in product instance "demo"; did you mean "08"15"?`)
	f(UnknownDetector, FieldDetectorCode, strings.Repeat("x", 64)+"\xff"+strings.Repeat("y", 80),
		`detectorCode "`+strings.Repeat("x", 64)+`" does not exist in product instance "demo"; did you mean "`+strings.Repeat("y", 64)+`"?`)
	f(InvalidType, FieldValue, `"47,5"`, `value must be a number, not the string "47,5"`)
	f(InvalidType, FieldValue, `""`, `value must be a number, not an empty string`)
	f(InvalidType, FieldValue, `"`+long, `value must be a number, not the string "`+long+`"`)
	f(InvalidType, FieldValue, `"a\"\`+"\n", "value must be a number, not the string \"a\\\"\\\n\"")
	f(InvalidType, FieldDetectorCode, `815`, `detectorCode must be a string, not the number 815`)
	f(InvalidType, FieldQuality, `true`, `quality must be a number or null, not true`)
	f(InvalidType, FieldItem, `[1`, `the item must be an object, not an array`)
	f(ReservedField, FieldLinkID, `{"a`, `linkId is reserved; it must be null or absent, not an object`)
	f(MissingField, FieldDetectorCode, "detectorcode", `detectorCode is missing or null; the item has "detectorcode" instead`)
	f(InvalidInterval, FieldTimestampTo, "T1\xffT2", `timestampTo is before timestampFrom: T1 < T2`)
	f(ReservedField, FieldLinkID, "", `linkId is reserved; it must be null or absent`)
	f(InvalidType, FieldItem, "", `the item must be an object`)
	f(InvalidType, FieldDetectorCode, "", `detectorCode must be a string`)
	f(InvalidType, FieldValue, "", `value must be a number`)
	f(MissingField, FieldTimestampTo, "", `timestampTo is missing or null`)
	f(DuplicateField, FieldQuality, "", `quality is a duplicate member`)
	f(InvalidInterval, FieldTimestampTo, "", `timestampTo is before timestampFrom`)
}

// TestHint checks that the hint of a description is found, even if the client's code looks like
// one.
func TestHint(t *testing.T) {
	f := func(seen, more, want string) {
		t.Helper()
		require.Equal(t, want, Hint(describe(t, UnknownDetector, FieldDetectorCode, string(AppendDetail(nil, seen, more)))))
	}
	f("815", "0815", "0815")
	f("815", "", "")
	f("", "", "")
	require.Empty(t, Hint("timestampTo is before timestampFrom"))
}

func TestItemDescriptionsAreUnique(t *testing.T) {
	seen := map[string]Code{}
	for code := BatchLimitExceeded; code < CodeCount; code++ {
		for field := FieldItem; field < FieldCount; field++ {
			if code == InvalidValue && field != FieldValue || code == InvalidQuality && field != FieldQuality {
				continue
			}
			text := describe(t, code, field, "detail")
			require.NotRegexp(t, `[{}]|  |^ |[ .]$`, text)
			if other, ok := seen[text]; ok {
				require.Equal(t, other, code, text)
			}
			seen[text] = code
		}
	}
}

func TestWholeRunes(t *testing.T) {
	f := func(in, want string) { t.Helper(); require.Equal(t, want, string(wholeRunes([]byte(in)))) }
	f("", "")
	f("a", "a")
	f("é", "é")
	f("a\xc3", "a")
	f("a\xf0\x9f\x98", "a")
	f("a😀", "a😀")
	f("a\xff", "a\xff") // 0xff is never part of a character
	f("\xa0\xa0\xa0\xa0", "\xa0\xa0\xa0\xa0")
	f("\xc3\xc3", "\xc3")
}
