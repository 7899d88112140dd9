package forecasts

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"

	"trafficd/pipeline/batch"
)

// topicID distinguishes a topic from a deleted one with the same name. Brokers report it in
// metadata version 10 and later (KIP-516). kafka-go supports versions up to 8, so this file encodes
// the request and decodes the response.
type topicID [16]byte

const metadataWithID = 10

var errMetadata = errors.New("invalid broker metadata")

// fetchTopicID asks a broker for the id of the topic. The id is zero if the broker is too old to
// report it.
func fetchTopicID(ctx context.Context, client *kafka.Client, topic string) (topicID, error) {
	known, err := client.ApiVersions(ctx, &kafka.ApiVersionsRequest{})
	if err == nil {
		err = known.Error
	}
	if err != nil || !slices.ContainsFunc(known.ApiKeys, func(api kafka.ApiVersionsResponseApiKey) bool {
		return api.ApiKey == int(protocol.Metadata) && api.MinVersion <= metadataWithID && metadataWithID <= api.MaxVersion
	}) {
		return topicID{}, err
	}
	response, err := client.Transport.RoundTrip(ctx, client.Addr, &topicIDRequest{topic})
	if err != nil {
		return topicID{}, err
	}
	r := response.(*topicIDResponse)
	if r.code != 0 {
		return topicID{}, kafka.Error(r.code)
	}
	return r.id, nil
}

// topicIDRequest encodes itself and decodes its response on kafka-go's connection.
type topicIDRequest struct{ topic string }

// topicIDResponse holds the fields of the response that are used.
type topicIDResponse struct {
	code int16
	id   topicID
}

// ApiKey implements protocol.Message.
func (*topicIDRequest) ApiKey() protocol.ApiKey { return protocol.Metadata }

// ApiKey implements protocol.Message.
func (*topicIDResponse) ApiKey() protocol.ApiKey { return protocol.Metadata }

// Required implements protocol.RawExchanger.
func (*topicIDRequest) Required(map[protocol.ApiKey]int16) bool { return true }

// RawExchange implements protocol.RawExchanger.
func (r *topicIDRequest) RawExchange(rw io.ReadWriter) (protocol.Message, error) {
	if _, err := rw.Write(r.encode()); err != nil {
		return nil, err
	}
	var size [4]byte
	if _, err := io.ReadFull(rw, size[:]); err != nil {
		return nil, err
	}
	const maxBytes = 1 << 20 // enough for thousands of brokers
	n := binary.BigEndian.Uint32(size[:])
	if n > maxBytes {
		return nil, fmt.Errorf("metadata response of %d bytes exceeds the limit of %d bytes", n, maxBytes)
	}
	response := make([]byte, n)
	if _, err := io.ReadFull(rw, response); err != nil {
		return nil, err
	}
	return decodeTopicID(response)
}

// encode returns the request with its header. A compact length is the count plus one, with 0
// meaning null. The 0 at the end of a structure means no tagged fields.
func (r *topicIDRequest) encode() []byte {
	b := make([]byte, 4, 64+len(r.topic))
	b = binary.BigEndian.AppendUint16(b, uint16(protocol.Metadata))
	b = binary.BigEndian.AppendUint16(b, metadataWithID)
	b = binary.BigEndian.AppendUint32(b, 0)      // correlation id: the connection serves one request at a time
	b = binary.BigEndian.AppendUint16(b, 0xffff) // no client id
	b = append(b, 0)
	b = append(b, 2) // one topic
	b = append(b, make([]byte, len(topicID{}))...)
	b = binary.AppendUvarint(b, uint64(len(r.topic))+1)
	b = append(b, r.topic...)
	b = append(b, 0)
	b = append(b, 0, 0, 0) // do not create topics; do not include authorized operations
	b = append(b, 0)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

// decodeTopicID decodes the response up to the ID of the first topic.
func decodeTopicID(response []byte) (*topicIDResponse, error) {
	d := decoder{batch.NewWireReader(response, errMetadata)}
	d.Bytes(4) // correlation id
	d.skipTags()
	d.Bytes(4) // throttle time
	for range d.length() {
		if d.Err() != nil {
			break
		}
		d.Bytes(4)   // node
		d.skipText() // host
		d.Bytes(4)   // port
		d.skipText() // rack
		d.skipTags()
	}
	d.skipText() // cluster
	d.Bytes(4)   // controller
	if topics := d.length(); d.Err() == nil && topics != 1 {
		return nil, fmt.Errorf("%w: %d topics instead of 1", errMetadata, topics)
	}
	r := new(topicIDResponse)
	if code := d.Bytes(2); code != nil {
		r.code = int16(binary.BigEndian.Uint16(code))
	}
	d.skipText() // name
	copy(r.id[:], d.Bytes(len(r.id)))
	if err := d.Err(); err != nil {
		return nil, err
	}
	return r, nil
}

// decoder reads Kafka's compact encoding.
type decoder struct{ batch.WireReader }

// length reads the length of a list or a string; null counts as empty.
func (d *decoder) length() int { return max(0, int(d.Uvarint())-1) }

func (d *decoder) skipText() { d.Bytes(d.length()) }

func (d *decoder) skipTags() {
	for range int(d.Uvarint()) {
		if d.Err() != nil {
			return
		}
		d.Uvarint()
		d.Bytes(int(d.Uvarint()))
	}
}
