package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"trafficd/cmd/internal/client"
	"trafficd/cmd/internal/publish"
	"trafficd/cmd/trafficctl/internal/forecast"
	"trafficd/cmd/trafficctl/internal/route"
	"trafficd/sources/forecasts"
)

func newForecast(std streams) *cobra.Command {
	return group(&cobra.Command{
		Use:   "forecast",
		Short: "Publish and get street forecasts",
		Long: `Publish street forecasts to the topic that the daemon reads, and get the layer that the
daemon serves.

Files contain a StreetForecastResponse as protobuf (.pb) or in protobuf's JSON mapping
(.json), or one StreetForecast per line (.ndjson), and may be compressed. publish skips or
corrects the same records as the daemon, reports them, and exits with code 2.`,
		Example: `  trafficctl forecast publish town.ndjson.gz --brokers 127.0.0.1:9092
  trafficctl forecast get --key-file map.key --horizon 30 --format geojson > map.geojson`,
	}, newForecastPublish(std), newForecastGet(std))
}

func newForecastGet(std streams) *cobra.Command {
	var c connection
	horizon, format, match := -1, forecast.Formats[0], ""
	cmd := &cobra.Command{
		Use:   "get",
		Short: "Get the forecast layer from a daemon",
		Long: `Get the forecast layer and decode it. The key needs the forecast right.

json is protobuf's JSON mapping. geojson has a straight line between the points of each
street's OpenLR code, or a null geometry and a note if the code cannot be decoded. With
--match, the file that trafficctl route match has written, streets that are matched follow
the road. protobuf is the message itself.`,
		Example: `  trafficctl forecast get --key-file map.key --horizon 30 --format geojson > map.geojson
  trafficctl forecast get --key-file map.key | jq '.streetForecast | length'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !slices.Contains(forecast.Formats, format) {
				return fmt.Errorf("--format %q must be one of %v", format, forecast.Formats)
			}
			if match != "" && format != forecast.GeoJSON {
				return fmt.Errorf("--match is for --format %s, not for %s", forecast.GeoJSON, format)
			}
			courses, err := readCourses(cmd.Context(), std, match)
			if err != nil {
				return err
			}
			daemon, err := c.client()
			if err != nil {
				return err
			}
			defer daemon.Close()
			resp, err := forecast.Get(cmd.Context(), daemon, forecast.Query{Horizon: horizon})
			if err != nil {
				return err
			}
			if !c.quiet {
				fmt.Fprintln(std.err, "trafficctl:", describe(resp))
			}
			return forecast.Show(std.out, format, resp.Layer, courses)
		},
	}
	f := cmd.Flags()
	c.register(f, client.Forecast)
	f.IntVar(&horizon, "horizon", horizon, "only the period that is this many minutes from now; -1 for all periods")
	f.StringVar(&format, "format", format, "output format: "+strings.Join(forecast.Formats, ", "))
	f.StringVar(&match, "match", match, "`file` of trafficctl route match with the courses of the streets, for --format geojson")
	return cmd
}

// readCourses returns the courses of the matched streets in a file, or nil if path is empty.
func readCourses(ctx context.Context, std streams, path string) (forecast.Courses, error) {
	if path == "" {
		return nil, nil
	}
	matches, err := readMatches(ctx, std, path)
	if err != nil {
		return nil, err
	}
	courses := make(forecast.Courses)
	for _, m := range matches {
		if m.State == route.Matched {
			courses[[2]int32{m.Street, m.FromNode}] = m.Course()
		}
	}
	return courses, nil
}

func describe(resp *forecast.Response) string {
	text := fmt.Sprintf("%s, %s bytes", plural(len(resp.Layer.StreetForecast), "street"), grouped(resp.Size))
	if encoding := resp.Get("Content-Encoding"); encoding != "" {
		text += fmt.Sprintf(" (%s as %s)", grouped(resp.Received), encoding)
	}
	for _, part := range [][2]string{{"ETag", "ETag"}, {"last modified", "Last-Modified"}, {"age in seconds", "Forecast-Age"}} {
		if value := resp.Get(part[1]); value != "" {
			text += ", " + part[0] + " " + value
		}
	}
	return text
}

// maxNotes is the maximum number of faults printed per file. Further faults are only counted.
const maxNotes = 20

// readForecasts reads the forecasts in a file and prints its faults to standard error.
func readForecasts(ctx context.Context, std streams, path, format string, maxSpeed float64) (forecast.Content, error) {
	if !(maxSpeed > 0 && maxSpeed <= forecasts.HighestMaxSpeed) { // NaN is invalid
		return forecast.Content{}, fmt.Errorf("--max-speed %g must be more than 0 and at most %g", maxSpeed, forecasts.HighestMaxSpeed)
	}
	notes := 0
	content, err := forecast.ReadFile(ctx, path, cmp.Or(format, forecast.FormatOf(path)), maxSpeed, std.in, func(text string) {
		if notes++; notes <= maxNotes {
			fmt.Fprintln(std.err, "trafficctl:", text)
		}
	})
	if notes > maxNotes {
		fmt.Fprintf(std.err, "trafficctl: … and %s more\n", grouped(notes-maxNotes))
	}
	return content, err
}

// errIfFaulty returns nil if c has no faults. Otherwise, it prints their number to standard error
// and returns errRejected.
func errIfFaulty(std streams, c forecast.Content) error {
	if c.Skipped+c.Remarks == 0 {
		return nil
	}
	fmt.Fprintf(std.err, "trafficctl: %s skipped, %s omitted or corrected\n", plural(c.Skipped, "record"), plural(c.Remarks, "part"))
	return errRejected
}

// envPassword names the environment variable for the password; other users can see flags.
const envPassword = "TRAFFICD_KAFKA_PASSWORD"

// kafkaFlags replaces setting names in an error with the corresponding flags of publish.
var kafkaFlags = strings.NewReplacer(
	"kafka.brokers", "--brokers", "kafka.topic", "--topic", "kafka.request_timeout", "--timeout",
	"kafka.tls.enabled must be true", "--tls must be set", "kafka.tls.enabled", "--tls",
	"kafka.tls.ca", "--tls-ca", "kafka.tls.cert", "--tls-cert", "kafka.tls.key", "--tls-key",
	"kafka.sasl.mechanism", "--sasl", "kafka.sasl.username", "--sasl-user", "kafka.sasl.password", envPassword,
)

func newForecastPublish(std streams) *cobra.Command {
	cfg, options := forecasts.DefaultConfig().Kafka, publish.Options{Timeout: time.Minute}
	var input string
	var maxSpeed float64
	var missing, quiet bool
	var readWithin time.Duration
	cmd := &cobra.Command{
		Use:   "publish FILE|-",
		Short: "Publish forecasts to the topic that the daemon reads",
		Long: `In one transaction, write a record for each street, with the key street:fromnode and a
StreetForecast as the value, and wait for the commit. The topic should be compacted.

Map clients see either all of a publication or none of it. If publish is interrupted or
killed, its transaction is aborted by the next publication with the same transactional
id, or by the brokers after --transaction-timeout. Only one publisher can use a
transactional ID at a time: a second publisher aborts the transaction of the first, which
then fails. On brokers with access control, the user needs write permission for this id.

All records are written to one partition, because the daemon shows a transaction on
several partitions partition by partition. Other producers have the same guarantee if
they do the same.

--tombstone-missing reads the topic first and removes the streets that are not in the
file. It rejects a file with invalid records, because their streets would be removed.

The password for --sasl is read from the environment variable ` + envPassword + `.`,
		Example: `  trafficctl forecast publish town.pb --brokers 127.0.0.1:9092
  trafficctl forecast publish town.ndjson.gz --brokers k1:9093,k2:9093 --tls --sasl scram-sha-512 --sasl-user maps --tombstone-missing`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cfg.SASL.Mechanism != "" {
				cfg.SASL.Password = os.Getenv(envPassword)
			}
			if err := cfg.Validate("kafka."); err != nil {
				return errors.New(kafkaFlags.Replace(err.Error()))
			}
			if options.Timeout < time.Second {
				return fmt.Errorf("--transaction-timeout %s must be at least 1s", options.Timeout)
			}
			content, err := readForecasts(cmd.Context(), std, args[0], input, maxSpeed)
			if err != nil {
				return err
			}
			if missing && content.Skipped > 0 {
				return errors.New("cannot use --tombstone-missing: the file has invalid records, whose streets would be removed; correct the file, " +
					"or publish without the flag")
			}
			publisher, err := publish.NewPublisher(cfg, options)
			if err != nil {
				return err
			}
			defer publisher.Close()
			var removed []string
			if missing {
				inTopic, err := publisher.Digests(cmd.Context(), readWithin)
				if err != nil {
					return err
				}
				inFile := make(map[string]bool, len(content.Forecasts))
				for _, f := range content.Forecasts {
					inFile[string(forecasts.Key(f))] = true
				}
				removed = slices.DeleteFunc(slices.Sorted(maps.Keys(inTopic)), func(key string) bool { return inFile[key] })
			}
			total := len(content.Forecasts) + len(removed)
			display := newProgress(std.err, quiet, int64(total),
				progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionSetItsString("streets"))
			err = publisher.Publish(cmd.Context(), content.Forecasts, removed, func(n int) {
				display.show(int64(n), "", fmt.Sprintf("%d of %d streets", n, total))
			})
			display.end()
			if err != nil && cmd.Context().Err() == nil {
				if cause := forecasts.CheckTopic(cmd.Context(), cfg, true); cause != nil {
					err = fmt.Errorf("%w\n%s", err, kafkaFlags.Replace(cause.Error()))
				}
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(std.err, "trafficctl: %s published, %s removed\n", plural(len(content.Forecasts), "street"), grouped(len(removed)))
			return errIfFaulty(std, content)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&cfg.Brokers, "brokers", cfg.Brokers, "comma-separated list of brokers, each host:port")
	f.StringVar(&cfg.Topic, "topic", cfg.Topic, "topic of the forecasts")
	f.BoolVar(&cfg.TLS.Enabled, "tls", false, "use TLS")
	f.StringVar(&cfg.TLS.CA, "tls-ca", "", "PEM file with the CA certificates to trust instead of the system's")
	f.StringVar(&cfg.TLS.Cert, "tls-cert", "", "PEM file with the client certificate")
	f.StringVar(&cfg.TLS.Key, "tls-key", "", "PEM file with the client certificate's private key")
	f.StringVar(&cfg.SASL.Mechanism, "sasl", "", "SASL mechanism: plain, scram-sha-256 or scram-sha-512")
	f.StringVar(&cfg.SASL.Username, "sasl-user", "", "user name for --sasl")
	f.DurationVar(&cfg.RequestTimeout, "timeout", cfg.RequestTimeout, "time limit for a request to a broker")
	f.StringVar(&options.ID, "transactional-id", "", "transactional ID; by default trafficctl-forecasts-TOPIC")
	f.DurationVar(&options.Timeout, "transaction-timeout", options.Timeout, "time limit for a publication, after which the brokers abort it")
	f.StringVar(&input, "input-format", "", "protobuf, json or ndjson; by default inferred from the file name, or ndjson for -")
	f.Float64Var(&maxSpeed, "max-speed", forecasts.MaxSpeed, "highest plausible speed, as in the daemon's setting forecasts.max_speed")
	f.BoolVar(&missing, "tombstone-missing", false, "remove streets that are not in the file")
	f.DurationVar(&readWithin, "read-within", time.Minute, "time limit for reading the topic, with --tombstone-missing")
	f.BoolVar(&quiet, "quiet", false, "do not print progress")
	return cmd
}
