package clickhouse

import (
	"fmt"
	"strings"
)

// Rename is a change of the name of a product instance or, if Detector is not empty, of one of its
// detectors.
type Rename struct {
	ProductInstance string
	Detector        string
	To              string
}

func (r Rename) column() string {
	if r.Detector != "" {
		return "detector_code"
	}
	return "product_instance"
}

// Old returns the condition for rows with the old name.
func (r Rename) Old() string {
	if r.Detector != "" {
		return fmt.Sprintf("product_instance = %s AND detector_code = %s", quote(r.ProductInstance), quote(r.Detector))
	}
	return "product_instance = " + quote(r.ProductInstance)
}

// New returns the condition for rows with the new name.
func (r Rename) New() string {
	if r.Detector != "" {
		return Rename{ProductInstance: r.ProductInstance, Detector: r.To}.Old()
	}
	return Rename{ProductInstance: r.To}.Old()
}

// Copy returns the statements that add the rows with the new name to the tables that are not
// derived from others. If a table already has a row with the same key, the later version stays.
// Execute them on one server. Each can be repeated.
func (l Layout) Copy(r Rename) (statements []string) {
	for _, table := range append(l.kept(r), l.Table) {
		// In one SELECT, the condition would see the new name.
		name := fmt.Sprintf("`%s`.`%s`", l.Database, table)
		statements = append(statements, fmt.Sprintf("INSERT INTO %s SELECT * REPLACE (%s AS %s) FROM (SELECT * FROM %[1]s FINAL WHERE %[4]s)",
			name, quote(r.To), r.column(), r.Old()))
	}
	return statements
}

// DeriveRenamed returns the statements that derive the rows with the new name again, for each
// server. Hours in which both names have measurements are computed from all of them.
func (l Layout) DeriveRenamed(r Rename) []string {
	only := ""
	if r.Detector != "" {
		only = "detector_code = " + quote(r.To) + " AND "
	}
	return l.derive(r.New(), only)
}

// DeleteOld returns the statements that delete the rows with the old name, for each server. Those
// of the archive are the last, so that an interrupted rename can be repeated.
func (l Layout) DeleteOld(r Rename) (statements []string) {
	for _, table := range append(l.kept(r), l.Derived("by_time"), l.Derived("hours"), l.Derived("last"), l.Local()) {
		statements = append(statements, fmt.Sprintf("ALTER TABLE `%s`.`%s` DELETE WHERE %s SETTINGS mutations_sync = 1",
			l.Database, table, r.Old()))
	}
	return statements
}

// kept returns the tables beside the archive whose rows name what is renamed, and that are not
// derived from it. In a cluster, every server has all of their rows.
func (l Layout) kept(r Rename) []string {
	tables := []string{
		l.Table + "_registry", l.Table + "_health", l.Table + "_health_usual",
		"forecaster_values", "forecaster_days", "forecaster_moments", "forecaster_profiles", "forecaster_weights", "forecaster_imputed",
	}
	if r.Detector == "" {
		tables = append(tables, "forecaster_learned")
	}
	return tables
}

// quote returns text as an SQL string.
func quote(text string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(text) + "'"
}
