package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"trafficd/cmd/trafficctl/internal/forecast"
	"trafficd/sources/forecasts"
)

// envPassword replaces a flag, which other users of the machine could see.
const envPassword = "TRAFFICD_KAFKA_PASSWORD"

// publishing holds the flags of forecast publish.
type publishing struct {
	cfg        forecasts.KafkaConfig
	input      string
	maxSpeed   float64
	missing    bool // tombstones for streets that the file does not have
	readWithin time.Duration
	quiet      bool
}

func newForecastPublish(std streams) *cobra.Command {
	p := &publishing{cfg: forecasts.DefaultConfig().Kafka}
	cmd := &cobra.Command{
		Use:   "publish FILE|-",
		Short: "Publish forecasts to the topic that the daemon reads",
		Long: `Write one record per street, with the key street:fromnode and a StreetForecast as value,
and wait until all in-sync replicas have acknowledged them. The topic should be compacted.

--tombstone-missing reads the topic first and removes the streets that are not in the
file, after the new forecasts are written. It refuses a file with invalid records, whose
streets would be removed.

The password for --sasl is read from the environment variable ` + envPassword + `.`,
		Example: `  trafficctl forecast publish town.pb --brokers 127.0.0.1:9092
  trafficctl forecast publish town.ndjson.gz --brokers k1:9093,k2:9093 --tls --sasl scram-sha-512 --sasl-user maps --tombstone-missing`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.run(cmd.Context(), std, args[0])
		},
	}
	p.register(cmd.Flags())
	return cmd
}

func (p *publishing) register(f *pflag.FlagSet) {
	f.StringSliceVar(&p.cfg.Brokers, "brokers", p.cfg.Brokers, "comma-separated host:port of one or more brokers")
	f.StringVar(&p.cfg.Topic, "topic", p.cfg.Topic, "topic of the forecasts")
	f.BoolVar(&p.cfg.TLS.Enabled, "tls", false, "use TLS")
	f.StringVar(&p.cfg.TLS.CA, "tls-ca", "", "PEM file of the certificate authority; by default the system's")
	f.StringVar(&p.cfg.TLS.Cert, "tls-cert", "", "PEM file of the client certificate")
	f.StringVar(&p.cfg.TLS.Key, "tls-key", "", "PEM file of the client certificate's private key")
	f.StringVar(&p.cfg.SASL.Mechanism, "sasl", "", "SASL mechanism: plain, scram-sha-256 or scram-sha-512")
	f.StringVar(&p.cfg.SASL.Username, "sasl-user", "", "user name for --sasl")
	f.DurationVar(&p.cfg.RequestTimeout, "timeout", p.cfg.RequestTimeout, "time limit of a request to a broker")
	f.StringVar(&p.input, "input-format", "", "protobuf, json or ndjson; by default from the file name, or ndjson for -")
	f.Float64Var(&p.maxSpeed, "max-speed", forecasts.MaxSpeed, "highest plausible speed: the daemon's setting forecasts.max_speed")
	f.BoolVar(&p.missing, "tombstone-missing", false, "remove streets that are not in the file")
	f.DurationVar(&p.readWithin, "read-within", time.Minute, "time limit for reading the topic, with --tombstone-missing")
	f.BoolVar(&p.quiet, "quiet", false, "print no progress on standard error")
}

func (p *publishing) run(ctx context.Context, std streams, path string) error {
	if p.input == "" && path == stdio {
		p.input = forecasts.FormatNDJSON
	}
	if p.cfg.SASL.Mechanism != "" {
		p.cfg.SASL.Password = os.Getenv(envPassword)
	}
	content, err := readForecasts(ctx, std, path, p.input, p.maxSpeed)
	if err != nil {
		return err
	}
	if p.missing && content.Skipped > 0 {
		return errors.New("cannot use --tombstone-missing: the file has invalid records, whose streets would be removed; correct it, or publish without the flag")
	}
	publisher, err := forecast.NewPublisher(p.cfg)
	if err != nil {
		return err
	}
	err = p.publish(ctx, std, publisher, content)
	if err = errors.Join(err, publisher.Close()); err != nil {
		return err
	}
	return errIfFaulty(std, content)
}

// publish removes streets last, so that the layer never lacks a street in between.
func (p *publishing) publish(ctx context.Context, std streams, publisher *forecast.Publisher, content forecast.Content) error {
	var gone []string
	if p.missing {
		before, err := publisher.Keys(ctx, p.readWithin)
		if err != nil {
			return err
		}
		has := make(map[string]bool, len(content.Forecasts))
		for _, f := range content.Forecasts {
			has[string(forecasts.Key(f))] = true
		}
		gone = slices.DeleteFunc(before, func(key string) bool { return has[key] })
	}
	total := len(content.Forecasts) + len(gone)
	shown := newProgress(std.err, p.quiet, int64(total), progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionSetItsString("streets"))
	show := func(n int) {
		shown.show(int64(n), "", func() string { return fmt.Sprintf("%d of %d streets", n, total) })
	}
	err := publisher.Put(ctx, content.Forecasts, show)
	if err == nil {
		err = publisher.Remove(ctx, gone, func(n int) { show(len(content.Forecasts) + n) })
	}
	shown.end()
	if err == nil {
		fmt.Fprintf(std.err, "trafficctl: %s streets published, %s removed\n", grouped(int64(len(content.Forecasts))), grouped(int64(len(gone))))
	}
	return err
}
