package dial

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"slices"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TopicID distinguishes a topic from a deleted one with the same name. Brokers report it in
// metadata version 10 and later (KIP-516). kafka-go supports versions up to 8, so this file uses
// franz-go's messages.
type TopicID [16]byte

const metadataWithID = 10

// FetchTopicID returns the ID of the topic, or zero if the brokers are too old to report one.
func FetchTopicID(ctx context.Context, client *kafka.Client, topic string) (id TopicID, err error) {
	ctx, cancel := context.WithTimeout(ctx, client.Timeout)
	defer cancel()
	known, err := client.ApiVersions(ctx, &kafka.ApiVersionsRequest{})
	if err == nil {
		err = known.Error
	}
	if err == nil && slices.ContainsFunc(known.ApiKeys, func(api kafka.ApiVersionsResponseApiKey) bool {
		return api.ApiKey == int(protocol.Metadata) && api.MinVersion <= metadataWithID && metadataWithID <= api.MaxVersion
	}) {
		var response protocol.Message
		if response, err = client.Transport.RoundTrip(ctx, client.Addr, topicIDMessage{topic: topic}); err == nil {
			id = response.(topicIDMessage).id
		}
	}
	if err != nil {
		return id, fmt.Errorf("cannot look up topic %q on brokers %v: %w", topic, client.Addr, err)
	}
	return id, nil
}

// topicIDMessage is both the request for a topic's ID and the response. It encodes and decodes
// itself on kafka-go's connection.
type topicIDMessage struct {
	topic string
	id    TopicID // set only in the response
}

func (topicIDMessage) ApiKey() protocol.ApiKey { return protocol.Metadata }

func (topicIDMessage) Required(map[protocol.ApiKey]int16) bool { return true }

// RawExchange implements protocol.RawExchanger.
func (m topicIDMessage) RawExchange(rw io.ReadWriter) (protocol.Message, error) {
	request := kmsg.NewPtrMetadataRequest()
	request.Version = metadataWithID
	request.Topics = []kmsg.MetadataRequestTopic{{Topic: &m.topic}}
	const correlation = 0 // the connection serves one request at a time
	if _, err := rw.Write(kmsg.NewRequestFormatter().AppendRequest(nil, request, correlation)); err != nil {
		return nil, err
	}
	var size [4]byte
	if _, err := io.ReadFull(rw, size[:]); err != nil {
		return nil, err
	}
	response := make([]byte, binary.BigEndian.Uint32(size[:])) // brokerConn limits it
	if _, err := io.ReadFull(rw, response); err != nil {
		return nil, err
	}
	id, err := decodeTopicID(response)
	return topicIDMessage{m.topic, id}, err
}

func decodeTopicID(response []byte) (TopicID, error) {
	const header = 5 // correlation ID, and an empty list of tagged fields
	metadata := kmsg.NewPtrMetadataResponse()
	metadata.Version = metadataWithID
	if err := metadata.ReadFrom(response[min(header, len(response)):]); err != nil {
		return TopicID{}, fmt.Errorf("invalid broker metadata: %w", err)
	}
	if n := len(metadata.Topics); n != 1 {
		return TopicID{}, fmt.Errorf("invalid broker metadata: %d topics instead of 1", n)
	}
	topic := metadata.Topics[0]
	if topic.ErrorCode != 0 {
		return TopicID{}, kafka.Error(topic.ErrorCode)
	}
	return topic.TopicID, nil
}
