package journal

import "trafficd/pipeline/metrics"

// The counters are totals of all journals of the process.
var (
	framesTotal   = metrics.NewCounter("trafficd_journal_frames_total", "Frames written to the journal and synced.")
	commitsTotal  = metrics.NewCounter("trafficd_journal_commits_total", "Commits of the journal; each makes all waiting frames durable.")
	commitSeconds = metrics.NewSeconds("trafficd_journal_commit_seconds", "Time to write and sync one commit of the journal, in seconds.")
	voidedTotal   = metrics.NewCounter("trafficd_journal_voided_total", "Frames that were rejected because a write or sync failed.")

	errorsTotal = metrics.NewCounters("trafficd_journal_errors_total",
		"Failed operations on the journal's files, by operation.", "op")
	commitErrors   = errorsTotal.WithLabelValues("commit")
	voidErrors     = errorsTotal.WithLabelValues("void")
	segmentErrors  = errorsTotal.WithLabelValues("segment")
	cursorErrors   = errorsTotal.WithLabelValues("cursor")
	removeErrors   = errorsTotal.WithLabelValues("remove")
	readErrors     = errorsTotal.WithLabelValues("read")
	diskFreeErrors = errorsTotal.WithLabelValues("disk_free")
)

func (j *Journal) gauges() []metrics.Collector {
	gauge := func(name, help string, value func() float64) metrics.Collector {
		return metrics.GaugeFunc("trafficd_journal_"+name, help, map[string]string{"dir": j.cfg.Dir}, func() float64 {
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
		gauge("queue_capacity", "Frames that can wait to be written.", func() float64 { return float64(j.cfg.QueueEntries) }),
		gauge("disk_free_bytes", "Free space on the journal's disk, in bytes.", func() float64 { return float64(j.free) }),
		gauge("disk_free_bytes_min", "Free space on the journal's disk below which batches are rejected, in bytes.",
			func() float64 { return float64(j.cfg.MinFreeBytes) }),
	}
}
