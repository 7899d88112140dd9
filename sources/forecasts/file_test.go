package forecasts

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"trafficd/pipeline/lib/gunzip/compress"
	"trafficd/pipeline/lib/watch"
	pb "trafficd/schemas/proto/trafficd/v1"
)

func fileConfig(path string) Config {
	cfg := DefaultConfig()
	cfg.Feed = FeedFile
	cfg.MaxShrink = 1
	cfg.File.Path = path
	return cfg
}

func response(t *testing.T, all ...*pb.StreetForecast) string {
	t.Helper()
	b, err := proto.Marshal(&pb.StreetForecastResponse{StreetForecast: all})
	require.NoError(t, err)
	return string(b)
}

func jsonOf(t *testing.T, m proto.Message) string {
	t.Helper()
	b, err := protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}.Marshal(m)
	require.NoError(t, err)
	return string(b)
}

func TestFileFormats(t *testing.T) {
	f := func(name, content, format string) {
		t.Helper()
		path := tempPath(t, name)
		write(t, path, content)
		cfg := fileConfig(path)
		cfg.File.Format = format
		feed, layer := run(t, cfg)
		layer.waitFor("1:1 10,11", "2:1 20")
		require.True(t, proto.Equal(street(1, 1, 10, 11), layer.visible[identity{1, 1}]))
		require.Zero(t, feed.Status().Skipped)
		feed.Close()
	}
	a, b := street(1, 1, 10, 11), street(2, 1, 20)
	binary := response(t, a, b)
	f("f.pb", binary, "")
	f("f.pb.gz", string(compress.Gzip(binary)), "")
	f("f", binary, "")
	f("f.json", binary, FormatProtobuf)
	whole := jsonOf(t, &pb.StreetForecastResponse{StreetForecast: []*pb.StreetForecast{a, b}})
	f("f.json", whole, "")
	f("F.JSON.GZ", string(compress.Gzip("\xef\xbb\xbf"+whole)), "")
	f("f.json", fmt.Sprintf("[%s,%s]", jsonOf(t, a), jsonOf(t, b)), "")
	lines := jsonOf(t, a) + "\r\n\n" + jsonOf(t, b)
	f("f.ndjson", lines, "")
	f("f.jsonl.gz", string(compress.Gzip(lines+"\n"))+string(compress.Gzip("")), "")
	f("f.ndjson", jsonOf(t, street(2, 1, 99))+"\n"+lines, "") // the last forecast of a street is used
}

// TestFileWithBadRecords checks that valid records are used and invalid ones are reported by
// position.
func TestFileWithBadRecords(t *testing.T) {
	f := func(name, content string, positions ...string) {
		t.Helper()
		path := tempPath(t, name)
		write(t, path, content)
		feed, layer := run(t, fileConfig(path))
		layer.waitFor("1:1 10", "2:1 20")
		s := feed.Status()
		require.EqualValues(t, len(positions), s.Skipped)
		for i, position := range positions {
			require.Equal(t, position, s.Faults[i].Position, "%v", s.Faults)
			require.True(t, s.Faults[i].Skipped)
		}
		feed.Close()
	}
	a, b := street(1, 1, 10), street(2, 1, 20)
	bad := []string{`{"street":2147483648,"fromnode":1}`, `null`, `{"fromnode":0}`, `"x"`, `{"street":1.5}`, `{"street":1,"forecast":[{"start":7}]}`}
	f("f.ndjson", jsonOf(t, a)+"\n"+strings.Join(bad, "\n")+"\n{\n"+jsonOf(t, b), "line 2", "line 3", "line 4", "line 5", "line 6", "line 7", "line 8")
	f("f.json", `{"streetForecast":[`+jsonOf(t, a)+","+strings.Join(bad, ",")+","+jsonOf(t, b)+"]}",
		"streetForecast[1]", "streetForecast[2]", "streetForecast[3]", "streetForecast[4]", "streetForecast[5]", "streetForecast[6]")
	f("f.pb", response(t, a)+"\x0a\x01\xff"+response(t, b, &pb.StreetForecast{}), "streetForecast[1]", "streetForecast[3]")
}

// TestInvalidFile checks that truncated content, content without a valid record and a deleted file
// leave the layer unchanged.
func TestInvalidFile(t *testing.T) {
	path := tempPath(t, "f.json")
	write(t, path, jsonOf(t, &pb.StreetForecastResponse{StreetForecast: []*pb.StreetForecast{street(1, 1, 10)}}))
	cfg := fileConfig(path)
	cfg.MaxBytes = 2000
	feed, layer := newManualFeed(t, cfg)
	checkFails := func(want string) {
		t.Helper()
		feed.check(t.Context())
		require.Contains(t, feed.Status().Error, want)
		require.Contains(t, feed.Status().Error, path)
	}
	feed.check(t.Context())
	require.Equal(t, []string{"1:1 10"}, layer.shown())
	f := func(content, want string) {
		t.Helper()
		write(t, path, content)
		checkFails(want)
		require.Equal(t, []string{"1:1 10"}, layer.shown())
		require.Empty(t, layer.put, "the layer must not keep records of the invalid file")
	}
	f("", "invalid or truncated JSON")
	f(`{"streetForecast":[`+jsonOf(t, street(2, 1, 20))+",", "invalid or truncated JSON")
	f(`{"streetForecast":[]}`, "no valid forecast")
	f(`{}`, `missing array "streetForecast"`)
	f(`{"streetForecast":7}`, "not a StreetForecastResponse")
	f(`{"streetForecast":[{"street":1,`, "truncated JSON, at byte 31")
	f(`{"streetForecast":[{"street":0}]}`, "no valid forecast")
	f(strings.Repeat(" ", 2001), "max_bytes")
	f(string(compress.Gzip(strings.Repeat(" ", 2001))), "max_bytes")
	f(string(compress.Gzip("{}"))[:12], "unexpected EOF")
	require.NoError(t, os.Remove(path))
	checkFails("no such file")
	write(t, path, jsonOf(t, &pb.StreetForecastResponse{StreetForecast: []*pb.StreetForecast{street(2, 1, 20)}}))
	feed.check(t.Context())
	require.Equal(t, []string{"2:1 20"}, layer.shown())
	require.Empty(t, feed.Status().Error)
}

// TestFileInUseIsNotReadAgain checks that a check of an unchanged file confirms the layer, and that
// the status reports the faults of the content in use.
func TestFileInUseIsNotReadAgain(t *testing.T) {
	path := tempPath(t, "f.ndjson")
	layer, faults := newFakeLayer(t), &faults{log: zerolog.Nop()}
	feed := newFileFeed(smallFile(path), layer, faults)
	defer feed.close()
	f := func(content string, wantSkips int) {
		t.Helper()
		write(t, path, content)
		later := time.Now().Add(time.Hour) // the clock of another machine is ahead
		require.NoError(t, os.Chtimes(path, later, later))
		_, err := feed.check(t.Context())
		require.NoError(t, err)
		published, confirmed := layer.published, layer.confirmedAt()
		at, err := feed.check(t.Context())
		require.ErrorIs(t, err, watch.ErrUnchanged)
		require.Equal(t, published, layer.published)
		require.True(t, layer.confirmedAt().After(confirmed))
		require.Equal(t, at, layer.confirmedAt())
		skips, _, _ := faults.report()
		require.EqualValues(t, wantSkips, skips)
	}
	f(jsonOf(t, street(1, 1, 10))+"\n{\n", 1)
	f(jsonOf(t, street(1, 1, 11)), 0)
}

// TestBadRecordReplacesStreet checks that a street whose record is skipped is missing, because a
// file replaces all streets.
func TestBadRecordReplacesStreet(t *testing.T) {
	path := tempPath(t, "f.pb")
	write(t, path, response(t, street(1, 1, 10), street(2, 1, 20)))
	_, layer := run(t, fileConfig(path))
	layer.waitFor("1:1 10", "2:1 20")
	write(t, path, response(t, street(1, 1, 11), street(2, 1, MaxSpeed+1)))
	layer.waitFor("1:1 11")
}

// TestBadFileIsReadOnce checks that an invalid file is not read and counted at every check.
func TestBadFileIsReadOnce(t *testing.T) {
	path := tempPath(t, "f.ndjson")
	write(t, path, "{\n[\n")
	faults := &faults{log: zerolog.Nop()}
	feed := newFileFeed(smallFile(path), newFakeLayer(t), faults)
	defer feed.close()
	before := testutil.ToFloat64(recordsSkipped)
	for range 3 {
		_, err := feed.check(t.Context())
		require.ErrorIs(t, err, errNoValidForecast)
	}
	require.Equal(t, before+2, testutil.ToFloat64(recordsSkipped))
	skips, _, _ := faults.report()
	require.EqualValues(t, 2, skips)
}

// TestProtobufFileTruncated checks that a truncated file is used only if it ends between two
// forecasts.
func TestProtobufFileTruncated(t *testing.T) {
	whole := response(t, street(1, 1, 10), street(2, 1, 20))
	cuts := 0
	for n := range len(whole) {
		var last error
		for r, err := range Read([]byte(whole[:n]), FormatProtobuf, MaxSpeed) {
			require.NoError(t, r.Err)
			last = err
		}
		if last == nil {
			cuts++
		}
	}
	require.Equal(t, 2, cuts, "valid prefixes: without forecasts, and with the first forecast")
}

// TestFileDataTime checks that the time of the data is the modification time, or now if that is in
// the future.
func TestFileDataTime(t *testing.T) {
	path := tempPath(t, "f.pb")
	write(t, path, response(t, street(1, 1, 10))) // an hour old
	feed, layer := run(t, fileConfig(path))
	layer.waitFor("1:1 10")
	require.True(t, eventually(func() bool { return feed.Status().Published }))
	require.InDelta(t, 3600, feed.Status().AgeSeconds, 60)
	require.InDelta(t, 3600, time.Since(layer.confirmedAt()).Seconds(), 60)

	later := time.Now().Add(time.Hour)
	require.NoError(t, os.Chtimes(path, later, later))
	require.True(t, eventually(func() bool { return feed.Status().AgeSeconds < 60 }))
	require.False(t, layer.confirmedAt().After(time.Now()))
}

// TestNDJSONFileTruncated checks that NDJSON that ends within a record is rejected, regardless of
// how many records precede it.
func TestNDJSONFileTruncated(t *testing.T) {
	whole := jsonOf(t, street(1, 1, 10)) + "\n" + jsonOf(t, street(2, 1, 20))
	first := strings.IndexByte(whole, '\n')
	for n := range len(whole) {
		var last error
		for r, err := range Read([]byte(whole[:n]), FormatNDJSON, MaxSpeed) {
			require.NoError(t, r.Err)
			last = err
		}
		between := n == 0 || n == first || n == first+1
		require.Equal(t, !between, last != nil, "%d: %v", n, last)
	}
}

// TestJSONFileTruncated checks that every truncation is rejected.
func TestJSONFileTruncated(t *testing.T) {
	f := func(whole string) {
		t.Helper()
		for n := range len(whole) {
			var last error
			for _, err := range Read([]byte(whole[:n]), FormatJSON, MaxSpeed) {
				last = err
			}
			require.ErrorContains(t, last, fmt.Sprintf("truncated JSON, at byte %d", n))
		}
	}
	list := fmt.Sprintf("[%s,%s]", jsonOf(t, street(1, 1, 10)), jsonOf(t, street(2, 1)))
	f(list)
	f(`{"by":{"streetForecast":[]},"streetForecast":` + list + `,"n":0}`)
}

// TestJSONFileErrors checks that errors describe the fault and its position.
func TestJSONFileErrors(t *testing.T) {
	f := func(content, want string) {
		t.Helper()
		var last error
		for _, err := range Read([]byte(content), FormatJSON, MaxSpeed) {
			last = err
		}
		require.ErrorContains(t, last, want)
	}
	one := `[{"street":1}]`
	f(one+"x", "invalid or truncated JSON, after byte 14")
	f(one+one, "unexpected data")
	f(`{"streetForecast":`+one+`}]`, "after byte 33")
	f(`{"streetForecast":`+one+`,"streetForecast":`+one+`}`, "duplicate member")
	f(`{"streetForecast":null}`, "not an array")
	f(`{"StreetForecast":`+one+`}`, `missing array "streetForecast"`)
	f(`[{"street":1} {"street":2}]`, "invalid or truncated JSON, after byte")
	f(`[{"street":1},]`, "invalid or truncated JSON, after byte")
	f(`"text"`, `not a StreetForecastResponse: "text"`)
	f(`null`, "neither an object nor an array")
	f("\x00", "invalid or truncated JSON, after byte 0")
}

// TestFileNeedsTooMuchMemory checks that a small file whose forecasts would need too much memory is
// rejected.
func TestFileNeedsTooMuchMemory(t *testing.T) {
	path := tempPath(t, "f.ndjson")
	var lines strings.Builder
	for i := range 200 {
		fmt.Fprintf(&lines, "{\"street\":%d}\n", i+1)
	}
	write(t, path, lines.String())
	cfg := fileConfig(path)
	cfg.MaxBytes = int64(lines.Len())
	feed, _ := run(t, cfg)
	waitForError(t, feed, "times forecasts.max_bytes: raise forecasts.max_bytes")
}

// TestStopWhileReadingFile checks that a check ends when its context is canceled.
func TestStopWhileReadingFile(t *testing.T) {
	path := tempPath(t, "f.ndjson")
	write(t, path, strings.Repeat(jsonOf(t, street(1, 1, 10))+"\n", 3))
	feed := newFileFeed(smallFile(path), newFakeLayer(t), &faults{log: zerolog.Nop()})
	defer feed.close()
	ctx, end := context.WithCancel(t.Context())
	end()
	_, err := feed.check(ctx)
	require.ErrorIs(t, err, context.Canceled)
	skips, _, _ := feed.faults.report()
	require.Zero(t, skips)
}

func smallFile(path string) Config {
	cfg := fileConfig(path)
	cfg.MaxBytes = 1000
	return cfg
}

// TestSpeedValidByDefault checks that an absent speed_valid means true, and an absent flow_valid
// false.
func TestSpeedValidByDefault(t *testing.T) {
	f := func(text string, want bool) {
		t.Helper()
		got, _, err := parseJSON([]byte(`{"street":1,"forecast":[{"start":"2026-11-20T18:00:00Z","end":"2026-11-20T18:15:00Z","speed":5`+text+`}]}`), MaxSpeed)
		require.NoError(t, err)
		require.NotNil(t, got.Forecast[0].SpeedValid)
		require.Equal(t, want, got.Forecast[0].GetSpeedValid())
		require.False(t, got.Forecast[0].FlowValid)
		b, err := proto.Marshal(got)
		require.NoError(t, err)
		back, _, err := parseProtobuf(b, MaxSpeed)
		require.NoError(t, err)
		require.True(t, proto.Equal(got, back))
		got.Forecast[0].SpeedValid = nil // producers with a schema without presence omit false
		b, err = proto.Marshal(got)
		require.NoError(t, err)
		back, _, err = parseProtobuf(b, MaxSpeed)
		require.NoError(t, err)
		require.True(t, back.Forecast[0].GetSpeedValid())
	}
	f("", true)
	f(`,"speed_valid":null`, true)
	f(`,"speed_valid":true`, true)
	f(`,"speed_valid":false`, false)
	f(`,"speedValid":false`, false)
}

// TestOutOfRange checks that a street outside int32 is counted and reported.
func TestOutOfRange(t *testing.T) {
	for _, text := range []string{`{"street":2147483648,"fromnode":1}`, `{"street":1,"fromnode":"-2147483649"}`} {
		_, _, err := parseJSON([]byte(text), MaxSpeed)
		require.ErrorIs(t, err, ErrOutOfRange)
		require.ErrorContains(t, err, "214748364")
		before := testutil.ToFloat64(outOfRange)
		(&faults{log: zerolog.Nop()}).skip("line 1", err)
		require.Equal(t, before+1, testutil.ToFloat64(outOfRange))
	}
}

// TestMaxSpeed checks the setting max_speed.
func TestMaxSpeed(t *testing.T) {
	path := tempPath(t, "f.ndjson")
	write(t, path, jsonOf(t, street(1, 1, 600)))
	cfg := fileConfig(path)
	cfg.MaxSpeed = 700
	f, err := New(cfg, discard{}, zerolog.Nop())
	require.NoError(t, err)
	defer f.feed.close()
	_, err = f.feed.check(t.Context())
	require.NoError(t, err)
	cfg.MaxSpeed = 0
	require.ErrorContains(t, cfg.Validate(), "max_speed is 0")
}
