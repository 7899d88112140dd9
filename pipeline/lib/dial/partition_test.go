package dial

import (
	"testing"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
)

// TestMurmur2 checks that the hashes are those of UtilsTest.testMurmur2 in Apache Kafka.
func TestMurmur2(t *testing.T) {
	f := func(key string, want int32) {
		t.Helper()
		require.Equal(t, want, int32(murmur2([]byte(key))), key)
	}
	f("21", -973932308)
	f("foobar", -790332482)
	f("a-little-bit-long-string", -985981536)
	f("a-little-bit-longer-string", -1486304829)
	f("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971)
	f("abc", 479470107)
}

func TestPartitionOf(t *testing.T) {
	f := func(key string, n, want int) {
		t.Helper()
		require.Equal(t, want, PartitionOf([]byte(key), n), key)
	}
	f("21", 1, 0)
	f("21", 6, 1173551340%6)
	f("foobar", 12, 1357151166%12)
	f("abc", 7, 479470107%7)
	f("", 6, 275646681%6)

	// kafka-go's own balancer agrees.
	all, balancer := []int{0, 1, 2, 3, 4, 5, 6}, kafka.Murmur2Balancer{}
	for _, code := range []string{"ä", "DET-000001", "DET-000002", "x", "xy", "xyz"} {
		require.Equal(t, balancer.Balance(kafka.Message{Key: []byte(code)}, all...), PartitionOf([]byte(code), 7), code)
	}
}
