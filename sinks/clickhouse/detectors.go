package clickhouse

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	ch "github.com/ClickHouse/clickhouse-go/v2"
	"github.com/cespare/xxhash/v2"

	"trafficd/pipeline/batch"
	schema "trafficd/schemas/clickhouse"
)

// maxDetectors is the maximum number of detectors in one INSERT.
const maxDetectors = 50_000

// Detectors holds the detector lists that are waiting to be archived. It is safe for concurrent
// use.
type Detectors struct {
	mu      sync.Mutex
	waiting map[string]batch.DetectorList // by product instance
	digests map[string]uint64             // digest of the last list of each product instance
}

// Put replaces the list of a product instance. The caller must not change the list afterwards. A
// list that equals the last one is ignored.
func (d *Detectors) Put(l batch.DetectorList) {
	digest := digestOf(l)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.waiting == nil {
		d.waiting, d.digests = map[string]batch.DetectorList{}, map[string]uint64{}
	}
	if last, known := d.digests[l.ProductInstance]; !known || last != digest {
		d.waiting[l.ProductInstance], d.digests[l.ProductInstance] = l, digest
	}
}

func digestOf(l batch.DetectorList) uint64 {
	h := xxhash.New()
	write := func(text string) {
		_, _ = h.WriteString(text) // never fails
		_, _ = h.Write([]byte{0})
	}
	for i, code := range l.Codes {
		write(code)
		for _, a := range l.Attributes[i] {
			write(a.Name)
			write(a.Value)
		}
		write("")
	}
	return h.Sum64()
}

// drain calls save for each waiting list and removes the lists that were saved. It stops at the
// first error and returns it; that list and the remaining ones are kept.
func (d *Detectors) drain(save func(batch.DetectorList) error) error {
	d.mu.Lock()
	lists := slices.Collect(maps.Values(d.waiting))
	clear(d.waiting)
	d.mu.Unlock()
	for i, l := range lists {
		if err := save(l); err != nil {
			d.mu.Lock()
			defer d.mu.Unlock()
			for _, l := range lists[i:] {
				if _, newer := d.waiting[l.ProductInstance]; !newer {
					d.waiting[l.ProductInstance] = l
				}
			}
			return err
		}
	}
	return nil
}

// saveDetectors writes the waiting lists to the archive.
func (s *Sink) saveDetectors(ctx context.Context) error {
	if s.Detectors == nil {
		return nil
	}
	return s.Detectors.drain(func(l batch.DetectorList) error {
		listed := time.Now()
		for from := 0; from < len(l.Codes); from += maxDetectors {
			if err := s.insertDetectors(ctx, l, from, min(from+maxDetectors, len(l.Codes)), listed); err != nil {
				return fmt.Errorf("cannot archive the detectors of %s: %w", l.ProductInstance, hinted(err))
			}
		}
		return nil
	})
}

func (s *Sink) insertDetectors(ctx context.Context, l batch.DetectorList, from, to int, listed time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, s.config.WriteTimeout)
	defer cancel()
	h, err := s.hosts.pick()
	if err != nil {
		return err
	}
	settings := s.hosts.quorumSettings(s.hosts.requiredReplicas())
	maps.Copy(settings, schema.DeriveSettings)
	b, err := h.conn.PrepareBatch(ch.Context(ctx, ch.WithSettings(settings)), s.config.layout().InsertDetectors())
	if err != nil {
		return err
	}
	defer func() { _ = b.Close() }() // Send reports the errors that matter
	for i := from; i < to; i++ {
		attributes := map[string]string{}
		for _, a := range l.Attributes[i] {
			attributes[a.Name] = a.Value
		}
		if err := b.Append(l.ProductInstance, l.Codes[i], attributes, listed); err != nil {
			return err
		}
	}
	return b.Send()
}
