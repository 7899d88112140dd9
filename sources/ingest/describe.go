package ingest

import (
	"strings"

	"trafficd/schemas/contract"
)

// descriptions say to a person what is wrong with an item. {field}, {type} and
// {echo} are filled in; what stands in [ ] is left out where there is no input
// to repeat. The texts need no escape in JSON.
var descriptions = parseDescriptions(map[contract.Code]string{
	contract.BatchLimitExceeded: "the item is past the limit of items in a batch and was not examined: send it again in another batch",
	contract.InvalidType:        "{field} has to be {type}",
	contract.DuplicateField:     "{field} stands more than once",
	contract.ReservedField:      "the reserved field {field} must be null or absent",
	contract.MissingField:       "{field} is missing or null",
	contract.UnknownDetector:    "the detector[ {echo}] does not exist in the product instance",
	contract.UnknownMeasureType: "the measure type[ {echo}] is not an allowed one",
	contract.InvalidTimestamp:   "{field}[ {echo}] is not an ISO 8601 date-time in UTC, such as 2026-01-31T12:00:00Z, of the years 1970 to 2261",
	contract.InvalidInterval:    "{field}[ {echo}] is before timestampFrom",
	contract.TimestampInFuture:  "{field}[ {echo}] is too far in the future",
	contract.InvalidValue:       "{field}[ {echo}] is not a finite number within the range of its measure type",
	contract.InvalidQuality:     "{field}[ {echo}] is not a finite number within the allowed range",
})

// fields has for each field what {field} and {type} stand for.
var fields = [contract.FieldCount]struct{ name, kind string }{
	contract.FieldItem:            {"the item", "an object"},
	contract.FieldDetectorCode:    {"detectorCode", "a string"},
	contract.FieldMeasureTypeCode: {"measureTypeCode", "a string"},
	contract.FieldTimestampFrom:   {"timestampFrom", "a string"},
	contract.FieldTimestampTo:     {"timestampTo", "a string"},
	contract.FieldValue:           {"value", "a number"},
	contract.FieldQuality:         {"quality", "a number or null"},
	contract.FieldLinkID:          {"linkId", "null"},
}

// piece is a part of a description: a text, or one of the markers.
type piece struct {
	text     string
	marker   byte // 'f', 't' or 'e'; 0 for a text
	optional bool // only where there is an echo
}

// appendDescription appends the inside of a JSON string: a function of code, field
// and echo alone.
func appendDescription(b []byte, code contract.Code, field contract.Field, echo []byte) []byte {
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

func parseDescriptions(texts map[contract.Code]string) (all [contract.CodeCount][]piece) {
	for code := range all {
		text, ok := texts[contract.Code(code)]
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
