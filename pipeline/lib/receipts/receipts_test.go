package receipts

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"trafficd/pipeline/batch"
)

// table is a Store in memory.
type table struct {
	mu   sync.Mutex
	rows map[Receipt]Receipt
	puts int
	away bool
}

var errAway = errors.New("the archive is away")

func (s *table) PutReceipts(_ context.Context, list []Receipt) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		return errAway
	}
	s.puts++
	for _, r := range list {
		s.rows[r.key()] = r
	}
	return nil
}

func (s *table) Receipts(_ context.Context, id batch.ID, client string) (list []Receipt, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		return nil, errAway
	}
	for _, r := range s.rows {
		if r.Batch == id && r.Client == client {
			list = append(list, r)
		}
	}
	return list, nil
}

func (s *table) setAway(away bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = away
}

func (s *table) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.rows)
}

func (w *Waiting) waiting() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.list)
}

func open(t *testing.T, path string, s Store) *Waiting {
	t.Helper()
	w, err := Open(path, s, zerolog.Nop())
	require.NoError(t, err)
	return w
}

func receipt(id byte, sink string, first uint32) Receipt {
	return Receipt{Batch: batch.ID{id}, Client: "city", ReceivedAt: 7, Accepted: 10, Sink: sink, First: first, Delivered: 5, At: int64(first) + 1}
}

// TestReceiptsSurviveKills checks that all receipts that were added reach the table, although each
// process is killed, the table is away for some of them, and writes are cut at any point.
func TestReceiptsSurviveKills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &table{rows: map[Receipt]Receipt{}}
		path := filepath.Join(t.TempDir(), "receipts")
		for n := range uint32(40) {
			s.setAway(n%4 == 0)
			w := open(t, path, s)
			for i := range uint32(10) {
				w.Add(receipt(1, "archive", 100*n+i))
				time.Sleep(time.Duration(n%5) * 100 * time.Millisecond)
			}
			// As if killed: nothing is written any more.
			w.stop()
			w.running.Wait()
			require.NoError(t, w.file.Close())
			if n%7 == 0 { // and a line is incomplete
				f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
				require.NoError(t, err)
				_, _ = f.WriteString("\n" + `{"b":[1`)
				require.NoError(t, f.Close())
			}
		}
		s.setAway(false)
		w := open(t, path, s)
		found, err := w.Find(t.Context(), batch.ID{1}, "city")
		require.NoError(t, err)
		require.Equal(t, 400, len(found), "those that wait too") // not Len, which prints them
		require.NoError(t, w.Close(t.Context()))
		require.Equal(t, 400, s.len())
		w = open(t, path, s)
		require.Zero(t, w.waiting())
		require.NoError(t, w.Close(t.Context()))
	})
}

// TestDamagedFile checks that a file that cannot be read does not keep the daemon from starting,
// and that what can be read of it is written.
func TestDamagedFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &table{rows: map[Receipt]Receipt{}}
		path := filepath.Join(t.TempDir(), "receipts")
		s.setAway(true)
		w := open(t, path, s)
		w.Add(receipt(1, "archive", 0))
		_ = w.Close(t.Context())
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
		require.NoError(t, err)
		_, err = f.Write(make([]byte, 200_000)) // as after a power loss
		require.NoError(t, err)
		require.NoError(t, f.Close())
		s.setAway(false)
		w = open(t, path, s)
		w.Accepted(receipt(2, "", 0))
		require.NoError(t, w.Close(t.Context()))
		w.Accepted(receipt(3, "", 0)) // of a handler that outlives the shutdown
		require.Equal(t, 2, s.len())
	})
}

func TestFind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &table{rows: map[Receipt]Receipt{}, away: true}
		w := open(t, filepath.Join(t.TempDir(), "receipts"), s)
		w.Accepted(Receipt{Batch: batch.ID{1}, Client: "city", Accepted: 10, At: 1})
		w.Add(receipt(1, "topic", 0), receipt(1, "archive", 5))
		time.Sleep(time.Minute)
		f := func(id byte, client string, want ...string) {
			t.Helper()
			found, err := w.Find(t.Context(), batch.ID{id}, client)
			require.NoError(t, err)
			sinks := []string{}
			for _, r := range found {
				sinks = append(sinks, r.Sink)
			}
			require.ElementsMatch(t, want, sinks)
		}
		f(1, "city", "", "topic", "archive")
		_, err := w.Find(t.Context(), batch.ID{2}, "city")
		require.ErrorIs(t, err, errAway, "it may be in the table")
		s.setAway(false)
		time.Sleep(time.Minute)
		require.Zero(t, w.waiting())
		require.LessOrEqual(t, s.puts, 2, "the first may have begun before all were added")
		f(1, "city", "", "topic", "archive")
		f(1, "town")
		f(2, "city")
		w.Add(receipt(1, "topic", 0)) // a block that was repeated after a kill
		f(1, "city", "", "topic", "archive")
		require.NoError(t, w.Close(t.Context()))
	})
}

// TestWaitingIsBounded checks that acceptances are dropped first, and that the process goes on if
// the file cannot be replaced.
func TestWaitingIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &table{rows: map[Receipt]Receipt{}, away: true}
		dir := filepath.Join(t.TempDir(), "dir")
		require.NoError(t, os.Mkdir(dir, 0o755))
		w := open(t, filepath.Join(dir, "receipts"), s)
		require.NoError(t, os.RemoveAll(dir))
		list := make([]Receipt, maxWaiting/2+1)
		for i := range list {
			list[i] = receipt(1, "topic", uint32(i))
		}
		w.Add(list...)
		w.Add(receipt(2, "", 0))
		require.Equal(t, len(list), w.waiting())
		w.Add(receipt(2, "topic", 0))
		w.Add(list...)
		require.Equal(t, len(list)+1, w.waiting())
		s.setAway(false)
		time.Sleep(time.Minute)
		require.Equal(t, len(list)+1, s.len())
		require.Zero(t, w.waiting())
		w.Add(receipt(2, "", 0))
		require.NoError(t, w.Close(t.Context()))
		require.Equal(t, len(list)+2, s.len())
		var none *Waiting
		none.Add(list...)
		none.Accepted(list[0])
		require.NoError(t, none.Close(t.Context()))
	})
}
