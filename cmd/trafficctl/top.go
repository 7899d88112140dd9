package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"trafficd/cmd/internal/client"
	"trafficd/cmd/trafficd/status"
	"trafficd/pipeline"
)

const operatorsURL = "http://127.0.0.1:8081" // the default of the setting ops.listen, as a URL

func newTop(std streams) *cobra.Command {
	var base string
	var asJSON bool
	var interval time.Duration
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show the daemon's state, refreshed until Ctrl-C",
		Long: `Show problems, rates, latency, stores, rejections and clients, refreshed until Ctrl-C.
The figures come from /status of the operators' listener, whose web page also shows their
history. Once the state has been shown, top retries if the daemon cannot be reached.
With --json, print the response of /status once.`,
		Example: `  trafficctl top
  trafficctl top --url http://10.0.0.7:8081 --interval 10s
  trafficctl top --json | jq .summary`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if interval < 100*time.Millisecond {
				return fmt.Errorf("--interval %s must be at least 100ms", interval)
			}
			separator := "\n" // between two states
			if isTerminal(std.out) {
				separator = "\033[H\033[2J" // move the cursor to the top and clear the screen
			}
			for shown := false; ; shown = true {
				var s status.Status
				text, err := getStatus(cmd.Context(), base, &s)
				var screen string
				switch {
				case asJSON && err == nil:
					_, err = std.out.Write(text)
					return err
				case !asJSON && cmd.Context().Err() != nil:
					return nil
				case err != nil && !shown:
					return err
				case err != nil:
					screen = fmt.Sprintf("! %v; retrying\n", err)
				default:
					screen = page(&s)
				}
				if _, err := io.WriteString(std.out, separator+screen); err != nil {
					return err
				}
				if client.Sleep(cmd.Context(), interval) != nil {
					return nil
				}
			}
		},
	}
	f := cmd.Flags()
	f.StringVar(&base, "url", operatorsURL, "address of the operators' listener")
	f.DurationVar(&interval, "interval", 2*time.Second, "time between refreshes")
	f.BoolVar(&asJSON, "json", false, "print the response of /status once")
	return cmd
}

func page(s *status.Status) string {
	var b strings.Builder
	fmt.Fprintf(&b, "trafficd %s   %s   started %s ago\n\n", s.Version, s.State, s.Time.Sub(s.Started).Round(time.Second))
	for _, sentence := range s.Summary {
		fmt.Fprintf(&b, "! %s\n", sentence)
	}
	if len(s.Summary) == 0 {
		b.WriteString("All is well.\n")
	}
	b.WriteString("\n")
	w := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	fmt.Fprintf(w, "batches/s\t%.1f\taccepted/s\t%.0f\trejected/s\t%.0f\tin the last minute\n",
		s.Rates.Batches, s.Rates.Accepted, s.Rates.Rejected)
	if s.Latency != nil {
		fmt.Fprintf(w, "response time p50\t%.1f ms\tp99\t%.1f ms\t\t\tin the last minute\n", 1000*s.Latency.P50, 1000*s.Latency.P99)
	}
	if s.Journal.Limit > 0 { // on disk
		fmt.Fprintf(w, "journal\t%.0f MiB\tof\t%.0f MiB\tdisk free\t%.0f MiB\n", s.Journal.Bytes/(1<<20), s.Journal.Limit/(1<<20),
			s.Journal.DiskFree/(1<<20))
	}
	if s.Forecast != nil {
		fmt.Fprintf(w, "forecast\t%.0f streets\tage\t%.0f s\n", s.Forecast.Streets, s.Forecast.Age)
	}
	fmt.Fprintf(w, "\nSTORE\tWAITING\tDELAY\tDEAD LETTERS\tLAST ERROR\n")
	for _, x := range s.Stores {
		fmt.Fprintf(w, "%s\t%.0f\t%.0f s\t%.0f\t%s\n", x.Name, x.Rows, x.Seconds, x.DeadLetters, cmp.Or(short(x.Error), "none"))
	}
	if len(s.Clients) > 0 {
		fmt.Fprintf(w, "\nKEY\tBATCHES\tACCEPTED\tREJECTED\tLAST BATCH\tNEWEST INTERVAL\n")
	}
	for _, c := range s.Clients {
		ago := func(at *time.Time) string {
			if at == nil {
				return "never"
			}
			return s.Time.Sub(*at).Round(time.Second).String() + " ago"
		}
		fmt.Fprintf(w, "%s\t%.0f\t%.0f\t%.0f\t%s\t%s\n", c.Name, c.Batches, c.Accepted, c.Rejected, ago(c.LastBatch), ago(c.Newest))
	}
	if len(s.Codes) > 0 {
		fmt.Fprintf(w, "\nREJECTED\tTOTAL\tPER SECOND\n")
	}
	for _, c := range s.Codes {
		fmt.Fprintf(w, "%s\t%.0f\t%.1f\n", c.Code, c.Total, c.PerSecond)
	}
	_ = w.Flush() // cannot fail: b is in memory
	return b.String()
}

// tapHintAfter is the time without a measurement after which tap says that it is waiting.
var tapHintAfter = 5 * time.Second

func newTap(std streams) *cobra.Command {
	var base string
	var filter pipeline.TapFilter
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "tap",
		Short: "Follow rejected measurements as they arrive",
		Long: `Print a sample of the rejected measurements, at most 50 per second, until Ctrl-C. tap
never slows the daemon down. A batch that is resent with the same Idempotency-Key is not
shown again.`,
		Example: `  trafficctl tap
  trafficctl tap --client acme --code UNKNOWN_DETECTOR
  trafficctl tap --accepted --detector D-4711 --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			query := url.Values{}
			for name, value := range map[string]string{"client": filter.Client, "code": filter.Code, "detector": filter.Detector} {
				if value != "" {
					query.Set(name, value)
				}
			}
			if filter.Accepted {
				query.Set("accepted", "")
			}
			body, err := getOperators(cmd.Context(), base, "/rejections", query)
			switch {
			case cmd.Context().Err() != nil:
				return nil
			case err != nil:
				return err
			}
			defer body.Close()
			hint := time.AfterFunc(tapHintAfter, func() {
				fmt.Fprintln(std.err, "trafficctl: nothing has matched yet; trafficctl top lists the keys and the codes")
			})
			defer hint.Stop()
			lines := bufio.NewScanner(body)
			for lines.Scan() {
				hint.Stop()
				var item pipeline.TapItem
				if err := json.Unmarshal(lines.Bytes(), &item); err != nil {
					return fmt.Errorf("cannot decode a line of /rejections: %w", err)
				}
				if asJSON {
					_, err = fmt.Fprintf(std.out, "%s\n", lines.Bytes())
				} else {
					_, err = fmt.Fprintln(std.out, line(&item))
				}
				if err != nil {
					return err
				}
			}
			if cmd.Context().Err() != nil {
				return nil
			}
			return fmt.Errorf("the daemon ended the stream: %w", cmp.Or(lines.Err(), io.ErrUnexpectedEOF))
		},
	}
	f := cmd.Flags()
	f.StringVar(&base, "url", operatorsURL, "address of the operators' listener")
	f.StringVar(&filter.Client, "client", "", "only measurements sent with the key of this name")
	f.StringVar(&filter.Code, "code", "", "only measurements with this error code, such as UNKNOWN_DETECTOR")
	f.StringVar(&filter.Detector, "detector", "", "only measurements of this detector")
	f.BoolVar(&filter.Accepted, "accepted", false, "show accepted measurements instead of rejected ones")
	f.BoolVar(&asJSON, "json", false, "print each measurement as one line of JSON")
	return cmd
}

func line(i *pipeline.TapItem) string {
	text := fmt.Sprintf("%s  %s  %s  %q", i.Time.Format("15:04:05Z"), i.Client, i.Code, i.Detector)
	if i.Value != nil {
		return fmt.Sprintf("%s  %s %g  from %s", text, i.Type, *i.Value, i.From.Format(time.RFC3339))
	}
	var message string
	_ = json.Unmarshal(i.Message, &message) // the daemon always sends a string
	return text + "  " + printable(message)
}

// getStatus requests /status, decodes the response body into s, and returns the body.
func getStatus(ctx context.Context, base string, s *status.Status) (text []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	body, err := getOperators(ctx, base, "/status", nil)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	text, err = io.ReadAll(body)
	if err != nil {
		return nil, fmt.Errorf("cannot read the response of /status: %w", err)
	}
	if err := json.Unmarshal(text, s); err != nil {
		return nil, fmt.Errorf("cannot decode the response of %s/status: %w; check that it is a trafficd of the same version", base, err)
	}
	return text, nil
}

// operators is the HTTP client for the operators' listener.
var operators = func() *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.ResponseHeaderTimeout = 10 * time.Second // tap waits longer for the body
	return &http.Client{Transport: t}
}()

// getOperators requests path from the operators' listener. The caller must close the body.
func getOperators(ctx context.Context, base, path string, query url.Values) (body io.ReadCloser, err error) {
	if err := client.ValidateURL(base); err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(base, "/")+path, nil)
	if err != nil {
		return nil, err
	}
	req.URL.RawQuery = query.Encode()
	resp, err := operators.Do(req)
	if err != nil {
		return nil, fmt.Errorf("cannot reach the operators' listener: %w; check that --url matches the daemon's setting ops.listen", err)
	}
	if resp.Header.Get("Trace-Id") != "" {
		resp.Body.Close()
		return nil, fmt.Errorf("%s is the clients' listener; set --url to the operators' one (the daemon's setting ops.listen), such as %s",
			base, operatorsURL)
	}
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		resp.Body.Close()
		err := fmt.Errorf("%s responded with %s: %s", req.URL, resp.Status, printable(strings.Join(strings.Fields(string(text)), " ")))
		if resp.StatusCode == http.StatusNotFound {
			err = fmt.Errorf("%w; check that --url matches the daemon's setting ops.listen", err)
		}
		return nil, err
	}
	return resp.Body, nil
}
