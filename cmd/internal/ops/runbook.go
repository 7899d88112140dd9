package ops

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"trafficd/deployments"
)

// Entry is the title of a section of deployments/runbook.md. Most are also names of alerts.
type Entry string

// The entries to which reasons refer.
const (
	Unready            Entry = "TrafficdNotReady"
	ClockWrong         Entry = "TrafficdClockWrong"
	CertificateExpires Entry = "TrafficdCertificateExpires"
	CertificateInvalid Entry = "TrafficdCertificateInvalid"
	SettingsStale      Entry = "TrafficdSettingsStale"
	KeysInvalid        Entry = "TrafficdKeysInvalid"
	KeyExpires         Entry = "TrafficdKeyExpires"
	BrokenPromise      Entry = "TrafficdBrokenPromise"
	StoreUnreachable   Entry = "TrafficdStoreUnreachable"
	DeliveryLag        Entry = "TrafficdDeliveryLag"
	JournalFull        Entry = "TrafficdJournalFull"
	DiskLow            Entry = "TrafficdDiskLow"
	JournalErrors      Entry = "TrafficdJournalErrors"
	LogDeleted         Entry = "TrafficdLogDeleted"
	DeadLetters        Entry = "TrafficdDeadLetters"
	RecordQuarantined  Entry = "TrafficdRecordQuarantined"
	RegistryStale      Entry = "TrafficdRegistryStale"
	PlacesMissing      Entry = "TrafficdPlacesMissing"
	ForecastsStale     Entry = "TrafficdForecastsStale"
	ForecasterFailing  Entry = "TrafficdForecasterFailing"
	FeedStale          Entry = "TrafficdFeedStale"
	FeedUnsent         Entry = "TrafficdFeedUnsent"
)

// RunbookPath is the path of the entries: RunbookPath + "TrafficdNotReady" is a section.
const RunbookPath = "/runbook/"

// serveEntry serves a section of the runbook, for operators who have only the daemon.
func serveEntry(w http.ResponseWriter, r *http.Request) {
	text := deployments.Entry(r.PathValue("entry"))
	if text == "" {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, text) // fails only if the client has disconnected
}

// watchEvery is the interval at which the components are checked for the log.
const watchEvery = 5 * time.Second

// watch logs each component when its state or the entries of its reasons change, until done. The
// change must last for two checks, so that a start, a stop or a short failure logs nothing. Reasons
// that change only in numbers are logged once.
func watch(check func() Readiness, log zerolog.Logger, done <-chan struct{}) {
	last, logged := map[string]string{}, map[string]string{}
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		now := map[string]string{}
		for name, c := range check().Components {
			now[name] = fmt.Sprint(c.State, slices.Compact(slices.Sorted(slices.Values(c.entries))))
			if now[name] != last[name] || now[name] == logged[name] || c.State == OK && logged[name] == "" {
				continue
			}
			logged[name] = now[name]
			level, message := zerolog.InfoLevel, "a component is ok again"
			switch c.State {
			case Degraded:
				level, message = zerolog.WarnLevel, "a component is degraded"
			case NotReady:
				level, message = zerolog.ErrorLevel, "a component is not ready"
			}
			log.WithLevel(level).Str("component", name).Str("reasons", strings.Join(c.Reasons, "; ")).Msg(message)
		}
		last = now
	}
}
