package judge

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/protobuf/proto"

	"trafficd/cmd/dev/launch"
	pb "trafficd/schemas/proto/trafficd/v1"
)

var (
	rules = Settings{Streets: 2, Periods: 3, Step: time.Minute, Every: 2 * time.Second, Tolerance: 0.5}
	noon  = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
)

// street is the forecast of a street from an origin.
func street(number int32, origin time.Time, speed float64) *pb.StreetForecast {
	f := &pb.StreetForecast{Street: number, Fromnode: 1}
	for i := range rules.Periods {
		start := origin.Truncate(rules.Step).Add(time.Duration(i) * rules.Step)
		f.Forecast = append(f.Forecast, &pb.ForecastPeriod{
			Start: start.Format(time.RFC3339), End: start.Add(rules.Step).Format(time.RFC3339), Speed: speed, SpeedValid: new(true),
		})
	}
	return f
}

func layerOf(t *testing.T, streets ...*pb.StreetForecast) Layer {
	t.Helper()
	body, err := proto.Marshal(&pb.StreetForecastResponse{StreetForecast: streets})
	require.NoError(t, err)
	l, err := ParseLayer(body)
	require.NoError(t, err)
	return l
}

// TestPublications checks that a transaction ends where the producer epoch changes, in all
// partitions.
func TestPublications(t *testing.T) {
	record := func(partition int32, epoch int16, key string, f *pb.StreetForecast) launch.Record {
		r := launch.Record{Record: &kgo.Record{Partition: partition, ProducerID: 7, ProducerEpoch: epoch, Key: []byte(key)}}
		if f != nil {
			r.Value, _ = proto.Marshal(f)
		}
		return r
	}
	one, two, later := street(1, noon, 40), street(2, noon, 50), street(1, noon, 41)
	all, err := Publications([]launch.Record{
		record(0, 1, "1:1", one), record(0, 3, "1:1", later), record(1, 1, "2:1", two), record(1, 4, "2:1", nil),
	})
	require.NoError(t, err)
	require.Equal(t, []Layer{layerOf(t, one, two), layerOf(t, later, two), layerOf(t, later)}, all)
	_, err = Publications([]launch.Record{{Record: &kgo.Record{Key: []byte("1:1"), Value: []byte("broken")}}})
	require.ErrorContains(t, err, "cannot decode record 1:1")
	_, err = ParseLayer([]byte("broken"))
	require.ErrorContains(t, err, "cannot decode the layer")
}

// TestForecasts plants each kind of wrong layer.
func TestForecasts(t *testing.T) {
	minute := noon.Add(time.Minute)
	first, second := layerOf(t, street(1, noon, 40), street(2, noon, 50)), layerOf(t, street(1, minute, 42), street(2, minute, 50))
	at := func(seconds int, l Layer) Response {
		return Response{First: noon.Add(time.Duration(seconds) * time.Second), Last: noon.Add(time.Duration(seconds+1) * time.Second), Layer: l}
	}
	down := time.Duration(0)
	f := func(want string, published []Layer, responses ...Response) {
		t.Helper()
		wrong := Forecasts(rules, published, responses, func(_, _ time.Time) time.Duration { return down })
		if want == "" {
			require.Empty(t, wrong)
			return
		}
		require.Contains(t, fmt.Sprint(wrong), want)
	}
	both := []Layer{first, second}
	over := maps.Clone(second)
	for key, periods := range over {
		over[key] = periods[1:]
	}
	f("", both, at(-5, Layer{}), at(1, first), at(62, second), at(120, over))
	f("", both, at(62, second)) // the first was never seen
	mixed := layerOf(t, street(1, noon, 40), street(2, minute, 50))
	f("publication 1: street 1:1 has a period from", []Layer{first, mixed})
	f("response at 2026-11-22T12:01:02Z: street 1:1 has a period from", both, at(62, mixed))
	f("it matches no publication from number 0 on (first match: -1)", both, at(62, layerOf(t, street(1, minute, 43), street(2, minute, 50))))
	f("it matches no publication from number 0 on (first match: -1)", both, at(62, layerOf(t, street(2, minute, 50)))) // a street is missing
	f("it matches no publication from number 1 on (first match: 0)", both, at(62, second), at(63, first))
	f("it matches no publication from number 0 on (first match: -1)", both, at(1, first), at(2, Layer{}))
	f("street 3:1 is not in the registry", both, at(62, layerOf(t, street(3, minute, 50))))
	f("street 1:1 has the speed 42.3", []Layer{layerOf(t, street(1, minute, 42.3))})
	f("publication 1: street 1:1 is missing", []Layer{first, layerOf(t, street(2, minute, 50))})
	f("not every street has 3 periods", []Layer{over})
	f("the next publication was due 31s earlier", both, at(92, first))
	down = 10 * time.Second
	f("", both, at(92, first))
	f("the next publication was due 31s earlier", both, at(102, first))
}
