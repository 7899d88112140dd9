package decode

import (
	"math"

	"trafficd/pipeline/batch"
	"trafficd/schemas/contract"
)

const required = contract.FieldSet(1<<contract.FieldDetectorCode | 1<<contract.FieldMeasureTypeCode |
	1<<contract.FieldTimestampFrom | 1<<contract.FieldTimestampTo | 1<<contract.FieldValue)

// maxTypeLen is the maximum length of a measure type code (contract 1.2, rule 8). Longer codes are
// truncated to maxTypeLen+1 bytes, so that they remain invalid.
const maxTypeLen = 64

type row struct {
	kind           uint32
	from, to       int64
	value, quality float64

	seen, present contract.FieldSet
	batch.Fault
}

// item decodes an item of any shape and learns its layout.
func (d *Decoder) item(it *batch.Items) {
	start := d.base
	d.learn.begin(d.pos)
	r := row{from: batch.NoTime, to: batch.NoTime, value: math.NaN(), quality: math.NaN()}
	if d.next() != '{' {
		d.skipValue()
		r.NotObject = true
	} else {
		d.pos++
		d.depth++
		codes := len(it.Codes)
		for more := d.firstMember(); more; more = d.nextMember() {
			d.member(it, &r, codes)
		}
		d.depth--
		r.Absent = required &^ r.present
	}
	faulty := r.NotObject || r.LinkID || r.Duplicate|r.Absent|r.WrongType != 0
	if faulty {
		r.Row = uint32(it.Count)
		it.Faults = append(it.Faults, r.Fault)
	} else if d.err == nil && d.learn.complete && d.base == start {
		d.layouts.add(&d.learn, d.buf, d.pos)
	}
	it.CodeEnd = append(it.CodeEnd, uint32(len(it.Codes)))
	it.Type = append(it.Type, r.kind)
	it.From = append(it.From, r.from)
	it.To = append(it.To, r.to)
	it.Value = append(it.Value, r.value)
	it.Quality = append(it.Quality, r.quality)
}

// member decodes the value of the member whose name is in d.text.
func (d *Decoder) member(it *batch.Items, r *row, codes int) {
	f := fieldOf(d.text, d.long)
	if f == contract.FieldItem {
		d.skipUnknown()
		return
	}
	r.Duplicate |= r.seen & f.Bit()
	r.seen |= f.Bit()
	c := d.next()
	if c == 'n' {
		d.literal("null")
		return
	}
	r.present |= f.Bit()
	at := d.pos
	switch f {
	case contract.FieldLinkID:
		r.LinkID = true
		d.skipValue()
		return
	case contract.FieldValue, contract.FieldQuality:
		if c != '-' && (c < '0' || c > '9') {
			r.WrongType |= f.Bit()
			d.skipValue()
			return
		}
		if d.num() {
			d.learn.add(f, at, d.pos, false, true)
			if f == contract.FieldValue {
				r.value = d.number()
			} else {
				r.quality = d.number()
			}
		}
	default:
		if c != '"' {
			r.WrongType |= f.Bit()
			d.skipValue()
			return
		}
		if d.str() {
			d.learn.add(f, at, d.pos, true, d.plain)
			switch f {
			case contract.FieldDetectorCode:
				it.Codes = append(it.Codes[:codes], d.text[:min(len(d.text), batch.MaxCodeLen+1)]...)
			case contract.FieldMeasureTypeCode:
				r.kind = d.types.find(d.text[:min(len(d.text), maxTypeLen+1)], it)
			case contract.FieldTimestampFrom:
				r.from = d.time(it, f)
			case contract.FieldTimestampTo:
				r.to = d.time(it, f)
			}
		}
	}
}

// skipUnknown skips the value of an unknown member.
func (d *Decoder) skipUnknown() {
	c := d.next()
	at := d.pos
	if !d.skipValue() {
		return
	}
	switch c {
	case '{', '[':
		d.learn.complete = false
	case 't', 'f', 'n': // the value is part of the glue
	default:
		d.learn.add(contract.FieldItem, at, d.pos, c == '"', c != '"' || d.plain)
	}
}

// time parses d.text as a timestamp. For an invalid one, it keeps the text and returns NoTime.
func (d *Decoder) time(it *batch.Items, f contract.Field) int64 {
	if ns, ok := parseTimestamp(d.text); ok && !d.long {
		return ns
	}
	off := len(it.Text)
	it.Text = append(it.Text, d.text[:min(len(d.text), contract.EchoLimit)]...)
	it.Raw = append(it.Raw, batch.RawText{Row: uint32(it.Count), Field: f, Off: uint32(off), Len: uint32(len(it.Text) - off)})
	return batch.NoTime
}

func fieldOf(name []byte, long bool) contract.Field {
	if long {
		return contract.FieldItem
	}
	switch string(name) {
	case "detectorCode":
		return contract.FieldDetectorCode
	case "measureTypeCode":
		return contract.FieldMeasureTypeCode
	case "timestampFrom":
		return contract.FieldTimestampFrom
	case "timestampTo":
		return contract.FieldTimestampTo
	case "value":
		return contract.FieldValue
	case "quality":
		return contract.FieldQuality
	case "linkId":
		return contract.FieldLinkID
	}
	return contract.FieldItem
}
