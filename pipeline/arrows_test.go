package pipeline_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "trafficd/"

// A goPackage is what the arrows need of `go list -json`. Imports are those of
// the program: tests may look at anything.
type goPackage struct {
	ImportPath string
	Name       string
	Imports    []string
}

// An arrow says what of ours the packages below a folder may import: an entry
// ending in / stands for everything below it. A folder may always import from
// below itself. The first arrow whose folder fits counts.
type arrow struct {
	from   string
	to     []string
	reason string
}

var arrows = []arrow{
	{"cmd/", []string{"pipeline/", "sources/", "sinks/", "schemas/", "deployments/"}, "cmd wires everything of ours"},
	{"pipeline/batch/", []string{"schemas/contract/"}, "the noun is the leaf that all others share; it knows the contract's codes only"},
	{"pipeline/journal/", nil, "the journal takes bytes and gives bytes"},
	{"pipeline/decode/", []string{"pipeline/batch/", "schemas/contract/"}, "decode knows bytes and columns only"},
	{"pipeline/validate/", []string{"pipeline/batch/", "schemas/contract/"}, "validate knows the noun and the contract only"},
	{"pipeline/dial/", nil, "connections to the stores know nothing of what is sent over them"},
	{"pipeline/", []string{"pipeline/", "schemas/contract/"}, "the pipeline declares the interfaces that it needs; cmd hands sources and sinks in"},
	{"sources/internal/watch/", nil, "how files are watched knows nothing of what is in them"},
	{"sources/internal/admission/", []string{"schemas/contract/"}, "quotas know clients by name and nothing of what they take"},
	{"sources/internal/upload/", []string{"schemas/contract/", "sources/internal/admission/"}, "how bodies are received knows nothing of what is in them"},
	{"sources/*/", []string{"pipeline/batch/", "pipeline/dial/", "schemas/", "sources/internal/"}, "adapters know the noun and the schemas, not each other and not the pipeline"},
	{"sinks/*/", []string{"pipeline/batch/", "pipeline/dial/", "schemas/"}, "adapters know the noun and the schemas, not each other and not the pipeline"},
	{"schemas/contract/", nil, "the contract is the leaf of everything that has an interface"},
	{"schemas/negotiate/", nil, "content negotiation reads header lines and knows no endpoint"},
	{"schemas/xroute/", []string{"schemas/geo/"}, "schemas are described by themselves; xroute speaks in geo's coordinates"},
	{"schemas/*/", nil, "schemas are described by themselves"},
	{"deployments/*/", nil, "deployments only embed their files"},
}

// Some packages may not reach the outside world either: decode, say, is a pure
// function from bytes to columns.
var closed = map[string][]string{
	"pipeline/decode":   {"os", "net", "net/http", "github.com/valyala/fasthttp"},
	"pipeline/validate": {"os", "net", "net/http", "github.com/valyala/fasthttp"},
	"pipeline/batch":    {"os", "net", "net/http", "github.com/valyala/fasthttp"},
	"pipeline/journal":  {"net", "net/http", "github.com/valyala/fasthttp"},
}

// Names that say nothing about what is in a package.
var emptyNames = []string{"util", "utils", "common", "types", "helper", "helpers", "misc"}

// The top level of the repository is fixed; the second part is what .gitignore
// keeps out of it.
var (
	topLevel = []string{
		"cmd", "pipeline", "sources", "sinks", "schemas", "deployments",
		"Makefile", "README.md", "LICENSE", "CHANGELOG.md", "go.mod", "go.sum",
		".ci", ".golangci.yml", ".gitignore", ".git",
	}
	ignoredAtTop = []string{"bin", ".cache", ".run", "*.test", "*.out", "*.prof", "coverage.*"}
)

func TestArrows(t *testing.T) {
	packages := listPackages(t)
	require.Greater(t, len(packages), 3, "go list has to see the tree")
	for _, fault := range faults(packages) {
		t.Error(fault)
	}
}

func TestTopLevel(t *testing.T) {
	entries, err := os.ReadDir("..")
	require.NoError(t, err)
	for _, e := range entries {
		require.True(t, atTop(e.Name()), "%s does not belong to the top level, which is fixed: %s", e.Name(), strings.Join(topLevel, " "))
	}
	for _, name := range []string{"internal", "docs", "main.go", ".env"} {
		require.False(t, atTop(name), "the check would not notice %s", name)
	}
}

// TestArrowsHold feeds wrong graphs to the check: each has to be found.
func TestArrowsHold(t *testing.T) {
	f := func(from, to, want string) {
		t.Helper()
		found := faults([]goPackage{{ImportPath: from, Name: path.Base(from), Imports: []string{to, "fmt"}}})
		if want == "" {
			require.Empty(t, found)
			return
		}
		require.Len(t, found, 1)
		require.Contains(t, found[0], from)
		require.Contains(t, found[0], want)
	}
	f("trafficd/cmd/trafficd", "trafficd/pipeline", "")
	f("trafficd/cmd/trafficd", "trafficd/sinks/kafka", "")
	f("trafficd/pipeline", "trafficd/pipeline/journal", "")
	f("trafficd/pipeline", "trafficd/sinks/kafka", "imports trafficd/sinks/kafka: the pipeline declares")
	f("trafficd/pipeline/decode", "trafficd/pipeline/batch", "")
	f("trafficd/pipeline/decode", "trafficd/pipeline/validate", "decode knows bytes")
	f("trafficd/pipeline/decode", "net/http", "imports net/http")
	f("trafficd/pipeline/batch", "trafficd/pipeline/journal", "the leaf")
	f("trafficd/pipeline/journal", "trafficd/pipeline/batch", "bytes")
	f("trafficd/pipeline/journal", "trafficd/pipeline/journal/crashfs", "")
	f("trafficd/sources/ingest", "trafficd/pipeline/batch", "")
	f("trafficd/sources/ingest", "trafficd/schemas/proto/trafficd/v1", "")
	f("trafficd/sources/ingest", "trafficd/sources/ingest/body", "")
	f("trafficd/sources/ingest", "trafficd/sources/api", "not each other")
	f("trafficd/sources/ingest", "trafficd/sinks/kafka", "not each other")
	f("trafficd/sources/ingest", "trafficd/pipeline", "not the pipeline")
	f("trafficd/sources/ingest", "trafficd/pipeline/journal", "not the pipeline")
	f("trafficd/sources/registry", "trafficd/sources/internal/watch", "")
	f("trafficd/sources/internal/watch", "trafficd/pipeline/batch", "knows nothing")
	f("trafficd/sources/internal/upload", "trafficd/schemas/geo", "knows nothing")
	f("trafficd/sinks/layers", "trafficd/sources/internal/watch", "not each other")
	f("trafficd/sources/ingestion", "trafficd/sources/ingest", "not each other")
	f("trafficd/sinks/kafka", "trafficd/sinks/clickhouse", "not each other")
	f("trafficd/sinks/kafka", "trafficd/cmd/devstores/stores", "not each other")
	f("trafficd/schemas/xroute", "trafficd/schemas/geo", "")
	f("trafficd/schemas/geo", "trafficd/schemas/xroute", "described by themselves")
	f("trafficd/sinks/layers", "trafficd/schemas/negotiate", "")
	f("trafficd/schemas/negotiate", "trafficd/schemas/contract", "knows no endpoint")
	f("trafficd/deployments/kafka", "trafficd/cmd/devstores", "only embed")
	f("trafficd/schemas/clickhouse", "trafficd/pipeline/batch", "described by themselves")
	f("trafficd/sources", "trafficd/pipeline/batch", "has no place")
	f("trafficd/internal/thing", "fmt", "has no place")
	f("trafficd/sinks/helpers", "fmt", "says nothing")
	f("trafficd/cmd/trafficctl/internal/common", "fmt", "says nothing")
}

// faults are the sentences that say which import is wrong and why.
func faults(packages []goPackage) []string {
	var found []string
	for _, p := range packages {
		name := strings.TrimPrefix(p.ImportPath, module)
		if slices.Contains(emptyNames, p.Name) || slices.Contains(emptyNames, path.Base(name)) {
			found = append(found, fmt.Sprintf("package %s says nothing about what is in it: name it after its job", p.ImportPath))
		}
		own, a, ok := arrowOf(name)
		if !ok {
			found = append(found, fmt.Sprintf("package %s has no place in the layout", p.ImportPath))
			continue
		}
		for _, imported := range p.Imports {
			if !allowed(name, own, a, imported) {
				found = append(found, fmt.Sprintf("%s imports %s: %s", p.ImportPath, imported, a.reason))
			}
		}
	}
	return found
}

func allowed(from, own string, a arrow, imported string) bool {
	target, ours := strings.CutPrefix(imported, module)
	if !ours {
		return !slices.Contains(closed[from], imported)
	}
	return below(target, own) || slices.ContainsFunc(a.to, func(to string) bool { return below(target, to) })
}

// arrowOf gives the arrow of a package and the folder that it stands for there:
// sinks/kafka/ where the arrow says sinks/*/.
func arrowOf(name string) (own string, a arrow, ok bool) {
	for _, a := range arrows {
		own := a.from
		if group, wild := strings.CutSuffix(a.from, "*/"); wild {
			rest, in := strings.CutPrefix(name, group)
			if !in {
				continue
			}
			first, _, _ := strings.Cut(rest, "/")
			own = group + first + "/"
		}
		if below(name, own) {
			return own, a, true
		}
	}
	return "", arrow{}, false
}

// below tells whether name is the folder itself or stands in it.
func below(name, folder string) bool { return strings.HasPrefix(name+"/", folder) }

func atTop(name string) bool {
	return slices.Contains(topLevel, name) || slices.ContainsFunc(ignoredAtTop, func(pattern string) bool {
		fits, _ := path.Match(pattern, name)
		return fits
	})
}

// listPackages asks go; -e keeps a package that does not compile at the moment
// from hiding the others.
func listPackages(t *testing.T) []goPackage {
	t.Helper()
	list := exec.Command("go", "list", "-e", "-json=ImportPath,Name,Imports", "./...")
	list.Dir, list.Stderr = "..", os.Stderr
	out, err := list.Output()
	require.NoError(t, err, "cannot list the packages")
	var packages []goPackage
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		}
		require.NoError(t, err)
		packages = append(packages, p)
	}
}
