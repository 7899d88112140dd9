package dial

import (
	"testing"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestTopicIDResponses checks that a response is decoded even if it is truncated or reports an
// error.
func TestTopicIDResponses(t *testing.T) {
	name := "forecasts"
	response := kmsg.NewMetadataResponse()
	response.Version = metadataWithID
	cluster, rack := "c1", "r1"
	response.ClusterID = &cluster
	response.Brokers = []kmsg.MetadataResponseBroker{{NodeID: 1, Host: "k1", Port: 9092, Rack: &rack}, {NodeID: 2, Host: "k2", Port: 9092}}
	about := kmsg.NewMetadataResponseTopic()
	about.Topic, about.TopicID = &name, [16]byte{1, 2, 15: 16}
	about.Partitions = make([]kmsg.MetadataResponseTopicPartition, 3)
	response.Topics = append(response.Topics, about)
	message := func() []byte { return response.AppendTo([]byte{0, 0, 0, 0, 0}) }
	id, err := decodeTopicID(message())
	require.NoError(t, err)
	require.Equal(t, TopicID{1, 2, 15: 16}, id)

	whole := message()
	for n := range len(whole) {
		if id, err := decodeTopicID(whole[:n]); err == nil {
			require.Equal(t, TopicID(about.TopicID), id, "truncated after the ID")
		}
	}
	response.Topics[0].ErrorCode = int16(kafka.UnknownTopicOrPartition)
	_, err = decodeTopicID(message())
	require.ErrorIs(t, err, kafka.UnknownTopicOrPartition)
	response.Topics = nil
	_, err = decodeTopicID(message())
	require.ErrorContains(t, err, "0 topics")
}

// FuzzTopicID checks that no response from a broker causes a panic, or an ID beside an error.
func FuzzTopicID(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 2})
	f.Add([]byte("\x00\x00\x00\x00\xff\xff\xff\xff\x07"))
	f.Fuzz(func(t *testing.T, response []byte) {
		if id, err := decodeTopicID(response); err != nil {
			require.Zero(t, id)
		}
	})
}
