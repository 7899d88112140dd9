package spool

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"trafficd/schemas/contract"
)

func measurement(detector, minute, value int) *contract.Measurement {
	at := time.Date(2026, 3, 1, 0, minute, 0, 0, time.UTC)
	return &contract.Measurement{
		DetectorCode: fmt.Sprintf("D%d", detector), MeasureTypeCode: "flow", TimestampFrom: at, TimestampTo: at.Add(time.Minute),
		Value: json.Number(fmt.Sprint(value)),
	}
}

func open(t *testing.T, dir string) *Spool {
	t.Helper()
	s, err := Open(dir, 1<<20)
	require.NoError(t, err)
	return s
}

// put puts a publication into the spool: the values of detectors in a minute.
func put(t *testing.T, s *Spool, minute int, values ...int) (added int) {
	t.Helper()
	added, err := s.Put(func(add func(*contract.Measurement) (bool, error)) error {
		for detector, value := range values {
			if _, err := add(measurement(detector, minute, value)); err != nil {
				return err
			}
		}
		return nil
	})
	require.NoError(t, err)
	return added
}

// itemsOf returns the items of a batch.
func itemsOf(t *testing.T, body []byte) (all []string) {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(body))
	require.NoError(t, err)
	plain, err := io.ReadAll(z)
	require.NoError(t, err)
	var batch struct{ Measurements []json.RawMessage }
	require.NoError(t, json.Unmarshal(plain, &batch))
	for _, item := range batch.Measurements {
		all = append(all, string(item))
	}
	return all
}

// deliver sends everything to a daemon that knows the batches by their place.
func deliver(t *testing.T, s *Spool, daemon map[string][]string, posted func()) {
	t.Helper()
	for s.Bytes() > 0 {
		number, err := s.Next(t.Context())
		require.NoError(t, err)
		require.NoError(t, s.Batches(number, func(n int, body []byte) error {
			place, items := fmt.Sprintf("%d.%d", number, n), itemsOf(t, body)
			if before, ok := daemon[place]; ok {
				require.Equal(t, before, items, "a batch that is sent again is the same")
			}
			daemon[place] = items
			posted()
			return nil
		}))
		require.NoError(t, s.Done(number))
	}
}

func TestRepeats(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	require.Equal(t, 3, put(t, s, 0, 1, 2, 3))
	require.Zero(t, put(t, s, 0, 1, 2, 3))
	require.Equal(t, 1, put(t, s, 0, 1, 5, 3), "a changed value")
	require.Equal(t, 1, put(t, s, 0, 1, 2, 3), "and back")
	require.Equal(t, 3, put(t, s, 1, 1, 2, 3), "another interval")
	require.Zero(t, put(t, s, 0, 1, 2, 3), "an older publication, as two servers that take turns send it")

	s = open(t, dir) // nothing was sent
	require.Zero(t, put(t, s, 0, 1, 2, 3))
	daemon := map[string][]string{}
	deliver(t, s, daemon, func() {})
	require.Len(t, daemon, 4)

	s = open(t, dir) // everything was sent
	require.Zero(t, put(t, s, 0, 1, 2, 3))
	require.Zero(t, put(t, s, 1, 1, 2, 3))
	require.Equal(t, 1, put(t, s, 1, 1, 2, 4))
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	require.Len(t, files, 2, "the state and one publication")
}

// TestMemory checks that a value that is published all the time is remembered, and that others are
// forgotten.
func TestMemory(t *testing.T) {
	s := open(t, t.TempDir())
	daemon := map[string][]string{}
	values := make([]int, minimum+2)
	for minute := range 10 {
		added, err := s.Put(func(add func(*contract.Measurement) (bool, error)) error {
			for detector := range values[1:] {
				if _, err := add(measurement(1+detector, minute, 1)); err != nil {
					return err
				}
			}
			_, err := add(measurement(0, 0, 1)) // frozen
			return err
		})
		require.NoError(t, err)
		want := len(values) - 1
		if minute == 0 {
			want++
		}
		require.Equal(t, want, added, "minute %d", minute)
		deliver(t, s, daemon, func() {})
		require.LessOrEqual(t, len(s.memory.young)+len(s.memory.old), 8*len(values))
	}
}

func TestBatchesAreLimited(t *testing.T) {
	s := open(t, t.TempDir())
	require.Equal(t, 2*MaxItems+1, put(t, s, 0, make([]int, 2*MaxItems+1)...))
	daemon := map[string][]string{}
	deliver(t, s, daemon, func() {})
	require.Len(t, daemon, 3)
	require.Len(t, daemon["1.0"], MaxItems)
	require.Len(t, daemon["1.2"], 1)
}

// TestIncomplete checks that a publication that cannot be read to its end leaves nothing.
func TestIncomplete(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	cut := errors.New("cut")
	_, err := s.Put(func(add func(*contract.Measurement) (bool, error)) error {
		_, err := add(measurement(0, 0, 1))
		return errors.Join(err, cut)
	})
	require.ErrorIs(t, err, cut)
	require.Zero(t, s.Bytes())
	require.Equal(t, 1, put(t, s, 0, 1))
}

func TestFull(t *testing.T) {
	s, err := Open(t.TempDir(), 1)
	require.NoError(t, err)
	require.False(t, s.Full())
	require.True(t, s.Oldest().IsZero())
	put(t, s, 0, 1)
	require.True(t, s.Full())
	require.False(t, s.Oldest().IsZero())
	deliver(t, s, map[string][]string{}, func() {})
	require.False(t, s.Full())
}

// TestRemoval checks that a file whose removal was not durable is not sent again.
func TestRemoval(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	put(t, s, 0, 1)
	path := s.path(1)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	deliver(t, s, map[string][]string{}, func() {})
	require.NoError(t, os.WriteFile(path, text, 0o600))
	require.Zero(t, open(t, dir).Bytes())
	require.NoFileExists(t, path)
}

func TestDamaged(t *testing.T) {
	f := func(name string, change func([]byte) []byte) {
		t.Helper()
		dir := t.TempDir()
		s := open(t, dir)
		put(t, s, 0, 1, 2)
		deliver(t, s, map[string][]string{}, func() {})
		put(t, s, 1, 1, 2)
		path := filepath.Join(dir, name)
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, change(text), 0o600))
		_, err = Open(dir, 1<<20)
		require.ErrorContains(t, err, "cannot read the spool")
		require.ErrorContains(t, err, path)
	}
	cut := func(b []byte) []byte { return b[:len(b)-1] }
	flip := func(b []byte) []byte { b[len(b)-12]++; return b }
	for _, name := range []string{stateFile, "0000000000000002" + extension} {
		f(name, cut)
		f(name, flip)
		f(name, func([]byte) []byte { return nil })
	}
}

type crash struct{}

// TestCrashes ends the process after each change of a file, each POST and each item, once. After
// the restart, the feed still has the last publication. The daemon gets every value once.
func TestCrashes(t *testing.T) {
	const publications = 4
	last := 0
	for at := 0; at <= last; at++ {
		dir, daemon, n := t.TempDir(), map[string][]string{}, 0
		point := func() {
			if n++; n == at {
				panic(crash{})
			}
			if at == 0 {
				last++
			}
		}
		minute := 0
		live := func() (crashed bool) {
			defer func() {
				if r := recover(); r != nil {
					require.Equal(t, crash{}, r)
					crashed = true
				}
			}()
			s := open(t, dir)
			s.step = func(string) { point() }
			for ; minute < publications; minute++ {
				_, err := s.Put(func(add func(*contract.Measurement) (bool, error)) error {
					for detector := range 3 {
						_, err := add(measurement(detector, minute, 7))
						require.NoError(t, err)
						point()
					}
					return nil
				})
				require.NoError(t, err)
				if minute%2 == 1 { // the daemon is away in every other minute
					deliver(t, s, daemon, point)
				}
			}
			deliver(t, s, daemon, point)
			return false
		}
		if live() {
			// What a kill leaves of a file that was being written.
			require.NoError(t, os.WriteFile(filepath.Join(dir, "0000000000000001"+extension+".new"), []byte("half"), 0o600))
			require.NoError(t, os.WriteFile(filepath.Join(dir, stateFile+".new"), []byte("half"), 0o600))
			require.False(t, live())
		}
		times := map[string]int{}
		for _, items := range daemon {
			for _, item := range items {
				times[item]++
			}
		}
		require.Len(t, times, 3*publications, "crash %d", at)
		for item, n := range times {
			require.Equal(t, 1, n, "crash %d: %s", at, item)
		}
	}
	t.Logf("%d crashes", last)
	require.Greater(t, last, 25)
}
