package kafka

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strconv"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"google.golang.org/protobuf/proto"

	"trafficd/cmd/dev/devstores/stores"
	"trafficd/pipeline"
	"trafficd/pipeline/batch"
	"trafficd/pipeline/sinktest"
	trafficdv1 "trafficd/schemas/proto/trafficd/v1"
)

// TestConformance runs the test that every sink passes, on one partition and on several.
func TestConformance(t *testing.T) {
	for _, partitions := range []int32{1, 3} {
		t.Run(strconv.Itoa(int(partitions)), func(t *testing.T) {
			sinktest.Run(t, func(t *testing.T) sinktest.Store { return conformanceStore(t, partitions) })
		})
	}
}

func conformanceStore(t *testing.T, partitions int32) sinktest.Store {
	broker := newFixture(t, partitions)
	wire := &wire{}
	return sinktest.Store{
		Open: func(t testing.TB) pipeline.Sink {
			s, err := New(broker.cfg, zerolog.New(zerolog.NewTestWriter(t)))
			require.NoError(t, err)
			wire.under(s)
			return s
		},
		Read: func(t testing.TB) (rows []sinktest.Row) {
			records, err := stores.ReadTopic(t.Context(), broker.ListenAddrs(), topic)
			require.NoError(t, err)
			for _, r := range records {
				var m trafficdv1.Measurement
				require.NoError(t, proto.Unmarshal(r.Value, &m))
				index, err := strconv.ParseUint(r.Header("index"), 10, 32)
				require.NoError(t, err)
				rows = append(rows, sinktest.Row{
					Batch: batch.ID(uuid.MustParse(r.Header("batch-id"))), Index: uint32(index), Detector: m.GetDetectorCode(), Type: m.GetMeasureTypeCode(),
					From: m.GetTimestampFrom().AsTime().UnixNano(), To: m.GetTimestampTo().AsTime().UnixNano(), Value: m.GetValue(),
				})
			}
			return rows
		},
		Break: func(testing.TB) (mend func()) { return wire.cut() },
		Reject: func(_ testing.TB, detector string) {
			broker.fault(kerr.InvalidRecord, -1, func(records []byte) bool { return bytes.Contains(records, []byte(detector)) })
		},
	}
}

// wire carries the connections of sinks to the brokers, and can be cut.
type wire struct {
	mu    sync.Mutex
	down  bool
	conns []net.Conn
}

// under makes a sink's connections use the wire.
func (w *wire) under(s *Sink) {
	dial := s.cluster.transport.Dial
	s.cluster.transport.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		w.mu.Lock()
		defer w.mu.Unlock()
		if err == nil && w.down {
			_ = conn.Close()
			return nil, errors.New("the wire is cut")
		}
		w.conns = append(w.conns, conn)
		return conn, err
	}
}

func (w *wire) cut() (mend func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.conns {
		_ = c.Close()
	}
	w.conns, w.down = nil, true
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.down = false
	}
}
