package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"trafficd/cmd/trafficctl/internal/forecast"
	"trafficd/sources/forecasts"
)

// envPassword stands in for a flag: a password there could be seen by others.
const envPassword = "TRAFFICD_KAFKA_PASSWORD"

// publishing holds the flags of forecast publish.
type publishing struct {
	cfg        forecasts.KafkaConfig
	input      string
	missing    bool // tombstones for streets that the file does not have
	readWithin time.Duration
	quiet      bool
}

func newForecastPublish(std streams) *cobra.Command {
	p := &publishing{cfg: forecasts.DefaultConfig().Kafka}
	cmd := &cobra.Command{
		Use:   "publish FILE|-",
		Short: "Put forecasts into the topic that the daemon reads",
		Long: `Writes one record for each street: key street:fromnode, value StreetForecast. It
ends when all replicas in sync have all of them. The topic should be compacted.

--tombstone-missing reads the topic first, and after the new forecasts removes the
streets that the file does not have. It refuses a file with bad records: their
streets would be removed.

The password for --sasl is taken from the environment, ` + envPassword + `.`,
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
	f.StringSliceVar(&p.cfg.Brokers, "brokers", p.cfg.Brokers, "host:port of some brokers")
	f.StringVar(&p.cfg.Topic, "topic", p.cfg.Topic, "topic of the forecasts")
	f.BoolVar(&p.cfg.TLS.Enabled, "tls", false, "encrypt connections")
	f.StringVar(&p.cfg.TLS.CA, "tls-ca", "", "PEM file of the authority; by default the system's")
	f.StringVar(&p.cfg.TLS.Cert, "tls-cert", "", "PEM file of the client's certificate")
	f.StringVar(&p.cfg.TLS.Key, "tls-key", "", "PEM file of its key")
	f.StringVar(&p.cfg.SASL.Mechanism, "sasl", "", "plain, scram-sha-256 or scram-sha-512")
	f.StringVar(&p.cfg.SASL.Username, "sasl-user", "", "user name for --sasl")
	f.DurationVar(&p.cfg.RequestTimeout, "timeout", p.cfg.RequestTimeout, "for an answer of a broker")
	f.StringVar(&p.input, "input-format", "", "protobuf, json or ndjson; by default after the file's name, for - ndjson")
	f.BoolVar(&p.missing, "tombstone-missing", false, "remove the streets that the file does not have")
	f.DurationVar(&p.readWithin, "read-within", time.Minute, "for reading the topic, with --tombstone-missing")
	f.BoolVar(&p.quiet, "quiet", false, "no progress on standard error")
}

func (p *publishing) run(ctx context.Context, std streams, path string) error {
	if p.input == "" && path == forecast.Stdin {
		p.input = forecasts.FormatNDJSON
	}
	if p.cfg.SASL.Mechanism != "" {
		p.cfg.SASL.Password = os.Getenv(envPassword)
	}
	content, err := readForecasts(ctx, std, path, p.input)
	if err != nil {
		return err
	}
	if p.missing && content.Skipped > 0 {
		return errors.New("--tombstone-missing: the file has bad records, whose streets would be removed; mend it, or publish without")
	}
	publisher, err := forecast.NewPublisher(p.cfg)
	if err != nil {
		return err
	}
	err = p.publish(ctx, std, publisher, content)
	if err = errors.Join(err, publisher.Close()); err != nil {
		return err
	}
	return verdict(content)
}

// publish removes streets last: until then the layer shows more than it has to,
// never less.
func (p *publishing) publish(ctx context.Context, std streams, publisher *forecast.Publisher, content forecast.Content) error {
	var gone []string
	if p.missing {
		before, err := publisher.Keys(ctx, p.readWithin)
		if err != nil {
			return err
		}
		gone = without(before, content)
	}
	bar := p.bar(std.err, len(content.Forecasts)+len(gone))
	err := publisher.Put(ctx, content.Forecasts, func(n int) { bar.Set64(int64(n)) })
	if err == nil {
		err = publisher.Remove(ctx, gone, func(n int) { bar.Set64(int64(len(content.Forecasts) + n)) })
	}
	bar.Finish()
	if err == nil {
		fmt.Fprintf(std.err, "trafficctl: %s streets published, %s removed\n", grouped(int64(len(content.Forecasts))), grouped(int64(len(gone))))
	}
	return err
}

// without gives the keys that content does not have.
func without(keys []string, content forecast.Content) []string {
	has := make(map[string]bool, len(content.Forecasts))
	for _, f := range content.Forecasts {
		has[string(forecasts.Key(f))] = true
	}
	return slices.DeleteFunc(keys, func(key string) bool { return has[key] })
}

// bar is one that is not seen where there is no terminal.
func (p *publishing) bar(w io.Writer, records int) *progressbar.ProgressBar {
	f, ok := w.(*os.File)
	if p.quiet || !ok || !term.IsTerminal(int(f.Fd())) {
		return progressbar.DefaultSilent(int64(records))
	}
	return progressbar.NewOptions(records,
		progressbar.OptionSetWriter(w),
		progressbar.OptionShowCount(),
		progressbar.OptionShowIts(),
		progressbar.OptionSetItsString("streets"),
		progressbar.OptionSetWidth(24),
		progressbar.OptionClearOnFinish(),
	)
}
