package page

import (
	"embed"
	"io/fs"
	"strings"
)

// Its renderer is committed as the package openapi-explorer contains it: `make docs` copies it.
//
//go:embed docs/index.html docs/docs.css docs/openapi-explorer.min.js
var docs embed.FS

// docsPolicy is policy for a renderer that adds style elements. Its scripts are as restricted as
// those of the page.
var docsPolicy = strings.Replace(policy, "style-src 'self'", "style-src 'self' 'unsafe-inline'", 1)

// Docs returns the page that shows the OpenAPI document, which is at schemas/openapi.yaml beside
// the page's entry. Its other files are below docs/.
func Docs() Page {
	all := Page{}
	_ = fs.WalkDir(docs, "docs", func(file string, d fs.DirEntry, err error) error { // embedded: it cannot fail
		if err != nil || d.IsDir() {
			return err
		}
		name := strings.TrimPrefix(file, "docs/")
		if name == "index.html" {
			name = ""
		}
		all.add(name, file, docsPolicy, content(docs, file))
		return nil
	})
	return all
}
