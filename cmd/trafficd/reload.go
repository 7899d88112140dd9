package main

import (
	"strings"
	"sync/atomic"

	"trafficd/cmd/internal/conf"
	"trafficd/cmd/internal/ops"
	"trafficd/cmd/trafficd/config"
	"trafficd/pipeline/lib/metrics"
)

// reloads is the state of the settings that SIGHUP reads again.
type reloads struct {
	current config.Config // the settings in use; used only by reload

	problem atomic.Pointer[error]    // error of the last reload; nil if it succeeded
	pending atomic.Pointer[[]string] // keys that require a restart, as of the last successful reload
}

// reload applies the settings that can change while the daemon is running, and logs which others
// have changed. If any setting is invalid, none is applied. Keys that conflict with those in the
// keys file are not applied until the next reload.
func (d *daemon) reload(load func() (*config.Config, error)) {
	next, err := load()
	if err != nil {
		d.reloads.problem.Store(&err)
		d.log.Error().Err(err).Msg("cannot reload the settings; the previous ones remain in use")
		return
	}
	d.reloads.problem.Store(nil)
	current := &d.reloads.current
	d.registry.Reload(next.Registry)
	next.Log.SetLevel()
	if err := d.keys.Reload(next.API.Keys); err != nil {
		d.log.Error().Err(err).Msg("cannot reload the keys; the last valid ones remain in use")
		next.API.Keys = current.API.Keys
	}
	d.api.Reload()
	applied, pending := []string{}, []string{}
	for _, key := range conf.Differences(current, next) {
		if key == "log.level" || key == "api.keys" || strings.HasPrefix(key, "registry.") {
			applied = append(applied, key)
		} else {
			pending = append(pending, key)
		}
	}
	d.reloads.pending.Store(&pending)
	d.log.Info().Strs("changed", applied).Strs("need_restart", pending).Msg("settings reloaded")
	current.Log.Level, current.API.Keys, current.Registry = next.Log.Level, next.API.Keys, next.Registry
}

// state returns the state of the settings, which is Degraded if those of the last reload are not in
// use. The reasons name no values, which may be secret.
func (r *reloads) state() ops.Component {
	c := ops.Component{State: ops.OK}
	if err := r.problem.Load(); err != nil {
		c.Add(ops.Degraded, ops.SettingsStale,
			"cannot reload the settings; the previous ones remain in use: "+strings.ReplaceAll((*err).Error(), "\n", "; "))
	}
	if pending := r.pending.Load(); pending != nil && len(*pending) > 0 {
		c.Add(ops.Degraded, ops.SettingsStale, "changed settings are not in use until a restart: "+strings.Join(*pending, ", "))
	}
	return c
}

// registerMetric registers the metric.
func (r *reloads) registerMetric() {
	metrics.Register(metrics.GaugeFunc("trafficd_ops_settings_stale",
		"1 if settings read by the last SIGHUP are not in use, because one is invalid or some require a restart, else 0.", nil,
		func() float64 { return metrics.Bool(r.state().State != ops.OK) }))
}
