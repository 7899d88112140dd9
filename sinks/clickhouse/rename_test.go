package clickhouse

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	schema "trafficd/schemas/clickhouse"
)

// testRename renames detectors, one of them to a name that is in use, and the product instance. It
// checks that the archive has the same measurements under the new name, and that all views agree
// with it.
func testRename(t *testing.T, a *archive) {
	require.Eventually(t, func() bool { return a.ready(t.Context()) == nil }, time.Minute, 10*time.Millisecond)
	rows := overlappingRows(rand.New(rand.NewPCG(4, 2)), 600)
	block, plan := a.plan(blockOf(batchOf(1, epoch, rows[:300]...), batchOf(2, epoch+1, rows[300:]...)))
	a.deliver(plan, block)
	a.derive()
	db, _, _ := strings.Cut(a.name, ".")
	insert := func(table, columns, values string) {
		a.store.Query(t, "INSERT INTO "+db+"."+table+" ("+columns+") VALUES "+values)
	}
	insert("forecaster_profiles", "product_instance, measure_type_code, day, detector_code, mean", "('aarhus', 'speed', '2026-06-01', 'D-1', 7)")
	insert("forecaster_learned", "product_instance, measure_type_code, day", "('aarhus', 'speed', '2026-06-01')")
	insert(a.config.Table+"_registry", "product_instance, detector_code, listed_at", "('aarhus', 'D-1', now64(3))")
	all := func(columns string) string {
		return a.store.Query(t, "SELECT "+columns+", measure_type_code, timestamp_from, timestamp_to, value, received_at FROM "+a.name+
			" FINAL ORDER BY ALL FORMAT TSVRaw")
	}
	count := func(table, where string) string {
		return a.store.Query(t, "SELECT toString(count()) FROM "+db+"."+table+" FINAL WHERE "+where+" FORMAT TSVRaw")
	}
	rename := func(r schema.Rename) {
		t.Helper()
		n, err := RenameIn(t.Context(), a.config, r, time.Now())
		require.NoError(t, err)
		require.Positive(t, n)
		for _, table := range []string{
			a.config.Table, a.config.Table + "_by_time", a.config.Table + "_hours", a.config.Table + "_last", a.config.Table + "_registry", "forecaster_profiles",
		} {
			require.Equal(t, "0", count(table, r.Old()), table)
		}
		a.requireDerived()
	}

	columns := "product_instance, if(detector_code = 'D-1', 'it''s \\\\ new', detector_code)"
	want := all(columns)
	rename(schema.Rename{ProductInstance: "aarhus", Detector: "D-1", To: `it's \ new`})
	require.Equal(t, want, all("product_instance, detector_code"))
	require.Equal(t, "1", count("forecaster_profiles", `detector_code = 'it\'s \\ new' AND mean = 7`))
	require.Equal(t, "1", count(a.config.Table+"_registry", `detector_code = 'it\'s \\ new'`))

	_, err := RenameIn(t.Context(), a.config, schema.Rename{ProductInstance: "aarhus", Detector: "D-1", To: "D"}, time.Now())
	require.ErrorContains(t, err, "the archive has no measurements with this name")
	_, err = RenameIn(t.Context(), a.config, schema.Rename{ProductInstance: "aarhus", To: "D"}, time.Unix(0, epoch).Add(5*time.Minute))
	require.ErrorContains(t, err, "it must have been out of use for 10m0s")

	if a.config.Cluster != "" {
		return // the statements are the same, and each runs on each server
	}
	rename(schema.Rename{ProductInstance: "aarhus", Detector: "D-2", To: "D-3"}) // they have intervals in common
	want = all("'metropolis', detector_code")
	rename(schema.Rename{ProductInstance: "aarhus", To: "metropolis"})
	require.Equal(t, want, all("product_instance, detector_code"))
	require.Equal(t, "1", count("forecaster_learned", "product_instance = 'metropolis'"))
	rename(schema.Rename{ProductInstance: "metropolis", To: "aarhus"}) // back, although the server has seen these blocks
	rename(schema.Rename{ProductInstance: "aarhus", To: "metropolis"})
	require.Equal(t, want, all("product_instance, detector_code"))
}
