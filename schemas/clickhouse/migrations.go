package clickhouse

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/template"
)

//go:embed migrations/*.sql
var files embed.FS

// Migration is a numbered SQL file, executed as a template for a layout.
type Migration struct {
	Version    uint32   // number of the file
	Name       string   // name of the file without number and extension
	Statements []string // empty if the file is not for this layout
}

// Migrations returns all migrations in the order of their numbers.
func Migrations(l Layout) ([]Migration, error) {
	templates, err := template.ParseFS(files, "migrations/*.sql")
	if err != nil {
		return nil, fmt.Errorf("cannot parse the embedded migrations: %w", err)
	}
	var list []Migration
	for _, t := range templates.Templates() {
		number, name, _ := strings.Cut(strings.TrimSuffix(t.Name(), ".sql"), "_")
		version, err := strconv.ParseUint(number, 10, 32)
		var sql strings.Builder
		if err = errors.Join(err, t.Execute(&sql, l)); err != nil {
			return nil, fmt.Errorf("cannot read migration %s: %w", t.Name(), err)
		}
		list = append(list, Migration{uint32(version), name, split(sql.String())})
	}
	slices.SortFunc(list, func(a, b Migration) int { return cmp.Compare(a.Version, b.Version) })
	return list, nil
}

// split returns the statements of a file, which end with a semicolon at the end of a line. It
// removes comment lines; the files must not contain other comments.
func split(sql string) []string {
	var statements []string
	var lines []string
	for line := range strings.Lines(sql) {
		line = strings.TrimRight(line, " \n")
		if line == "" || strings.HasPrefix(line, "--") {
			continue
		}
		end := strings.HasSuffix(line, ";")
		lines = append(lines, strings.TrimSuffix(line, ";"))
		if end {
			statements = append(statements, strings.Join(lines, "\n"))
			lines = nil
		}
	}
	return statements
}
