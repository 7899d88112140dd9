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

// identity is what a forecast is about (contract 2).
type identity struct{ street, fromnode int32 }

func identityOf(f *pb.StreetForecast) identity { return identity{f.Street, f.Fromnode} }

// Key is the key of a forecast's record in the topic: street:fromnode.
func Key(f *pb.StreetForecast) []byte {
	key := strconv.AppendInt(nil, int64(f.Street), 10)
	return strconv.AppendInt(append(key, ':'), int64(f.Fromnode), 10)
}

// parseKey takes plain decimal numbers only: brokers compact by the bytes of
// the key, so that each street has to have one.
func parseKey(key []byte) (identity, error) {
	street, fromnode, ok := strings.Cut(string(key), ":")
	if ok {
		id := identity{}
		if number(street, &id.street) && number(fromnode, &id.fromnode) {
			return id, nil
		}
	}
	return identity{}, fmt.Errorf("key %.64q is not street:fromnode, two 32-bit numbers", key)
}

func number(text string, into *int32) bool {
	n, err := strconv.ParseInt(text, 10, 32)
	*into = int32(n)
	return err == nil && strconv.FormatInt(n, 10) == text
}

// parseRecord reads a record of the topic. A nil value is a tombstone: then
// the forecast is nil. It keeps neither key nor value.
func parseRecord(key, value []byte) (identity, *pb.StreetForecast, Remarks, error) {
	id, err := parseKey(key)
	if err != nil || value == nil {
		return id, nil, Remarks{}, err
	}
	f, remarks, err := parseProtobuf(value)
	if err == nil && identityOf(f) != id {
		err = fmt.Errorf("key %.64q is not that of its value, %s", key, Key(f))
	}
	if err != nil {
		return id, nil, Remarks{}, err
	}
	return id, f, remarks, nil
}

// parseProtobuf reads one StreetForecast and normalises it.
func parseProtobuf(value []byte) (*pb.StreetForecast, Remarks, error) {
	if err := checkRange(value); err != nil {
		return nil, Remarks{}, err
	}
	f := new(pb.StreetForecast)
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(value, f); err != nil {
		return nil, Remarks{}, fmt.Errorf("no StreetForecast: %w", err)
	}
	remarks, err := Normalise(f)
	return f, remarks, err
}

// checkRange looks for a street or fromnode that Unmarshal would cut down to
// 32 bits without a word. What else is wrong is for Unmarshal to say.
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
				return fmt.Errorf("field %d is %d: no 32-bit number", field, int64(v))
			}
		}
		message = message[n:]
	}
	return nil
}

// parseJSON reads one StreetForecast in protobuf's JSON mapping and normalises it.
func parseJSON(text []byte) (*pb.StreetForecast, Remarks, error) {
	f := new(pb.StreetForecast)
	if string(text) == "null" {
		return nil, Remarks{}, errNoForecast
	}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(text, f); err != nil {
		return nil, Remarks{}, fmt.Errorf("no StreetForecast: %w", err)
	}
	remarks, err := Normalise(f)
	return f, remarks, err
}
