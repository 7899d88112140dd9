package rig

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"time"

	"trafficd/cmd/internal/launch"
)

// Table is the table of the archive.
const Table = "trafficd.measurements"

// Archive is the ClickHouse server. Its methods must not be called concurrently.
type Archive struct{ *launch.ClickHouse }

// prepare creates the tables and disables merges of Table, which would remove duplicate rows before they are counted.
func (a *Archive) prepare(ctx context.Context, d *Daemon) error {
	args := append([]string{"migrate"}, d.Args...)
	args = append(args, "--set", "clickhouse.addresses="+a.TCP) // bypassing the wire
	if out, err := exec.CommandContext(ctx, d.Binary, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("cannot create the tables: %w\n%s", err, out)
	}
	return errors.Join(
		a.do(alter+"MODIFY SETTING max_bytes_to_merge_at_max_space_in_pool = 1, max_bytes_to_merge_at_min_space_in_pool = 1,"+
			" parts_to_delay_insert = 1000000"),
		a.Allow("too many parts"),
		a.do("CREATE TABLE IF NOT EXISTS trafficd.nowhere (n UInt64) ENGINE = Null"))
}

func (a *Archive) do(statement string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	_, err := a.Do(ctx, statement)
	return err
}

const alter = "ALTER TABLE " + Table + " "

// hog is an expression that allocates 3.6 GB at once, more than the memory limit of the server.
const hog = "length(range(if(rowNumberInBlock() = 0, toUInt64(450000000), 0)))"

// refusals maps each way to make the server reject inserts to the statements that start and end it. Memory runs out before
// the rows are written or, in a view, afterwards.
var refusals = map[string][2]string{
	"read-only":      {alter + "MODIFY SETTING table_readonly = 1", alter + "MODIFY SETTING table_readonly = 0"},
	"too many parts": {alter + "MODIFY SETTING parts_to_throw_insert = 1", alter + "MODIFY SETTING parts_to_throw_insert = 1000000"},
	"out of memory":  {alter + "ADD CONSTRAINT IF NOT EXISTS hog CHECK " + hog + " > 0", alter + "DROP CONSTRAINT IF EXISTS hog"},
	"out of memory in a view": {
		"CREATE MATERIALIZED VIEW IF NOT EXISTS trafficd.hog TO trafficd.nowhere AS SELECT " + hog + " AS n FROM " + Table,
		"DROP TABLE IF EXISTS trafficd.hog SYNC",
	},
	"table renamed": {"RENAME TABLE " + Table + " TO " + Table + "_away", "RENAME TABLE IF EXISTS " + Table + "_away TO " + Table},
}

// Refusals returns the valid arguments of Refuse.
func Refusals() []string { return slices.Sorted(maps.Keys(refusals)) }

// Refuse makes the server reject inserts until Allow.
func (a *Archive) Refuse(how string) error { return a.do(refusals[how][0]) }

// Allow undoes Refuse.
func (a *Archive) Allow(how string) error { return a.do(refusals[how][1]) }

// Revive restarts the server if it does not respond: embedded as a library, ClickHouse exits after some connection failures
// that the real server survives.
func (a *Archive) Revive() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if _, err := a.Do(ctx, "SELECT 1"); err == nil {
		return nil
	}
	return errors.Join(a.Kill(), a.Restart())
}

// Unmerged returns an error if any parts were merged, because duplicates may then be missing from the count.
func (a *Archive) Unmerged(ctx context.Context) error {
	merged, err := a.Do(ctx, "SELECT count() FROM system.parts WHERE database = 'trafficd' AND table = 'measurements' AND level > 0")
	if err == nil && merged != "0" {
		err = fmt.Errorf("%s parts of the archive were merged, so duplicates may have been removed", merged)
	}
	return err
}
