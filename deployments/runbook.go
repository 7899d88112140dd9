// Package deployments embeds the runbook.
package deployments

import (
	_ "embed"
	"strings"
)

//go:embed runbook.md
var runbook string

// Entry returns the text of a section of the runbook, by its title, or "" if there is none.
func Entry(title string) string {
	for section := range strings.SplitSeq(runbook, "\n## ") {
		if name, text, _ := strings.Cut(section, "\n"); name == title {
			return strings.TrimSpace(text) + "\n"
		}
	}
	return ""
}
