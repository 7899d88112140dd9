package clickhouse

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRenameCoversAllTables checks that every table whose rows name what is renamed is changed, on
// a server and in a cluster.
func TestRenameCoversAllTables(t *testing.T) {
	table := regexp.MustCompile("(?s)^CREATE TABLE IF NOT EXISTS (`d`.`?[a-z_]+`?)\n\\((.*?)\n\\)")
	for _, l := range []Layout{{Database: "d", Table: "m"}, {Database: "d", Table: "m", Cluster: "c"}} {
		migrations, err := Migrations(l)
		require.NoError(t, err)
		tables := 0
		for _, m := range migrations {
			for _, statement := range m.Statements {
				found := table.FindStringSubmatch(statement)
				if found == nil {
					continue
				}
				tables++
				for column, r := range map[string]Rename{
					"product_instance": {ProductInstance: "a", To: "b"}, "detector_code": {ProductInstance: "a", Detector: "x", To: "y"},
				} {
					name := strings.ReplaceAll(found[1], "`", "")
					deleted := slices.ContainsFunc(l.DeleteOld(r), func(s string) bool {
						return strings.HasPrefix(strings.ReplaceAll(s, "`", ""), "ALTER TABLE "+name+" DELETE ")
					})
					require.Equal(t, strings.Contains(found[2], "\n    "+column+" "), deleted, fmt.Sprint(name, " ", column))
				}
			}
		}
		require.Greater(t, tables, 12)
	}
}
