package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"sync"
	"time"

	ch "github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"trafficd/pipeline/batch"
	schema "trafficd/schemas/clickhouse"
)

// maxDetectors is the maximum number of detectors in one INSERT.
const maxDetectors = 50_000

// Detectors holds the detector lists that are waiting to be archived. It is safe for concurrent
// use.
type Detectors struct {
	mu      sync.Mutex
	last    map[string]uint64              // product instance → hash of its last list
	waiting map[string]*batch.DetectorList // product instance → its last list, if that is not archived yet
}

var seed = maphash.MakeSeed()

// Put replaces the list of a product instance. The caller must not change the list afterwards. A
// list that equals the last one, in any order, is ignored.
func (d *Detectors) Put(l batch.DetectorList) {
	var hash uint64 // does not depend on the order of the detectors
	for i, code := range l.Codes {
		var h maphash.Hash
		h.SetSeed(seed)
		maphash.WriteComparable(&h, code)
		for _, a := range l.Attributes[i] {
			maphash.WriteComparable(&h, a)
		}
		hash += h.Sum64()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.last == nil {
		d.last, d.waiting = map[string]uint64{}, map[string]*batch.DetectorList{}
	}
	if last, known := d.last[l.ProductInstance]; !known || hash != last {
		d.last[l.ProductInstance], d.waiting[l.ProductInstance] = hash, &l
	}
}

// drain calls save for each waiting list, and removes the list unless save fails. It stops at the
// first error and returns it.
func (d *Detectors) drain(save func(*batch.DetectorList) error) error {
	d.mu.Lock()
	waiting := maps.Clone(d.waiting)
	d.mu.Unlock()
	for instance, l := range waiting {
		if err := save(l); err != nil {
			return err
		}
		d.mu.Lock()
		if d.waiting[instance] == l { // otherwise Put has replaced it
			delete(d.waiting, instance)
		}
		d.mu.Unlock()
	}
	return nil
}

func (s *Sink) saveDetectors(ctx context.Context) error {
	if s.Detectors == nil {
		return nil
	}
	return s.Detectors.drain(func(l *batch.DetectorList) error {
		listed := time.Now()
		for from := 0; from < len(l.Codes); from += maxDetectors {
			if err := s.insertDetectors(ctx, l, from, min(from+maxDetectors, len(l.Codes)), listed); err != nil {
				return fmt.Errorf("cannot archive the detectors of %s: %w", l.ProductInstance, hinted(err))
			}
		}
		return nil
	})
}

func (s *Sink) insertDetectors(ctx context.Context, l *batch.DetectorList, from, to int, listed time.Time) error {
	return s.insertRows(ctx, s.config.layout().InsertDetectors(), func(b driver.Batch) error {
		for i := from; i < to; i++ {
			if !batch.IsCode(l.Codes[i]) {
				continue // the registry leaves it out too
			}
			attributes := map[string]string{}
			for _, a := range l.Attributes[i] {
				attributes[a.Name] = a.Value
			}
			if err := b.Append(l.ProductInstance, l.Codes[i], attributes, listed); err != nil {
				return err
			}
		}
		return nil
	})
}

// Units archives the units of measure types, for analysts. It is safe for concurrent use.
type Units struct {
	of      func(code string) string
	mu      sync.Mutex
	known   map[string]bool
	pending map[string]string // measure type → unit, to archive
}

// NewUnits returns the units of the codes, and of further ones when they are delivered. of returns
// the unit of a measure type.
func NewUnits(codes []string, of func(code string) string) *Units {
	u := &Units{of: of, known: map[string]bool{}, pending: map[string]string{}}
	for _, code := range codes {
		u.known[code], u.pending[code] = true, of(code)
	}
	return u
}

// maxKnownTypes bounds memory if clients invent measure types.
const maxKnownTypes = 10_000

// note adds the units of measure types that occur for the first time since the start.
func (u *Units) note(rows batch.Block) {
	if u == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, part := range rows {
		for t := range part.Types() {
			code := part.TypeCode(t)
			if u.known[string(code)] || len(u.known) == maxKnownTypes {
				continue
			}
			u.known[string(code)] = true
			if unit := u.of(string(code)); unit != "" {
				u.pending[string(code)] = unit
			}
		}
	}
}

// take returns the units to archive. If that fails, give them back.
func (u *Units) take() (pending map[string]string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	pending, u.pending = u.pending, map[string]string{}
	return pending
}

func (u *Units) giveBack(units map[string]string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	maps.Copy(u.pending, units)
}

// saveUnits archives the units that it has not archived yet.
func (s *Sink) saveUnits(ctx context.Context) error {
	if s.Units == nil {
		return nil
	}
	units := s.Units.take()
	if len(units) == 0 {
		return nil
	}
	err := s.insertRows(ctx, s.config.layout().InsertUnits(), func(b driver.Batch) (err error) {
		for code, unit := range units {
			err = errors.Join(err, b.Append(code, unit))
		}
		return err
	})
	if err != nil {
		s.Units.giveBack(units)
		return fmt.Errorf("cannot archive the units of measure types: %w", hinted(err))
	}
	return nil
}

// insertRows inserts the rows that add appends into a table that is not derived from blocks.
func (s *Sink) insertRows(ctx context.Context, statement string, add func(driver.Batch) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.config.WriteTimeout)
	defer cancel()
	h, err := s.hosts.pick()
	if err != nil {
		return err
	}
	settings := s.hosts.quorumSettings(s.hosts.requiredReplicas())
	maps.Copy(settings, schema.DeriveSettings)
	b, err := h.conn.PrepareBatch(ch.Context(ctx, ch.WithSettings(settings)), statement)
	if err != nil {
		return err
	}
	defer func() { _ = b.Close() }() // Send reports the errors that matter
	if err := add(b); err != nil {
		return err
	}
	return b.Send()
}
