package ingest

import (
	"strings"

	"trafficd/pipeline/batch"
)

// descriptions say to a person what is wrong with an item. {field}, {type} and
// {echo} are filled in; what stands in [ ] is left out where there is no input
// to repeat. The texts need no escape in JSON.
var descriptions = parseDescriptions(map[batch.Code]string{
	batch.BatchLimitExceeded: "the item is past the limit of items in a batch and was not examined: send it again in another batch",
	batch.InvalidType:        "{field} has to be {type}",
	batch.DuplicateField:     "{field} stands more than once",
	batch.ReservedField:      "the reserved field {field} must be null or absent",
	batch.MissingField:       "{field} is missing or null",
	batch.UnknownDetector:    "the detector[ {echo}] does not exist in the product instance",
	batch.UnknownMeasureType: "the measure type[ {echo}] is not an allowed one",
	batch.InvalidTimestamp:   "{field}[ {echo}] is not an ISO 8601 date-time in UTC, such as 2026-01-31T12:00:00Z, of the years 1970 to 2261",
	batch.InvalidInterval:    "{field}[ {echo}] is before timestampFrom",
	batch.TimestampInFuture:  "{field}[ {echo}] is too far in the future",
	batch.InvalidValue:       "{field}[ {echo}] is not a finite number within the range of its measure type",
	batch.InvalidQuality:     "{field}[ {echo}] is not a finite number within the allowed range",
})

// fields has for each field what {field} and {type} stand for.
var fields = [batch.FieldCount]struct{ name, kind string }{
	batch.FieldItem:            {"the item", "an object"},
	batch.FieldDetectorCode:    {"detectorCode", "a string"},
	batch.FieldMeasureTypeCode: {"measureTypeCode", "a string"},
	batch.FieldTimestampFrom:   {"timestampFrom", "a string"},
	batch.FieldTimestampTo:     {"timestampTo", "a string"},
	batch.FieldValue:           {"value", "a number"},
	batch.FieldQuality:         {"quality", "a number or null"},
	batch.FieldLinkID:          {"linkId", "null"},
}

// piece is a part of a description: a text, or one of the markers.
type piece struct {
	text     string
	marker   byte // 'f', 't' or 'e'; 0 for a text
	optional bool // only where there is an echo
}

// appendDescription appends the inside of a JSON string: a function of code, field
// and echo alone.
func appendDescription(b []byte, code batch.Code, field batch.Field, echo []byte) []byte {
	for _, p := range descriptions[code] {
		switch {
		case p.optional && len(echo) == 0:
		case p.marker == 'f':
			b = append(b, fields[field].name...)
		case p.marker == 't':
			b = append(b, fields[field].kind...)
		case p.marker == 'e':
			b = append(b, `\"`...)
			b = appendEscaped(b, echo)
			b = append(b, `\"`...)
		default:
			b = append(b, p.text...)
		}
	}
	return b
}

func parseDescriptions(texts map[batch.Code]string) (all [batch.CodeCount][]piece) {
	for code := range all {
		text, ok := texts[batch.Code(code)]
		if !ok {
			text = "the item is invalid"
		}
		optional := false
		for text != "" {
			at := strings.IndexAny(text, "{[]")
			if at < 0 {
				at = len(text)
			}
			if at > 0 {
				all[code] = append(all[code], piece{text: text[:at], optional: optional})
				text = text[at:]
				continue
			}
			if text[0] == '{' {
				all[code] = append(all[code], piece{marker: text[1], optional: optional})
				text = text[strings.IndexByte(text, '}')+1:]
				continue
			}
			optional = text[0] == '['
			text = text[1:]
		}
	}
	return all
}
