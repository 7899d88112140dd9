package clickhouse

import (
	"embed"
	"fmt"
	"path"
	"strconv"
	"strings"
	"text/template"
)

//go:embed migrations/*.sql
var files embed.FS

// Migration is a numbered file. Its template has been executed for a layout.
type Migration struct {
	Version    uint32   // number of the file
	Name       string   // name of the file without number and extension
	Statements []string // empty if the file is not for this layout
}

// Migrations lists all migrations in the order of their numbers.
func Migrations(l Layout) ([]Migration, error) {
	entries, err := files.ReadDir("migrations") // sorted by name
	if err != nil {
		return nil, fmt.Errorf("cannot list the embedded migrations: %w", err)
	}
	list := make([]Migration, 0, len(entries))
	for _, e := range entries {
		m, err := load(e.Name(), l)
		if err != nil {
			return nil, fmt.Errorf("cannot read migration %s: %w", e.Name(), err)
		}
		list = append(list, m)
	}
	return list, nil
}

func load(file string, l Layout) (Migration, error) {
	number, name, _ := strings.Cut(strings.TrimSuffix(file, ".sql"), "_")
	version, err := strconv.ParseUint(number, 10, 32)
	if err != nil {
		return Migration{}, fmt.Errorf("the name must start with a number: %w", err)
	}
	text, err := files.ReadFile(path.Join("migrations", file))
	if err != nil {
		return Migration{}, err
	}
	sql, err := render(string(text), l)
	return Migration{Version: uint32(version), Name: name, Statements: split(sql)}, err
}

func render(text string, l Layout) (string, error) {
	t, err := template.New("migration").Parse(text)
	if err != nil {
		return "", err
	}
	var sql strings.Builder
	err = t.Execute(&sql, l)
	return sql.String(), err
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
