package journal

import "trafficd/pipeline/lib/metrics"

// nameLabel is the label of all metrics of a journal. Its value is the name that WithName sets.
const nameLabel = "journal"

var (
	framesTotal = metrics.NewCounters("trafficd_journal_frames_total",
		"Frames written to the journal and synced.", nameLabel)
	commitsTotal = metrics.NewCounters("trafficd_journal_commits_total",
		"Commits of the journal; each makes all waiting frames durable.", nameLabel)
	commitSeconds = metrics.NewSecondsBy("trafficd_journal_commit_seconds",
		"Time to write and sync one commit of the journal, in seconds.", nameLabel)
	voidedTotal = metrics.NewCounters("trafficd_journal_voided_total",
		"Frames that were rejected because a write or sync failed.", nameLabel)
	errorsTotal = metrics.NewCounters("trafficd_journal_errors_total",
		"Failed operations on the journal's files, by operation.", nameLabel, "op")
)

// counters holds the metrics that one journal updates.
type counters struct {
	frames, commits, voided metrics.Counter
	commitSeconds           metrics.Observer

	commitErrors, voidErrors, segmentErrors, cursorErrors, removeErrors, readErrors, diskFreeErrors metrics.Counter
}

func newCounters(name string) counters {
	failed := func(op string) metrics.Counter { return errorsTotal.WithLabelValues(name, op) }
	return counters{
		frames: framesTotal.WithLabelValues(name), commits: commitsTotal.WithLabelValues(name), voided: voidedTotal.WithLabelValues(name),
		commitSeconds: commitSeconds.WithLabelValues(name),
		commitErrors:  failed("commit"), voidErrors: failed("void"), segmentErrors: failed("segment"), cursorErrors: failed("cursor"),
		removeErrors: failed("remove"), readErrors: failed("read"), diskFreeErrors: failed("disk_free"),
	}
}

func (j *Journal) gauges() []metrics.Collector {
	gauge := func(name, help string, value func() float64) metrics.Collector {
		return metrics.GaugeFunc("trafficd_journal_"+name, help, map[string]string{nameLabel: j.name}, func() float64 {
			j.mu.Lock()
			defer j.mu.Unlock()
			return value()
		})
	}
	return []metrics.Collector{
		gauge("bytes", "Size of the journal's segments on disk, in bytes.", func() float64 { return float64(j.bytes) }),
		gauge("bytes_limit", "Size of the journal's segments at which batches are rejected, in bytes.",
			func() float64 { return float64(j.cfg.MaxBytes) }),
		gauge("segments", "Segments of the journal on disk.", func() float64 { return float64(len(j.segments)) }),
		gauge("queue_depth", "Frames that wait to be written.", func() float64 { return float64(j.queue.depth) }),
		gauge("queue_capacity", "Frames that can wait to be written.", func() float64 { return maxQueueEntries }),
		gauge("disk_free_bytes", "Free space on the journal's disk, in bytes.", func() float64 { return float64(j.free) }),
		gauge("disk_free_bytes_min", "Free space on the journal's disk below which batches are rejected, in bytes.",
			func() float64 { return float64(j.cfg.MinFreeBytes) }),
	}
}
