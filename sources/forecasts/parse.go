package forecasts

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "trafficd/schemas/proto/trafficd/v1"
)

// identity identifies a street (contract 2).
type identity struct{ street, fromnode int32 }

func identityOf(f *pb.StreetForecast) identity { return identity{f.Street, f.Fromnode} }

// Key returns the key of a forecast's record in the topic: street:fromnode.
func Key(f *pb.StreetForecast) []byte {
	key := strconv.AppendInt(nil, int64(f.Street), 10)
	return strconv.AppendInt(append(key, ':'), int64(f.Fromnode), 10)
}

// parseKey parses the key of a record. It accepts only plain decimal numbers, because brokers
// compact by the bytes of the key, so each street must have exactly one key.
func parseKey(key []byte) (identity, error) {
	street, fromnode, ok := strings.Cut(string(key), ":")
	if ok {
		id := identity{}
		if parseInt32(street, &id.street) && parseInt32(fromnode, &id.fromnode) {
			return id, nil
		}
	}
	return identity{}, fmt.Errorf("key %.64q is not street:fromnode with two 32-bit integers", key)
}

func parseInt32(text string, into *int32) bool {
	n, err := strconv.ParseInt(text, 10, 32)
	*into = int32(n)
	return err == nil && strconv.FormatInt(n, 10) == text
}

// parseRecord parses a record of the topic. For a tombstone (a nil value), it returns a nil
// forecast. It retains neither key nor value.
func parseRecord(key, value []byte, maxSpeed float64) (identity, *pb.StreetForecast, Remarks, error) {
	id, err := parseKey(key)
	if err != nil || value == nil {
		return id, nil, Remarks{}, err
	}
	f, remarks, err := parseProtobuf(value, maxSpeed)
	if err == nil && identityOf(f) != id {
		err = fmt.Errorf("key %.64q does not match its value, %s", key, Key(f))
	}
	if err != nil {
		return id, nil, Remarks{}, err
	}
	return id, f, remarks, nil
}

// ErrOutOfRange means that a street or fromnode is not an int32.
var ErrOutOfRange = errors.New("street and fromnode must be 32-bit integers")

func parseProtobuf(value []byte, maxSpeed float64) (*pb.StreetForecast, Remarks, error) {
	if err := checkFields(value); err != nil {
		return nil, Remarks{}, err
	}
	f := new(pb.StreetForecast)
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(value, f); err != nil {
		return nil, Remarks{}, fmt.Errorf("not a StreetForecast: %w", err)
	}
	remarks, err := Normalise(f, maxSpeed)
	return f, remarks, err
}

// checkFields rejects a street or fromnode that Unmarshal would silently truncate to 32 bits, and
// more periods than are allowed, which would take up to 60 times as much memory as the message.
// Other errors are left to Unmarshal.
func checkFields(message []byte) error {
	var ids [2]int64 // street and fromnode are fields 1 and 2
	periods := 0
	for len(message) > 0 {
		field, kind, n := protowire.ConsumeField(message)
		if n < 0 {
			break
		}
		if field <= 2 && kind == protowire.VarintType {
			_, _, tag := protowire.ConsumeTag(message)
			v, _ := protowire.ConsumeVarint(message[tag:])
			ids[field-1] = int64(v)
		}
		if field == 4 {
			periods++
		}
		message = message[n:]
	}
	for _, v := range ids {
		if v != int64(int32(v)) {
			return fmt.Errorf("%w: street %d, fromnode %d", ErrOutOfRange, ids[0], ids[1])
		}
	}
	return checkPeriods(periods)
}

// maxObjects is the number of JSON objects that a record may have for each allowed period, in case
// there are unknown members.
const maxObjects = 10

// parseJSON parses and normalises a StreetForecast in protobuf's JSON mapping.
func parseJSON(text []byte, maxSpeed float64) (*pb.StreetForecast, Remarks, error) {
	if string(text) == "null" {
		return nil, Remarks{}, errNoForecast
	}
	if n := bytes.Count(text, []byte("{")); n > maxObjects*maxPeriods { // would take 60 times as much memory as the text
		return nil, Remarks{}, fmt.Errorf("the record has %d JSON objects, must have at most %d", n, maxObjects*maxPeriods)
	}
	f := new(pb.StreetForecast)
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(text, f); err != nil {
		var ids struct{ Street, Fromnode json.RawMessage }
		if json.Unmarshal(text, &ids) == nil && (notInt32(ids.Street) || notInt32(ids.Fromnode)) {
			return nil, Remarks{}, fmt.Errorf("%w: street %.32s, fromnode %.32s", ErrOutOfRange, ids.Street, ids.Fromnode)
		}
		return nil, Remarks{}, fmt.Errorf("not a StreetForecast: %w", err)
	}
	remarks, err := Normalise(f, maxSpeed)
	return f, remarks, err
}

// notInt32 reports whether text is an integer, possibly in quotes, but not an int32.
func notInt32(text []byte) bool {
	if len(text) > 100 {
		return false
	}
	v, ok := new(big.Int).SetString(strings.Trim(string(text), `"`), 10)
	return ok && (!v.IsInt64() || v.Int64() < math.MinInt32 || v.Int64() > math.MaxInt32)
}
