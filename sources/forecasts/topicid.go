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
)

// topicID distinguishes a topic from one of the same name, created after it was deleted. Brokers
// report it in metadata of version 10 and later (KIP-516). kafka-go supports up to version 8, so
// that request and answer are encoded here.
type topicID [16]byte

const metadataWithID = 10

var errShortMetadata = errors.New("unexpected end of the broker's metadata")

// askTopicID asks any broker. If it is too old to know, the identifier is zero.
func askTopicID(ctx context.Context, client *kafka.Client, topic string) (topicID, error) {
	known, err := client.ApiVersions(ctx, &kafka.ApiVersionsRequest{})
	if err == nil {
		err = known.Error
	}
	if err != nil || !slices.ContainsFunc(known.ApiKeys, func(api kafka.ApiVersionsResponseApiKey) bool {
		return api.ApiKey == int(protocol.Metadata) && api.MinVersion <= metadataWithID && metadataWithID <= api.MaxVersion
	}) {
		return topicID{}, err
	}
	answer, err := client.Transport.RoundTrip(ctx, client.Addr, &topicIDRequest{topic})
	if err != nil {
		return topicID{}, err
	}
	r := answer.(*topicIDResponse)
	if r.code != 0 {
		return topicID{}, kafka.Error(r.code)
	}
	return r.id, nil
}

// topicIDRequest encodes itself and decodes its answer on kafka-go's connection.
type topicIDRequest struct{ topic string }

// topicIDResponse is the part of the answer that is used.
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
		return nil, fmt.Errorf("metadata of %d bytes, must be at most %d", n, maxBytes)
	}
	answer := make([]byte, n)
	if _, err := io.ReadFull(rw, answer); err != nil {
		return nil, err
	}
	return decodeTopicID(answer)
}

// encode returns the request with its header. A compact length is one more than the count, 0
// meaning null; the 0 at the end of a structure means no tagged fields.
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

// decodeTopicID reads as far as the identifier of the first topic.
func decodeTopicID(answer []byte) (*topicIDResponse, error) {
	d := &compact{rest: answer}
	d.skip(4) // correlation
	d.tags()
	d.skip(4) // throttle time
	for range d.length() {
		if d.skip(4); d.short { // node
			break
		}
		d.text() // host
		d.skip(4)
		d.text() // rack
		d.tags()
	}
	d.text()  // cluster
	d.skip(4) // controller
	if topics := d.length(); !d.short && topics != 1 {
		return nil, fmt.Errorf("the broker's metadata is about %d topics, want 1", topics)
	}
	r := new(topicIDResponse)
	if code := d.skip(2); code != nil {
		r.code = int16(binary.BigEndian.Uint16(code))
	}
	d.text() // name
	copy(r.id[:], d.skip(len(r.id)))
	if d.short {
		return nil, errShortMetadata
	}
	return r, nil
}

// compact reads an answer in the compact encoding.
type compact struct {
	rest  []byte
	short bool // the answer ended too early
}

// skip returns the next n bytes, nil if there are fewer.
func (c *compact) skip(n int) []byte {
	if c.short = c.short || n > len(c.rest); c.short {
		return nil
	}
	skipped := c.rest[:n]
	c.rest = c.rest[n:]
	return skipped
}

func (c *compact) number() int {
	v, n := binary.Uvarint(c.rest)
	if c.skip(max(n, 0)); n <= 0 || v > uint64(1<<31) {
		c.short = true
		return 0
	}
	return int(v)
}

// length reads the length of a list or a text, null being empty.
func (c *compact) length() int { return max(0, c.number()-1) }

func (c *compact) text() { c.skip(c.length()) }

func (c *compact) tags() {
	for range c.number() {
		if c.number(); c.short {
			return
		}
		c.skip(c.number())
	}
}
