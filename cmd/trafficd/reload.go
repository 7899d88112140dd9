package main

import (
	"slices"
	"strings"

	"trafficd/cmd/internal/conf"
	"trafficd/cmd/trafficd/config"
)

// reload applies the settings that can change while the daemon is running, and logs the others that
// differ. Invalid settings change nothing.
func (d *daemon) reload(load func() (*config.Config, error)) {
	next, err := load()
	if err == nil {
		err = d.registry.Reload(next.Registry)
	}
	if err != nil {
		d.log.Error().Err(err).Msg("cannot reload the settings; the last ones stay in use")
		return
	}
	next.Log.SetLevel()
	d.keys.Reload(next.API.Keys)
	d.api.Reload()
	differ := conf.Differences(d.cfg, next)
	applied := func(key string) bool {
		return key == "log.level" || key == "api.keys" || strings.HasPrefix(key, "registry.")
	}
	d.log.Info().Strs("changed", slices.DeleteFunc(slices.Clone(differ), func(key string) bool { return !applied(key) })).
		Strs("need_restart", slices.DeleteFunc(differ, applied)).Msg("settings reloaded")
	d.cfg.Log.Level, d.cfg.API.Keys, d.cfg.Registry = next.Log.Level, next.API.Keys, next.Registry
}
