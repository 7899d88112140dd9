package rig

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"trafficd/cmd/chaos/internal/judge"
	"trafficd/cmd/chaos/internal/load"
	"trafficd/cmd/internal/launch"
	"trafficd/cmd/internal/must"
)

// Forecasts is the topic of the forecasts, which the daemon serves.
const Forecasts = "forecasts"

// newForecaster prepares a forecaster for the first client's detectors, of which each street has
// two. There is none with several replicas or nodes.
func (r *Rig) newForecaster(ctx context.Context) {
	if r.cfg.Replicas > 1 || r.cfg.Nodes > 1 {
		return
	}
	// With 60 periods, some are still in the future when the daemon's clock is 20 minutes ahead.
	r.ForecastSettings = judge.Settings{Periods: 60, Step: time.Minute, Every: 2 * time.Second, Tolerance: 0.5}
	instance, text := judge.Instance(load.Detector(0, 0)), "detectorCode,street,fromnode,length\n"
	for n, code := range r.cfg.Detectors {
		if judge.Instance(code) == instance {
			r.ForecastSettings.Streets = 1 + n/2
			text += fmt.Sprintf("%s,%d,1,%d\n", code, r.ForecastSettings.Streets, 100+n)
		}
	}
	must.Do(os.WriteFile(r.path("streets.csv"), []byte(text), 0o600))
	must.Do(launch.CreateTopic(ctx, r.Broker.Addresses(), Forecasts, partitions, nil))
	must.Do(launch.Build(ctx, "-o", r.path("forecaster"), "./cmd/forecaster"))
	r.Forecaster = r.forecaster("published", "output.kafka.brokers="+list(addresses(r.BrokerWires)), "output.kafka.topic="+Forecasts,
		"output.kafka.dial_timeout=500ms", "output.kafka.request_timeout=3s")
}

// forecaster returns a forecaster that is not running.
func (r *Rig) forecaster(dir string, output ...string) *Daemon {
	dir = r.path(dir)
	must.Do(os.MkdirAll(dir, 0o755))
	ops := must.Get(launch.FreeAddress())
	d := &Daemon{unexpected: r.cfg.Unexpected, Daemon: launch.Daemon{Binary: r.path("forecaster"), Dir: dir, Ops: ops}}
	r.onClose(d.Kill)
	d.Set("ops.listen="+ops, "clickhouse.address="+r.ArchiveWires[0].Address, "clickhouse.timeout=10s",
		"model.product_instance="+judge.Instance(load.Detector(0, 0)), "model.interval=1m", "detectors.path="+r.path("streets.csv"),
		fmt.Sprint("forecasts.every=", r.ForecastSettings.Every), fmt.Sprint("forecasts.step=", r.ForecastSettings.Step),
		fmt.Sprint("forecasts.periods=", r.ForecastSettings.Periods), fmt.Sprint("forecasts.tolerance=", r.ForecastSettings.Tolerance),
		"forecasts.grace=0s", "log.format=json")
	d.Set(output...)
	return d
}

// StartReference starts a second forecaster, which writes its forecasts to file.
func (r *Rig) StartReference() (d *Daemon, file string, err error) {
	defer must.Return(&err)
	file = filepath.Join(r.path("reference"), "forecasts.pb")
	d = r.forecaster("reference", "output.feed=file", "output.file.path="+file)
	return d, file, d.Start()
}
