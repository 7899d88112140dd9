package journal

import "github.com/VictoriaMetrics/metrics"

// The metrics of the package. They carry no label for the journal.
var (
	journalBytes   = metrics.NewGauge(`trafficd_journal_bytes`, nil)
	journalSegs    = metrics.NewGauge(`trafficd_journal_segments`, nil)
	framesTotal    = metrics.NewCounter(`trafficd_journal_frames_total`)
	commitsTotal   = metrics.NewCounter(`trafficd_journal_commits_total`)
	commitSeconds  = metrics.NewHistogram(`trafficd_journal_commit_seconds`)
	queueDepth     = metrics.NewGauge(`trafficd_journal_queue_depth`, nil)
	queueCapacity  = metrics.NewGauge(`trafficd_journal_queue_capacity`, nil)
	voidedTotal    = metrics.NewCounter(`trafficd_journal_voided_total`)
	commitErrors   = metrics.NewCounter(`trafficd_journal_errors_total{op="commit"}`)
	voidErrors     = metrics.NewCounter(`trafficd_journal_errors_total{op="void"}`)
	segmentErrors  = metrics.NewCounter(`trafficd_journal_errors_total{op="segment"}`)
	cursorErrors   = metrics.NewCounter(`trafficd_journal_errors_total{op="cursor"}`)
	removeErrors   = metrics.NewCounter(`trafficd_journal_errors_total{op="remove"}`)
	readErrors     = metrics.NewCounter(`trafficd_journal_errors_total{op="read"}`)
	diskFreeErrors = metrics.NewCounter(`trafficd_journal_errors_total{op="disk_free"}`)
)
