package xroute

import (
	"encoding/base64"
	"errors"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"trafficd/schemas/geo"
)

// simple is a type whose value is text.
type simple struct {
	label  string // T in the name of its array, ArrayOf<T>
	space  string // namespace of an enumeration
	xsd    string // name in XML Schema; for an enumeration, the name of its base
	goType reflect.Type
	values []string // values of an enumeration

	set    func(v reflect.Value, text string) error
	append func(dst []byte, v reflect.Value) []byte
}

func primitives() []*simple {
	return []*simple{
		{label: "Calendar", xsd: "dateTime", goType: reflect.TypeFor[time.Time](), set: setTime, append: appendTime},
		{label: "String", xsd: "string", goType: reflect.TypeFor[string](), set: setString, append: appendString},
		{label: "byte", xsd: "base64Binary", goType: reflect.TypeFor[[]byte](), set: setBytes, append: appendBytes},
		{label: "short", xsd: "short", goType: reflect.TypeFor[int16](), set: setInt, append: appendInt},
		{label: "int", xsd: "int", goType: reflect.TypeFor[int32](), set: setInt, append: appendInt},
		{label: "long", xsd: "long", goType: reflect.TypeFor[int64](), set: setInt, append: appendInt},
		{label: "float", xsd: "float", goType: reflect.TypeFor[float32](), set: setFloat, append: appendFloat},
		{label: "double", xsd: "double", goType: reflect.TypeFor[float64](), set: setFloat, append: appendFloat},
		{label: "boolean", xsd: "boolean", goType: reflect.TypeFor[bool](), set: setBool, append: appendBool},
	}
}

func enumerations() []*simple {
	return []*simple{
		enumeration(nsCommon, "GeometryEncoding", EncodingPlain, EncodingWKB, EncodingWKT, EncodingKML),
		enumeration(nsCommon, "CoordFormat", geo.Formats()...),
		enumeration(nsCommon, "JobStatus",
			StatusQueuing, StatusRunning, StatusStopping, StatusSucceeded, StatusFailed, StatusDeleted, StatusUnknown),
		enumeration(nsExceptions, "ErrorCode", CodeInvalidWKT, CodeInvalidWKB, CodeInvalidKML, CodePlacemarkNotFound,
			CodeGeometryObject, CodeCoordinateFormat, CodeGeometryEncoding),
	}
}

func enumeration[T ~string](space, label string, values ...T) *simple {
	e := &simple{label: label, space: space, xsd: "string", goType: reflect.TypeFor[T](), append: appendString}
	for _, v := range values {
		e.values = append(e.values, string(v))
	}
	e.set = func(v reflect.Value, text string) error {
		text = trim(text)
		if !slices.Contains(e.values, text) {
			return e.wanted()
		}
		v.SetString(text)
		return nil
	}
	return e
}

func (s *simple) wanted() error { return errors.New("must be one of " + strings.Join(s.values, ", ")) }

// trim removes leading and trailing XML white space.
func trim(text string) string { return strings.Trim(text, " \t\r\n") }

func setString(v reflect.Value, text string) error {
	v.SetString(text)
	return nil
}

func appendString(dst []byte, v reflect.Value) []byte { return appendText(dst, v.String()) }

// setBytes accepts white space anywhere, because toolkits break lines at 76 bytes.
func setBytes(v reflect.Value, text string) error {
	if strings.ContainsAny(text, " \t\r\n") {
		text = strings.Join(strings.Fields(text), "")
	}
	decoded, err := base64.StdEncoding.Strict().DecodeString(text)
	v.SetBytes(decoded)
	return err
}

func appendBytes(dst []byte, v reflect.Value) []byte {
	return base64.StdEncoding.AppendEncode(dst, v.Bytes())
}

func setInt(v reflect.Value, text string) error {
	n, err := strconv.ParseInt(trim(text), 10, v.Type().Bits())
	v.SetInt(n)
	return cause(err)
}

func appendInt(dst []byte, v reflect.Value) []byte { return strconv.AppendInt(dst, v.Int(), 10) }

// setFloat accepts the forms that XML Schema allows. Package strconv accepts more, such as "inf"
// and hexadecimal numbers.
func setFloat(v reflect.Value, text string) error {
	text = trim(text)
	switch text {
	case "INF", "+INF":
		v.SetFloat(math.Inf(1))
	case "-INF":
		v.SetFloat(math.Inf(-1))
	case "NaN":
		v.SetFloat(math.NaN())
	default:
		if strings.Trim(text, "0123456789+-.eE") != "" {
			return strconv.ErrSyntax
		}
		f, err := strconv.ParseFloat(text, v.Type().Bits())
		v.SetFloat(f)
		return cause(err)
	}
	return nil
}

func appendFloat(dst []byte, v reflect.Value) []byte {
	switch f := v.Float(); {
	case math.IsInf(f, 1):
		return append(dst, "INF"...)
	case math.IsInf(f, -1):
		return append(dst, "-INF"...)
	default:
		return strconv.AppendFloat(dst, f, 'g', -1, v.Type().Bits())
	}
}

func setBool(v reflect.Value, text string) error {
	b, ok := parseBool(text)
	if !ok {
		return errors.New("must be true, false, 1 or 0")
	}
	v.SetBool(b)
	return nil
}

func parseBool(text string) (value, ok bool) {
	switch trim(text) {
	case "true", "1":
		return true, true
	case "false", "0":
		return false, true
	}
	return false, false
}

func appendBool(dst []byte, v reflect.Value) []byte { return strconv.AppendBool(dst, v.Bool()) }

// setTime reads an xsd:dateTime. A time without a zone is in UTC.
func setTime(v reflect.Value, text string) error {
	text = trim(text)
	if n := len("2006-01-02T15:04:05"); len(text) >= n && !strings.ContainsAny(text[n:], "Z+-") {
		text += "Z"
	}
	var at time.Time
	if at.UnmarshalText([]byte(text)) != nil {
		return errors.New("must be a time such as 2026-03-01T12:30:00Z")
	}
	v.Set(reflect.ValueOf(at.UTC()))
	return nil
}

func appendTime(dst []byte, v reflect.Value) []byte {
	return v.Interface().(time.Time).UTC().AppendFormat(dst, time.RFC3339Nano)
}

// cause returns the reason in an error of strconv, without the name of the Go function.
func cause(err error) error {
	if number, ok := errors.AsType[*strconv.NumError](err); ok {
		return number.Err
	}
	return err
}
