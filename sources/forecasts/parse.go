package forecasts

import (
	"fmt"
	"math"
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

// parseKey accepts plain decimal numbers only: brokers compact by the bytes of the key, so that each
// street must have exactly one.
func parseKey(key []byte) (identity, error) {
	street, fromnode, ok := strings.Cut(string(key), ":")
	if ok {
		id := identity{}
		if parseInt32(street, &id.street) && parseInt32(fromnode, &id.fromnode) {
			return id, nil
		}
	}
	return identity{}, fmt.Errorf("key %.64q is not street:fromnode, two 32-bit integers", key)
}

func parseInt32(text string, into *int32) bool {
	n, err := strconv.ParseInt(text, 10, 32)
	*into = int32(n)
	return err == nil && strconv.FormatInt(n, 10) == text
}

// parseRecord parses a record of the topic. The forecast of a nil value, a tombstone, is nil. It keeps
// neither key nor value.
func parseRecord(key, value []byte) (identity, *pb.StreetForecast, Remarks, error) {
	id, err := parseKey(key)
	if err != nil || value == nil {
		return id, nil, Remarks{}, err
	}
	f, remarks, err := parseProtobuf(value)
	if err == nil && identityOf(f) != id {
		err = fmt.Errorf("key %.64q does not match its value, %s", key, Key(f))
	}
	if err != nil {
		return id, nil, Remarks{}, err
	}
	return id, f, remarks, nil
}

// parseProtobuf parses and normalises a StreetForecast.
func parseProtobuf(value []byte) (*pb.StreetForecast, Remarks, error) {
	if err := checkRange(value); err != nil {
		return nil, Remarks{}, err
	}
	f := new(pb.StreetForecast)
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(value, f); err != nil {
		return nil, Remarks{}, fmt.Errorf("not a StreetForecast: %w", err)
	}
	remarks, err := Normalise(f)
	return f, remarks, err
}

// checkRange rejects a street or fromnode that Unmarshal would silently truncate to 32 bits. Other
// errors are left to Unmarshal.
func checkRange(message []byte) error {
	for len(message) > 0 {
		field, kind, n := protowire.ConsumeField(message)
		if n < 0 {
			return nil
		}
		if (field == 1 || field == 2) && kind == protowire.VarintType {
			_, _, tag := protowire.ConsumeTag(message)
			v, _ := protowire.ConsumeVarint(message[tag:])
			if int64(v) < math.MinInt32 || int64(v) > math.MaxInt32 {
				return fmt.Errorf("field %d is %d, must be a 32-bit integer", field, int64(v))
			}
		}
		message = message[n:]
	}
	return nil
}

// parseJSON parses and normalises a StreetForecast in protobuf's JSON mapping.
func parseJSON(text []byte) (*pb.StreetForecast, Remarks, error) {
	f := new(pb.StreetForecast)
	if string(text) == "null" {
		return nil, Remarks{}, errNoForecast
	}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(text, f); err != nil {
		return nil, Remarks{}, fmt.Errorf("not a StreetForecast: %w", err)
	}
	remarks, err := Normalise(f)
	return f, remarks, err
}
