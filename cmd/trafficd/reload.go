package main

import (
	"strings"

	"trafficd/cmd/internal/conf"
	"trafficd/cmd/trafficd/config"
)

// reload applies the settings that can change while the daemon is running, and logs which others
// have changed. If any setting is invalid, none is applied. Keys that conflict with those in the
// keys file are not applied until the file changes.
func (d *daemon) reload(load func() (*config.Config, error)) {
	next, err := load()
	if err == nil {
		err = d.registry.Reload(next.Registry)
	}
	if err != nil {
		d.log.Error().Err(err).Msg("cannot reload the settings; the previous ones remain in use")
		return
	}
	next.Log.SetLevel()
	if err := d.keys.Reload(next.API.Keys); err != nil {
		d.log.Error().Err(err).Msg("cannot reload the keys; the last valid ones remain in use until the keys file changes")
		next.API.Keys = d.current.API.Keys
	}
	d.api.Reload()
	applied, pending := []string{}, []string{}
	for _, key := range conf.Differences(&d.current, next) {
		if key == "log.level" || key == "api.keys" || strings.HasPrefix(key, "registry.") {
			applied = append(applied, key)
		} else {
			pending = append(pending, key)
		}
	}
	d.log.Info().Strs("changed", applied).Strs("need_restart", pending).Msg("settings reloaded")
	d.current.Log.Level, d.current.API.Keys, d.current.Registry = next.Log.Level, next.API.Keys, next.Registry
}
