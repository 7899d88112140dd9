package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/rs/zerolog"
	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/devstores/stores"
	"trafficd/pipeline/batch"
	"trafficd/pipeline/kafkalog"
	"trafficd/pipeline/lib/durable"
)

// TestJournalInKafka checks that the commands read a journal in Kafka like one in a directory, and
// change nothing.
func TestJournalInKafka(t *testing.T) {
	brokers := stores.StartKfake(t).ListenAddrs()
	cfg := kafkalog.DefaultConfig()
	cfg.Brokers, cfg.Partitions = brokers, 1
	l, err := kafkalog.Open(cfg, []string{"clickhouse", "kafka"}, time.Hour, zerolog.Nop())
	require.NoError(t, err)
	defer l.Close(context.Background())
	require.Eventually(t, func() bool { return l.Ready("") == nil }, time.Minute, 10*time.Millisecond)
	for i, b := range journalBatches(3, 10) {
		e := durable.Entry{Data: frameOf(i+1, b)}
		require.NoError(t, l.Enqueue(&e))
		require.NoError(t, e.Wait())
	}
	soft, stop := context.WithCancel(t.Context())
	require.NoError(t, l.Consume(t.Context(), soft, "clickhouse", func(_, _ context.Context, p *kafkalog.Partition) error {
		defer stop()
		return p.Save(3, nil)
	}, func(error) {}))

	config := filepath.Join(t.TempDir(), "trafficd.yaml")
	require.NoError(t, os.WriteFile(config, []byte("journal: {kind: kafka, log: {brokers: ['"+brokers[0]+"']}}"), 0o600))
	for _, flags := range [][]string{{"--brokers", brokers[0]}, {"--config", config}} {
		f := func(command string, want ...string) {
			t.Helper()
			r := requireSuccess(t, "", append([]string{"journal", command}, flags...)...)
			require.Equal(t, want, lines(r.out))
		}
		f("ls", "segment state first last frames bytes", "partition 0 active 1 3 3 0", "1 segment 3 0")
		f("verify", "partition 0 intact, frames 1 to 3",
			"clickhouse, partition 0.cursor intact, at frame 3", "kafka, partition 0.cursor intact, at frame 1", "no damage found")
		f("cursors", "consumer next frames behind rows behind oldest received block in flight",
			"clickhouse, partition 0 frame 3 1 10 2026-07-01T06:00:03.000Z -", "kafka, partition 0 frame 1 3 30 2026-07-01T06:00:01.000Z -")
		r := requireSuccess(t, "", append([]string{"journal", "dump", "--from", "2", "--detector", "D3.7"}, flags...)...)
		require.Equal(t, 1, strings.Count(r.out, "\n"))
		require.Contains(t, r.out, `"detectorCode":"D3.7"`)
		require.Contains(t, r.err, "wrote 1 measurement from 2 frames")
	}

	transport := &kafka.Transport{}
	defer transport.CloseIdleConnections()
	client := kafka.Client{Addr: kafka.TCP(brokers...), Transport: transport}
	for range 2 {
		requireFailure(t, "", `cannot read the partitions of topic "missing"`, "journal", "ls", "--brokers", brokers[0], "--set", "journal.log.topic=missing")
	}
	m, err := client.Metadata(t.Context(), &kafka.MetadataRequest{})
	require.NoError(t, err)
	for _, topic := range m.Topics {
		require.NotEqual(t, "missing", topic.Name)
	}

	_, err = client.OffsetCommit(t.Context(), &kafka.OffsetCommitRequest{
		GroupID: cfg.Group + ".kafka", GenerationID: -1,
		Topics: map[string][]kafka.OffsetCommit{cfg.Topic: {{Partition: 0, Offset: 3, Metadata: "x"}}},
	})
	require.NoError(t, err)
	set := "journal.log.topic=" + cfg.Topic
	r := runWith(t, "", "journal", "cursors", "--brokers", brokers[0], "--set", set)
	require.Contains(t, r.err, "trafficctl journal verify --brokers "+brokers[0]+" --set "+set)

	e := durable.Entry{Data: frameOf(4, journalBatches(1, 10)[0])}
	e.Data = e.Data[:len(e.Data)-1] // not a whole frame
	require.NoError(t, l.Enqueue(&e))
	require.NoError(t, e.Wait())
	r = requireFailure(t, "", "the journal is damaged", "journal", "verify", "--brokers", brokers[0])
	require.Contains(t, r.out, "partition 0  DAMAGED\n    partition 0, offset 3: ")

	e = durable.Entry{Data: frameOf(5, journalBatches(1, 10)[0])} // an intact frame after the damage
	require.NoError(t, l.Enqueue(&e))
	require.NoError(t, e.Wait())
	r = requireFailure(t, "", "--skip-damaged continues", "journal", "dump", "--frames", "--brokers", brokers[0])
	require.Equal(t, 3, strings.Count(r.out, "\n"))
	r = requireFailure(t, "", "skipped 1 gap of unreadable frames", "journal", "dump", "--frames", "--skip-damaged", "--brokers", brokers[0])
	require.Equal(t, 4, strings.Count(r.out, "\n"), "the frame after the damage is there")
	require.Equal(t, 1, strings.Count(r.err, "cannot read frame 4: partition 0, offset 3: "))
	r = runWith(t, "", "journal", "cursors", "--brokers", brokers[0])
	require.Contains(t, r.out+r.err, "frame 4: partition 0, offset 3: ")
	require.Contains(t, r.out, "clickhouse, partition 0")

	record := kafka.Record{Value: kafka.NewBytes([]byte("foreign"))}
	produced, err := client.Produce(t.Context(), &kafka.ProduceRequest{Topic: cfg.Topic, RequiredAcks: kafka.RequireAll, Records: kafka.NewRecordReader(record)})
	require.NoError(t, errors.Join(err, produced.Error))
	e = durable.Entry{Data: frameOf(6, journalBatches(1, 10)[0])}
	e.Data[0] = batch.FrameVersion + 1
	newer := kafka.Record{Value: kafka.NewBytes(e.Data), Headers: []kafka.Header{{Key: "trafficd-frame", Value: binary.LittleEndian.AppendUint64(
		[]byte{e.Data[0]}, xxhash.Sum64(e.Data))}}}
	produced, err = client.Produce(t.Context(), &kafka.ProduceRequest{Topic: cfg.Topic, RequiredAcks: kafka.RequireAll, Records: kafka.NewRecordReader(newer)})
	require.NoError(t, errors.Join(err, produced.Error))
	const foreign = `the record at offset 5 of partition 0 of topic "trafficd.log" is not an intact frame: it has no header trafficd-frame`
	const upgraded = `the record at offset 6 of partition 0 of topic "trafficd.log" has frame version 2, but this program reads version 1: use the trafficctl of that version`
	r = requireFailure(t, "", "different version of trafficd", "journal", "verify", "--brokers", brokers[0])
	for _, want := range []string{"partition 0, offset 3: ", foreign, upgraded} { // each of them
		require.Contains(t, r.out, "\n    "+want)
	}
	r = requireFailure(t, "", "skipped 3 gaps of unreadable frames", "journal", "dump", "--frames", "--skip-damaged", "--brokers", brokers[0])
	require.Contains(t, r.err, foreign)
	require.Contains(t, r.err, upgraded)
	require.Equal(t, 4, strings.Count(r.out, "\n"))

	f := func(want string, args ...string) {
		t.Helper()
		requireFailure(t, "", want, append([]string{"journal", "ls"}, args...)...)
	}
	f("specify either the journal's directory, or --config, or --brokers")
	f("specify either the journal's directory, or --config, or --brokers", "DIR", "--config", config)
	f("specify either the journal's directory, or --config, or --brokers", "--brokers", brokers[0], "--config", config)
}

// TestJournalDumpOfPartitions checks that frames are numbered in each partition, so --from and
// --to apply to each.
func TestJournalDumpOfPartitions(t *testing.T) {
	brokers := stores.StartKfake(t).ListenAddrs()
	cfg := kafkalog.DefaultConfig()
	cfg.Brokers, cfg.Partitions = brokers, 2
	l, err := kafkalog.Open(cfg, []string{"kafka"}, time.Hour, zerolog.Nop())
	require.NoError(t, err)
	defer l.Close(context.Background())
	require.Eventually(t, func() bool { return l.Ready("") == nil }, time.Minute, 10*time.Millisecond)
	var entries [8]durable.Entry
	for i, b := range journalBatches(len(entries), 1) {
		b.Instance = fmt.Sprint("instance", i) // selects the partition
		entries[i].Data = frameOf(i+1, b)
		require.NoError(t, l.Enqueue(&entries[i]))
	}
	for i := range entries {
		require.NoError(t, entries[i].Wait())
	}
	dumped := func(args ...string) (seqs []int) {
		t.Helper()
		args = append([]string{"journal", "dump", "--frames", "--brokers", brokers[0], "--set", "journal.log.partitions=2"}, args...)
		r := requireSuccess(t, "", args...)
		for line := range strings.Lines(r.out) {
			var frame struct{ Seq int }
			require.NoError(t, json.Unmarshal([]byte(line), &frame))
			seqs = append(seqs, frame.Seq)
		}
		return seqs
	}
	all := dumped()
	require.Len(t, all, 8)
	second := slices.DeleteFunc(all, func(seq int) bool { return seq != 2 })
	require.Len(t, second, 2, "both partitions have frames")
	require.Equal(t, second, dumped("--from", "2", "--to", "2"))
}

// TestJournalFromConfiguration checks that the settings of a daemon with a local journal select its
// directory.
func TestJournalFromConfiguration(t *testing.T) {
	config := filepath.Join(t.TempDir(), "trafficd.yaml")
	require.NoError(t, os.WriteFile(config, []byte("journal: {dir: "+fiveFrames(t)+"}"), 0o600))
	r := requireSuccess(t, "", "journal", "ls", "--config", config)
	require.Contains(t, lines(r.out), "3 segments 5 53,248")
}
