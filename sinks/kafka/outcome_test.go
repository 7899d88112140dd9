package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
)

func TestOutcomeOf(t *testing.T) {
	f := func(want outcome, errs ...error) {
		t.Helper()
		for _, err := range errs {
			require.Equal(t, want, outcomeOf(err), "%v", err)
			if err != nil {
				require.Equal(t, want, outcomeOf(fmt.Errorf("wrapped: %w", err)))
			}
		}
	}
	f(acknowledged, nil, kafka.Error(46))
	f(lost, kafka.Error(45), kafka.Error(47), kafka.Error(49), kafka.Error(59), kafka.Error(90))
	f(rejected, kafka.Error(10), kafka.Error(18), kafka.Error(87))
	f(retry, kafka.Error(3), kafka.Error(5), kafka.Error(6), kafka.Error(8), kafka.Error(9), kafka.Error(56), kafka.Error(74), kafka.Error(75), kafka.Error(100))
	f(retry, kafka.Error(-1), kafka.Error(7), kafka.Error(13), kafka.Error(19), kafka.Error(20), kafka.Error(29), kafka.Error(31),
		kafka.Error(2), kafka.Error(32), kafka.Error(35), kafka.Error(76), kafka.Error(89), kafka.Error(9999),
		io.EOF, net.ErrClosed, context.DeadlineExceeded, context.Canceled, errors.New("anything"))

	// No other code is rejected, lost or acknowledged.
	counts := map[outcome]int{}
	for code := range 200 {
		if code > 0 {
			counts[outcomeOf(kafka.Error(code))]++
		}
	}
	require.Equal(t, 1, counts[acknowledged])
	require.Equal(t, 5, counts[lost])
	require.Equal(t, 3, counts[rejected])
}

func TestHint(t *testing.T) {
	f := func(err error, want string) {
		t.Helper()
		require.Contains(t, hint(err), want)
	}
	f(kafka.InvalidTimestamp, "message.timestamp.before.max.ms")
	f(kafka.UnknownTopicOrPartition, "kafka.create_topic")
	f(kafka.TopicAuthorizationFailed, "kafka.sasl")
	require.Empty(t, hint(io.EOF))
	require.Empty(t, hint(kafka.RequestTimedOut))
}
