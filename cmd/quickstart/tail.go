package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	trafficdv1 "trafficd/schemas/proto/trafficd/v1"
)

// pingLimit bounds the first request: the client would retry forever without an error.
const pingLimit = 10 * time.Second

// tailCommand prints the topic as JSON until Ctrl-C.
func tailCommand() *cobra.Command {
	var brokers, from string
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Print the records of the topic as JSON",
		Long: `Prints the records of the topic ` + topic + `, one line each: partition/offset and the measurement
as JSON. It runs until Ctrl-C.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			start, err := startOf(from)
			if err != nil {
				return err
			}
			return tailTopic(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), strings.Split(brokers, ","), start)
		},
	}
	cmd.Flags().StringVar(&brokers, "brokers", "127.0.0.1:9092", "host:port, separated by commas")
	cmd.Flags().StringVar(&from, "from", "end", "start or end of the topic")
	return cmd
}

func startOf(from string) (kgo.Offset, error) {
	switch from {
	case "start":
		return kgo.NewOffset().AtStart(), nil
	case "end":
		return kgo.NewOffset().AtEnd(), nil
	}
	return kgo.Offset{}, fmt.Errorf("--from %q: must be start or end", from)
}

// tailTopic writes records to out, and errors that the client retries to notes, until ctx ends.
func tailTopic(ctx context.Context, out, notes io.Writer, brokers []string, start kgo.Offset) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(start))
	if err != nil {
		return fmt.Errorf("cannot read the topic: %w", err)
	}
	defer client.Close()
	reach, cancel := context.WithTimeout(ctx, pingLimit)
	defer cancel()
	if err := client.Ping(reach); err != nil {
		return fmt.Errorf("cannot reach a broker at %s (--brokers): %w", strings.Join(brokers, ","), err)
	}
	for {
		fetched := client.PollFetches(ctx)
		for r := range fetched.RecordsAll() {
			if _, err := fmt.Fprintln(out, shownRecord(r)); err != nil {
				return fmt.Errorf("cannot write a record: %w", err)
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		fetched.EachError(func(_ string, partition int32, err error) { // the client retries
			fmt.Fprintf(notes, "quickstart: cannot read partition %d of %s: %v\n", partition, topic, err)
		})
	}
}

func shownRecord(r *kgo.Record) string {
	var m trafficdv1.Measurement
	if err := proto.Unmarshal(r.Value, &m); err != nil {
		return fmt.Sprintf("%d/%d is not a measurement: %v", r.Partition, r.Offset, err)
	}
	return fmt.Sprintf("%d/%d %s", r.Partition, r.Offset, protojson.MarshalOptions{}.Format(&m))
}
