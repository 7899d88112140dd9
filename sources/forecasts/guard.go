package forecasts

import (
	"time"

	"trafficd/sources/internal/shrink"
)

// guardedLayer is a layer that is replaced only by plausible content.
type guardedLayer struct {
	layer Layer
	guard shrink.Guard
	inUse map[identity]struct{} // the streets of the layer
}

// guard returns a guardedLayer. source is the name of new content in errors, such as "the file".
func guard(cfg Config, layer Layer, source string) guardedLayer {
	limits := shrink.Guard{Limits: cfg.Limits, Content: source, Entries: "streets", Hint: "to use it immediately, restart trafficd"}
	return guardedLayer{layer: layer, guard: limits}
}

// admit replaces the streets in use with next, or returns an error if the guard does not allow it.
func (g *guardedLayer) admit(next map[identity]struct{}, now time.Time) error {
	if err := shrink.AdmitKeys(&g.guard, g.inUse, next, now); err != nil {
		return err
	}
	g.inUse = next
	return nil
}
