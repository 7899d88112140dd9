package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"trafficd/schemas/clickhouse"
	"trafficd/schemas/contract"
)

var (
	viewPattern   = regexp.MustCompile("^CREATE OR REPLACE VIEW `[^`]+`\\.`measurements_([^`]+)`\n\\((?s:(.*?))\n\\)\n")
	columnPattern = regexp.MustCompile(`(?m)^ +(\w+) (.+) COMMENT '(.*)',?$`)
)

// archiveTables returns the page about the archive with the tables of the states of health and of
// the views' columns. Columns with the same meaning share a row.
func archiveTables(text string) ([]byte, error) {
	layout := clickhouse.Layout{Database: "trafficd", Table: "measurements"}
	migrations, err := clickhouse.Migrations(layout)
	if err != nil {
		return nil, err
	}
	var columns []string // rows without the views
	views := map[string][]string{}
	for _, m := range migrations {
		for _, statement := range m.Statements {
			view := viewPattern.FindStringSubmatch(statement)
			if view == nil {
				continue
			}
			for _, c := range columnPattern.FindAllStringSubmatch(view[2], -1) {
				row := fmt.Sprintf("| %s | %s | %s |", c[1], strings.Replace(c[2], "LowCardinality(String)", "String", 1), c[3])
				if !slices.Contains(columns, row) {
					columns = append(columns, row)
				}
				views[row] = append(views[row], "`"+view[1]+"`")
			}
		}
	}
	rows := []string{"| Column | Type | Meaning | Views |", "|---|---|---|---|"}
	for _, row := range columns {
		rows = append(rows, fmt.Sprintf("%s %s |", row, strings.Join(views[row], ", ")))
	}
	states := []string{"| State | Rule | Tested | Used by forecasts |", "|---|---|---|---|"}
	for _, s := range contract.HealthStates {
		tested, used := "in each interval", "yes"
		if s.Hourly() {
			tested = "each hour"
		}
		if s.Off() {
			tested = "each hour; off by default"
		}
		if s.Refused() {
			used = "no"
		}
		states = append(states, fmt.Sprintf("| `%s` | %s | %s | %s |", s.Name, s.Rule, tested, used))
	}
	if text, err = replaceTable(text, "`measurements_detector_health` has what", states); err != nil {
		return nil, err
	}
	text, err = replaceTable(text, "## Columns", rows)
	return []byte(text), err
}
