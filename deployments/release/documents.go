package main

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// documents lists the documents of the archives and the Debian packages.
var documents = []string{
	"CHANGELOG.md", "schemas/contract/contract.md", "deployments/README.md", "deployments/routing.md", "deployments/runbook.md",
	"deployments/settings.yaml",
	"deployments/edge/*", "deployments/observability/README.md", "deployments/observability/grafana/*.json",
	"deployments/observability/prometheus/*.yml",
}

// writeDocuments copies the documents to the directory documents, in which their links lead to one
// another.
func (r *release) writeDocuments() error {
	names := map[string]string{} // path in the repository → name of a document, or of a directory with documents
	for _, pattern := range documents {
		sources, _ := fs.Glob(os.DirFS(r.root), pattern) // the pattern is valid
		for _, source := range sources {
			name, below := strings.CutPrefix(source, "deployments/")
			if !below {
				name = path.Base(source)
			}
			names[source], names[path.Dir(source)] = name, path.Dir(name)
		}
	}
	for source, name := range names {
		text, err := os.ReadFile(filepath.Join(r.root, source))
		if err != nil {
			continue // a directory
		}
		if path.Ext(name) == ".md" {
			text = relink(text, source, names)
		}
		to := filepath.Join(r.build, "documents", name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(to, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

var link = regexp.MustCompile(`\[([^\[\]]*)\]\(([^()#:]+)(#[^()]*)?\)`)

// relink adapts the relative links of a document to the names of the files and directories to which
// they lead. Links to others become plain text.
func relink(text []byte, source string, names map[string]string) []byte {
	return link.ReplaceAllFunc(text, func(found []byte) []byte {
		parts := link.FindSubmatch(found)
		name, known := names[path.Join(path.Dir(source), string(parts[2]))]
		if !known {
			return parts[1]
		}
		to, _ := filepath.Rel(path.Dir(names[source]), name) // both are relative
		return fmt.Appendf(nil, "[%s](%s%s)", parts[1], to, parts[3])
	})
}
