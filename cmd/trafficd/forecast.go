package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"trafficd/cmd/trafficd/ops"
	"trafficd/schemas/contract"
	"trafficd/sinks/layers"
	"trafficd/sources/api"
	"trafficd/sources/forecasts"
)

// noForecasts is said in readiness where a key is for something that is not there.
const noForecasts = "a key has the right forecast, but there are no forecasts: set forecasts.feed"

// forecast is the way of the forecasts: a feed, and the layer that it fills.
type forecast struct {
	feed  *forecasts.Forecasts
	layer *layers.Layer
}

// startForecast begins to read the feed. The keyring has the layer ready in a
// key's time zone before the key comes into use.
func (d *daemon) startForecast() (err error) {
	layer := layers.New(d.cfg.Layers, d.log)
	feed, err := forecasts.New(d.cfg.Forecasts, layer, d.log)
	if err != nil {
		return err
	}
	d.forecast = forecast{feed, layer}
	d.keys.BeforeUse(layer.Prepare)
	layer.Start()                    // until stopForecast
	feed.Start(context.Background()) // likewise
	return nil
}

func (d *daemon) stopForecast(context.Context) error {
	d.forecast.feed.Close()
	d.forecast.layer.Stop()
	return nil
}

func (d *daemon) forecastRoute() api.Route {
	return api.Route{
		Path: layers.Path, Methods: layers.Methods, Right: contract.RightForecast,
		Endpoint: d.forecast.layer, QueryKey: d.cfg.Layers.QueryKey,
	}
}

// forecastState never makes the daemon unready: batches do not need forecasts. There is
// nothing to say where nobody asks for forecasts and none are fed.
func (d *daemon) forecastState() (c ops.Component, some bool) {
	feed, layer := d.forecast.feed.Status(), d.forecast.layer.Status(time.Now())
	c = ops.Fine(map[string]any{"feed": feed, "layer": layer})
	if feed.Feed == "" {
		wanted := slices.ContainsFunc(d.keys.Clients(), func(c *contract.Client) bool { return c.May(contract.RightForecast) })
		c.Add(ops.Degraded, noForecasts)
		return c, wanted
	}
	switch {
	case !layer.Published:
		c.Add(ops.Degraded, "no forecasts yet: requests for them are answered 503")
	case layer.Stale:
		c.Add(ops.Degraded, fmt.Sprintf("the feed has not confirmed the forecasts for %v: they are %s", age(layer), fate(layer)))
	}
	if layer.LeftOut > 0 {
		c.Add(ops.Degraded, fmt.Sprintf("%d forecasts are left out: raise layers.max_streets, and start again", layer.LeftOut))
	}
	if feed.Error != "" {
		c.Add(ops.Degraded, feed.Error)
	}
	return c, true
}

func age(s layers.Status) time.Duration {
	return time.Duration(s.AgeSeconds) * time.Second
}

func fate(s layers.Status) string {
	if s.Refuses {
		return "not served any more (layers.stale)"
	}
	return "still served"
}
