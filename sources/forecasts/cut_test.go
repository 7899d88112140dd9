package forecasts

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/pipeline/lib/watch"
)

// simulation is a topic whose producer writes one transaction after the other. Each has a record
// for one street of each partition. The commit reaches the partitions one after the other.
type simulation struct {
	random    *rand.Rand
	written   []int // indexed by partition: the transactions written
	committed []int // indexed by partition: the transactions committed
}

// step performs the next step of the producer.
func (s *simulation) step() {
	oldest, newest := s.written[0], s.written[0]
	for _, n := range s.written {
		oldest, newest = min(oldest, n), max(newest, n)
	}
	target := newest // the transaction being written
	if oldest == newest {
		for p := range s.committed {
			if s.committed[p] < newest { // the transaction being committed
				for q := s.random.IntN(len(s.committed)); ; q = (q + 1) % len(s.committed) {
					if s.committed[q] < newest {
						s.committed[q]++
						return
					}
				}
			}
		}
		target++
	}
	for p := s.random.IntN(len(s.written)); ; p = (p + 1) % len(s.written) {
		if s.written[p] < target {
			s.written[p]++
			return
		}
	}
}

// TestPollsShowWholeTransactions reads partitions one after the other while transactions are
// written and committed. After each poll, exactly one transaction must be shown, and it must not be
// older than the one shown before.
func TestPollsShowWholeTransactions(t *testing.T) {
	const partitions = 4
	for seed := range uint64(200) {
		layer := newFakeLayer(t)
		feed, err := newTopicFeed(topicConfig("f", "127.0.0.1:1"), layer, &faults{})
		require.NoError(t, err)
		s := &simulation{rand.New(rand.NewPCG(seed, 0)), make([]int, partitions), make([]int, partitions)}
		s.step() // from now on, a layer without streets must not be shown
		now, shown := time.Now(), 0.0
		for poll := range 60 {
			for p := range partitions {
				for range s.random.IntN(min(1+poll, 20)) { // slowly at first: some polls see no commit
					s.step()
				}
				for feed.next[p] < int64(s.committed[p]) {
					offset := feed.next[p]
					feed.next[p]++
					apply := feed.applyNow
					if feed.cut.holds(1, int16(offset)) {
						apply = feed.hold
					}
					f := street(int32(p+1), 1, float64(offset+1))
					require.NoError(t, apply(identityOf(f), latest{forecast: f, partition: p, offset: offset}))
				}
				feed.ends[p] = int64(s.written[p])
			}
			if err := feed.settle(nil, now); err != nil { // at a fixed time, so that no wait expires
				require.True(t, err == errTopicWritten || err == watch.ErrUnchanged, err)
			}
			if layer.visible == nil {
				continue
			}
			require.Len(t, layer.visible, partitions, "seed %d", seed)
			speed := layer.visible[identity{1, 1}].Forecast[0].Speed
			for p := range partitions {
				require.Equal(t, fmt.Sprintf("%d:1 %g", p+1, speed), layer.shown()[p], "seed %d", seed)
			}
			require.GreaterOrEqual(t, speed, shown, "seed %d", seed)
			shown = speed
		}
		require.Greater(t, shown, 10.0, "seed %d: transactions must be shown while others are written", seed)
		feed.close()
	}
}
