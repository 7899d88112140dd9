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

	"trafficd/cmd/dev/devstores/stores"
)

// TestSizeOfResponses checks that responses of any size arrive unchanged, whatever the size of
// reads, up to the first that is too large.
func TestSizeOfResponses(t *testing.T) {
	const valid = "\x00\x00\x00\x05first\x00\x00\x00\x00\x00\x00\x00\x01x" // an empty SASL token has no bytes
	f := func(size int) {
		t.Helper()
		client, server := net.Pipe()
		defer client.Close()
		go func() {
			_, _ = io.WriteString(server, valid+"HTTP/1.1")
			_ = server.Close()
		}()
		c := &brokerConn{Conn: client}
		var got []byte
		b := make([]byte, size)
		n, err := c.Read(b)
		for ; err == nil; n, err = c.Read(b) {
			got = append(got, b[:n]...)
		}
		require.ErrorContains(t, err, `is not a Kafka broker, or it requires TLS: its response begins with "HTTP"`)
		require.Equal(t, valid, string(got[:len(valid)]))
		require.Less(t, len(got), len(valid)+4)
	}
	for size := range len(valid) {
		f(size + 1)
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
