package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"

	"trafficd/cmd/internal/authority"
	"trafficd/pipeline/lib/replace"
	"trafficd/schemas/contract"
	"trafficd/schemas/feeds"
)

const (
	// How often the site table is pulled, and after an error.
	tableEvery = 6 * time.Hour
	tableRetry = 10 * time.Minute

	seenFile   = "seen"   // sites that are not in the table, one a line
	tableFile  = "sites"  // the last table that could be read, as published
	newestFile = "newest" // the newest time that was read
)

var (
	errFull = errors.New("the spool has reached spool.max_bytes: the feed is not pulled until trafficd has accepted some of it. " +
		"What is published meanwhile and replaced before that is lost")
	errEmpty = errors.New("the publication contains no values")
)

// pull pulls the feed once.
func (f *feed) pull(ctx context.Context) error {
	if f.spool.Full() {
		return errFull
	}
	if f.table != nil && !time.Now().Before(f.nextTable) {
		err := f.pullTable(ctx)
		f.nextTable = time.Now().Add(tableEvery)
		if err != nil {
			f.nextTable = time.Now().Add(tableRetry)
			f.log.Warn().Err(err).Msg("cannot read the site table; retrying")
		}
		f.state.Update(func(s *status) { s.table = err })
		if err != nil && f.options.Table == nil { // the codes depend on the table
			f.nextTable = time.Time{}
			return fmt.Errorf("the site table is missing: %w", err)
		}
	}
	changed, modified, err := f.data.Fetch(ctx)
	if err != nil || !changed {
		if err == nil {
			pulls.WithLabelValues(f.cfg.Name, "unchanged").Inc()
		}
		return err
	}
	start := time.Now()
	p := publication{feed: f, options: f.options, outcomes: map[string]int{}}
	p.options.Modified, p.options.After = modified, f.newest
	added, err := f.spool.Put(p.read)
	if err != nil {
		return err
	}
	if err := f.setNewest(p.newest); err != nil {
		return err
	}
	f.data.Keep()
	for outcome, n := range p.outcomes {
		values.WithLabelValues(f.cfg.Name, outcome).Add(float64(n))
	}
	totals.WithLabelValues(f.cfg.Name).Add(float64(p.totals))
	if p.summary.Values == 0 {
		return errEmpty
	}
	newest.WithLabelValues(f.cfg.Name).Set(float64(p.newest.Unix()))
	result := "repeated"
	if added > 0 {
		result = "new"
		f.state.Update(func(s *status) { s.advanced = time.Now() })
	}
	pulls.WithLabelValues(f.cfg.Name, result).Inc()
	f.log.Debug().Int("values", p.summary.Values).Int("new", added).Dur("took", time.Since(start)).Msg("publication read")
	return nil
}

// publication is a document on its way into the spool.
type publication struct {
	feed     *feed
	options  feeds.Options
	summary  feeds.Summary
	outcomes map[string]int // of values
	totals   int
	newest   time.Time

	add func(*contract.Measurement) (bool, error)
	ids []string // of the sites with values
}

// read puts the values of the downloaded document into the spool.
func (p *publication) read(add func(*contract.Measurement) (bool, error)) error {
	p.add = add
	sink := feeds.Sink{Rows: p.rows}
	f := p.feed
	table := newTable()
	if f.table == nil { // the document may describe its sites
		sink.Site = table.add
	}
	err := authority.Read(f.data.Path, func(r io.Reader) (err error) {
		p.summary, err = f.format.Parse(r, p.options, sink)
		return err
	})
	if err != nil {
		return err
	}
	if len(table.known) > 0 {
		text, err := table.finish()
		if err == nil {
			err = f.list.set(f.sites, text, table.known)
		}
		if err != nil {
			return err
		}
	}
	if err := f.register(p.ids); err != nil {
		return fmt.Errorf("cannot add sites to the list: %w", err)
	}
	return nil
}

// rows puts the values of a site into the spool.
func (p *publication) rows(all []feeds.Row) error {
	if last := len(p.ids) - 1; last < 0 || p.ids[last] != all[0].Site {
		p.ids = append(p.ids, strings.Clone(all[0].Site))
	}
	for i := range all {
		r := &all[i]
		outcome := strings.ReplaceAll(r.Outcome.String(), " ", "_")
		if r.Outcome == feeds.Measured {
			m := r.Measurement()
			added, err := p.add(&m)
			if err != nil {
				return err
			}
			if outcome = "repeated"; added {
				outcome = "new"
			}
			if r.To.After(p.newest) {
				p.newest = r.To
			}
		}
		p.outcomes[outcome]++
	}
	for _, r := range p.options.Table.Totals(all) {
		m := r.Measurement()
		added, err := p.add(&m)
		if err != nil {
			return err
		}
		if added {
			p.totals++
		}
	}
	return nil
}

// register adds sites with values to the list before their values are in the spool, and remembers
// those that are not in the table.
func (f *feed) register(ids []string) error {
	added, err := f.list.add(f.sites, ids)
	sites.WithLabelValues(f.cfg.Name).Set(float64(len(f.sites.known) + len(f.sites.seen)))
	if err != nil || !added {
		return err
	}
	return replace.File(f.path(seenFile), 0o600, func(w io.Writer) error {
		out := bufio.NewWriter(w)
		for _, id := range slices.Sorted(maps.Keys(f.sites.seen)) {
			line, _ := json.Marshal(id) // cannot fail
			out.Write(append(line, '\n'))
		}
		return out.Flush()
	})
}

// setNewest remembers the newest time that was read, which decides to which of two hours the next
// local time belongs when the clock is set back.
func (f *feed) setNewest(newest time.Time) error {
	if newest.Equal(f.newest) {
		return nil
	}
	f.newest = newest
	return replace.File(f.path(newestFile), 0o600, func(w io.Writer) error {
		_, err := io.WriteString(w, newest.UTC().Format(time.RFC3339Nano))
		return err
	})
}

// recall reads what register, pullTable and setNewest have remembered.
func (f *feed) recall() error {
	text, err := os.ReadFile(f.path(seenFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var ids []string
	for line := range bytes.Lines(text) {
		var id string
		if err := json.Unmarshal(line, &id); err != nil {
			return fmt.Errorf("cannot read %s: %w", f.path(seenFile), err)
		}
		ids = append(ids, id)
	}
	if f.table != nil {
		if err := f.readTable(f.path(tableFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			f.log.Warn().Err(err).Msg("cannot read the last site table; pulling it again")
		}
	}
	if text, err = os.ReadFile(f.path(newestFile)); err == nil {
		f.newest, err = time.Parse(time.RFC3339Nano, string(text))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_, err = f.list.add(f.sites, ids)
	return err
}

// pullTable reads the site table if it has changed.
func (f *feed) pullTable(ctx context.Context) error {
	changed, _, err := f.table.Fetch(ctx)
	if err != nil || !changed {
		return err
	}
	if err := f.readTable(f.table.Path); err != nil {
		return err
	}
	f.table.Keep()
	return os.Rename(f.table.Path, f.path(tableFile))
}

func (f *feed) readTable(path string) error {
	t := newTable()
	characteristics := feeds.NewTable()
	err := authority.Read(path, func(r io.Reader) error {
		_, err := f.format.Parse(r, f.options, feeds.Sink{Site: func(s *feeds.Site) error {
			characteristics.Add(s)
			return t.add(s)
		}})
		return err
	})
	var packed []byte
	if err == nil {
		packed, err = t.finish()
	}
	if err == nil && len(t.known) == 0 {
		err = errors.New("the site table contains no sites")
	}
	if err != nil {
		return err
	}
	f.options.Table = characteristics
	return f.list.set(f.sites, packed, t.known)
}

// table collects the sites of a table for the list.
type table struct {
	packed bytes.Buffer
	gzip   *gzip.Writer
	known  map[string]bool
}

func newTable() *table {
	t := &table{known: map[string]bool{}}
	t.gzip, _ = gzip.NewWriterLevel(&t.packed, gzip.BestSpeed) // fails only for invalid levels
	return t
}

func (t *table) add(s *feeds.Site) error {
	if t.known[s.ID] { // another version of the site
		return nil
	}
	line, err := json.Marshal(authority.EntryOf(s))
	if err == nil {
		_, err = t.gzip.Write(append(line, '\n'))
	}
	t.known[strings.Clone(s.ID)] = true
	return err
}

func (t *table) finish() ([]byte, error) {
	err := t.gzip.Close()
	return t.packed.Bytes(), err
}
