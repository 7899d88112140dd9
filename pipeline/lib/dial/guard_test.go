package dial

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"trafficd/cmd/dev/devstores/stores"
)

// TestPipelinedRequests checks that responses are matched with requests in order, whatever the size
// of reads and writes, and that SASL tokens of brokers before Kafka 1.0, which have no headers,
// pass.
func TestPipelinedRequests(t *testing.T) {
	format := kmsg.NewRequestFormatter()
	metadata, fetch, handshake := kmsg.NewPtrMetadataRequest(), kmsg.NewPtrFetchRequest(), kmsg.NewPtrSASLHandshakeRequest()
	metadata.Version = 9 // flexible
	var requests []byte
	for i, r := range []kmsg.Request{metadata, fetch, handshake} {
		requests = append(requests, format.AppendRequest(nil, r, int32(i))...)
	}
	const token = "\x00\x00\x00\x05token"
	requests = append(requests, token...)

	described := kmsg.NewPtrMetadataResponse()
	described.Version = metadata.Version
	responses := string(described.AppendTo([]byte{0, 0, 0, 0, 0, 0, 0, 0, 0})) // correlation 0, no tagged fields
	responses = responses[:3] + string([]byte{byte(len(responses) - 4)}) + responses[4:]
	responses += "\x00\x00\x00\x0a\x00\x00\x00\x01fetch!"                                     // not checked
	responses += "\x00\x00\x00\x0a\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x05ok" // no error, no mechanisms
	f := func(size int) {
		client, server := net.Pipe()
		defer client.Close()
		defer server.Close()
		sent := make(chan string)
		go func() {
			b := make([]byte, len(requests))
			_, _ = io.ReadFull(server, b)
			_, _ = io.WriteString(server, responses)
			sent <- string(b)
		}()
		c := &brokerConn{Conn: client}
		for rest := requests; len(rest) > 0; rest = rest[min(size, len(rest)):] {
			_, err := c.Write(rest[:min(size, len(rest))])
			require.NoError(t, err)
		}
		var got []byte
		for b := make([]byte, size); len(got) < len(responses); {
			n, err := c.Read(b)
			require.NoError(t, err)
			got = append(got, b[:n]...)
		}
		require.Equal(t, responses, string(got))
		require.Equal(t, string(requests), <-sent)
	}
	for size := 1; size <= len(requests); size++ {
		f(size)
	}
}

// TestLargeResponse reads the committed cursors of 1000 partitions, the maximum of a log in Kafka,
// each as large as brokers allow by default.
func TestLargeResponse(t *testing.T) {
	const partitions = 1000
	k := DefaultKafka("log")
	k.Brokers = stores.StartKfake(t, kfake.SeedTopics(partitions, k.Topic)).ListenAddrs()
	transport, err := k.Transport()
	require.NoError(t, err)
	defer transport.CloseIdleConnections()
	client := &kafka.Client{Addr: k.Addr(), Timeout: time.Minute, Transport: transport}
	var commits []kafka.OffsetCommit
	var all []int
	for p := range partitions {
		commits = append(commits, kafka.OffsetCommit{Partition: p, Metadata: strings.Repeat("x", 4096)})
		all = append(all, p)
	}
	_, err = client.OffsetCommit(t.Context(), &kafka.OffsetCommitRequest{
		GroupID: "g", GenerationID: -1, Topics: map[string][]kafka.OffsetCommit{k.Topic: commits},
	})
	require.NoError(t, err)
	r, err := client.OffsetFetch(t.Context(), &kafka.OffsetFetchRequest{GroupID: "g", Topics: map[string][]int{k.Topic: all}})
	require.NoError(t, err)
	require.Len(t, r.Topics[k.Topic], partitions)
	for _, p := range r.Topics[k.Topic] {
		require.Len(t, p.Metadata, 4096)
	}
}
