// Package forecast makes street forecasts, reads and writes them in files,
// puts them into the topic that the daemon reads, and gets the layer that the
// daemon makes of them. What a good forecast is, and how files look, is said by
// package trafficd/sources/forecasts; this is the other side of it.
package forecast
