package journal

import "trafficd/pipeline/metrics"

// The metrics of the package. They carry no label for the journal.
var (
	journalBytes  = metrics.NewGauge("trafficd_journal_bytes", "Size of the journal's segments on disk, in bytes.")
	journalSegs   = metrics.NewGauge("trafficd_journal_segments", "Segments of the journal on disk.")
	framesTotal   = metrics.NewCounter("trafficd_journal_frames_total", "Frames written to the journal and synced.")
	commitsTotal  = metrics.NewCounter("trafficd_journal_commits_total", "Commits of the journal, each with one sync for all waiting frames.")
	commitSeconds = metrics.NewSeconds("trafficd_journal_commit_seconds", "Time to write and sync one commit of the journal, in seconds.")
	queueDepth    = metrics.NewGauge("trafficd_journal_queue_depth", "Frames that wait to be written.")
	queueCapacity = metrics.NewGauge("trafficd_journal_queue_capacity", "Frames that can wait to be written.")
	voidedTotal   = metrics.NewCounter("trafficd_journal_voided_total", "Frames that were not acknowledged because a write or sync failed.")

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
