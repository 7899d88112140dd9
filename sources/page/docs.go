package page

import (
	"embed"
	"io/fs"
	"strings"
)

// The renderer is an unmodified file of the package openapi-explorer, which `make docs` copies.
//
//go:embed docs/index.html docs/docs.css docs/openapi-explorer.min.js
var docs embed.FS

// docsPolicy is like policy, but allows style elements, which the renderer adds. Scripts are
// restricted as in policy.
var docsPolicy = strings.Replace(policy, "style-src 'self'", "style-src 'self' 'unsafe-inline'", 1)

// Docs returns the page that shows the OpenAPI document, which is at schemas/openapi.yaml relative
// to the page. The page's other files are below docs/.
func Docs() Page {
	all := Page{}
	files, _ := fs.Glob(docs, "docs/*") // the pattern is valid
	for _, file := range files {
		name := strings.TrimPrefix(strings.TrimPrefix(file, "docs/"), "index.html")
		all.add(name, file, docsPolicy, content(docs, file))
	}
	return all
}
