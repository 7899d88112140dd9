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

// goPackage is the part of `go list -json` that the arrows need. Imports excludes the imports of
// tests, which are not restricted.
type goPackage struct {
	ImportPath string
	Name       string
	Imports    []string
}

// arrow lists the directories of this module that the packages below a directory may import, and
// why. Packages may always import from their own directory. The first arrow that matches a package
// applies.
type arrow struct {
	from   string
	to     []string
	reason string
}

var arrows = []arrow{
	{"cmd/", []string{"pipeline/", "sources/", "sinks/", "schemas/", "deployments/"}, "commands connect all packages"},
	{"pipeline/batch/", []string{"schemas/contract/"}, "batch is shared by all stages and adapters, so it depends only on the contract"},
	{"pipeline/journal/", []string{"pipeline/lib/"}, "the journal stores bytes and does not know their meaning"},
	{"pipeline/kafkalog/", []string{"pipeline/batch/", "pipeline/lib/"}, "the log and the journal on disk are siblings, which know neither each other nor the pipeline"},
	{"pipeline/decode/", []string{"pipeline/batch/", "pipeline/lib/", "schemas/contract/"}, "decode converts bytes to columns and does nothing else"},
	{"pipeline/validate/", []string{"pipeline/batch/", "pipeline/lib/", "schemas/contract/"}, "validate depends only on the batch and the rules of the contract"},
	// The leaves: what stages, sources and sinks share and what is no stage.
	{"pipeline/lib/admission/", []string{"pipeline/lib/", "schemas/contract/"}, "admission limits clients and does not know what they request"},
	{"pipeline/lib/dial/", []string{"pipeline/lib/"}, "dial opens connections to the stores and does not know what is sent over them"},
	{"pipeline/lib/durable/", nil, "durable declares what the journals have in common and knows none of them"},
	{"pipeline/lib/fair/", nil, "fair divides a limit between clients and does not know of what"},
	{"pipeline/lib/feedloop/", []string{"pipeline/lib/"}, "feedloop repeats the reading of content and does not know what it is"},
	{"pipeline/lib/gunzip/", nil, "gunzip decompresses and does not know the contents"},
	{"pipeline/lib/metrics/", nil, "metrics depends on nothing, because every package with metrics depends on it"},
	{"pipeline/lib/negotiate/", nil, "negotiate interprets header lines and does not know any endpoint"},
	{"pipeline/lib/receipts/", []string{"pipeline/batch/"}, "receipts keeps what became of batches and does not know the stores"},
	{"pipeline/lib/replace/", nil, "replace writes files and does not know their contents"},
	{"pipeline/lib/settings/", nil, "settings depends on nothing, because every package with settings depends on it"},
	{"pipeline/lib/turns/", []string{"pipeline/lib/fair/"}, "turns shares slots between clients and does not know what they do with them"},
	{"pipeline/lib/watch/", nil, "watch detects changes of files and does not know their contents"},
	{"pipeline/lib/", nil, "a leaf needs an arrow of its own, with a sentence that says what it does not know"},
	{"pipeline/", []string{"pipeline/", "schemas/contract/"}, "the pipeline declares the interfaces that it needs, and cmd passes in sources and sinks"},
	{"sources/internal/shrink/", []string{"pipeline/lib/"}, "shrink compares contents and does not know what they are"},
	{"sources/internal/upload/", []string{"pipeline/lib/", "schemas/contract/"}, "upload receives bodies and does not know their contents"},
	{"sources/*/", []string{"pipeline/batch/", "pipeline/lib/", "schemas/", "sources/internal/"}, "sources depend on batch, the leaves and the schemas, neither on each other nor on the pipeline"},
	{"sinks/*/", []string{"pipeline/batch/", "pipeline/lib/", "schemas/"}, "sinks depend on batch, the leaves and the schemas, neither on each other nor on the pipeline"},
	{"schemas/contract/", nil, "the contract is shared by everything with an interface, so it depends on nothing"},
	{"schemas/xroute/", []string{"schemas/contract/", "schemas/geo/"}, "xroute depends only on the contract and the coordinates of geo"},
	{"schemas/*/", []string{"schemas/contract/"}, "schemas depend only on the contract"},
	{"deployments/", nil, "deployments only embed files"},
}

// closed lists standard and third-party packages that some packages must not import, because they
// must not access files or the network.
var closed = map[string][]string{
	"pipeline/decode":   {"os", "net", "net/http", "github.com/valyala/fasthttp"},
	"pipeline/validate": {"os", "net", "net/http", "github.com/valyala/fasthttp"},
	"pipeline/batch":    {"os", "net", "net/http", "github.com/valyala/fasthttp"},
	"pipeline/journal":  {"net", "net/http", "github.com/valyala/fasthttp"},
}

// emptyNames are package names that do not describe a purpose.
var emptyNames = []string{"util", "utils", "common", "types", "helper", "helpers", "misc"}

// The top level of the repository is fixed. ignoredAtTop is excluded by .gitignore.
var (
	topLevel = []string{
		"cmd", "pipeline", "sources", "sinks", "schemas", "deployments",
		"Makefile", "README.md", "LICENSE", "CHANGELOG.md", "go.mod", "go.sum",
		".ci", ".github", ".golangci.yml", ".gitignore", ".git",
	}
	ignoredAtTop = []string{"bin", ".cache", ".run", "*.test", "*.out", "*.prof", "coverage.*"}
)

func TestArrows(t *testing.T) {
	packages := listPackages(t)
	require.Greater(t, len(packages), 3, "go list must find the packages")
	for _, fault := range faults(packages) {
		t.Error(fault)
	}
}

func TestTopLevel(t *testing.T) {
	entries, err := os.ReadDir("..")
	require.NoError(t, err)
	for _, e := range entries {
		require.True(t, atTop(e.Name()), "%s does not belong to the fixed top level: %s", e.Name(), strings.Join(topLevel, " "))
	}
	for _, name := range []string{"internal", "docs", "main.go", ".env"} {
		require.False(t, atTop(name), name)
	}
}

// TestForbiddenImportsAreFound checks that the test above finds violations.
func TestForbiddenImportsAreFound(t *testing.T) {
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
	f("trafficd/pipeline/decode", "trafficd/pipeline/validate", "decode converts")
	f("trafficd/pipeline/decode", "net/http", "imports net/http")
	f("trafficd/pipeline/batch", "trafficd/pipeline/journal", "depends only on the contract")
	f("trafficd/pipeline/journal", "trafficd/pipeline/batch", "stores bytes")
	f("trafficd/pipeline/kafkalog", "trafficd/pipeline/batch", "")
	f("trafficd/pipeline/kafkalog", "trafficd/pipeline/journal", "know neither each other")
	f("trafficd/pipeline/kafkalog", "trafficd/pipeline", "know neither each other")
	f("trafficd/pipeline/journal", "trafficd/pipeline/kafkalog", "stores bytes")
	f("trafficd/pipeline/lib/dial", "trafficd/pipeline/batch", "does not know what is sent")
	f("trafficd/sinks/kafka", "trafficd/pipeline/lib/dial", "")
	f("trafficd/schemas/contract", "trafficd/schemas/geo", "depends on nothing")
	f("trafficd/pipeline/journal", "trafficd/pipeline/journal/crashfs", "")
	f("trafficd/sources/ingest", "trafficd/pipeline/batch", "")
	f("trafficd/sources/ingest", "trafficd/schemas/proto/trafficd/v1", "")
	f("trafficd/sources/ingest", "trafficd/sources/ingest/body", "")
	f("trafficd/sources/ingest", "trafficd/sources/api", "neither on each other")
	f("trafficd/sources/ingest", "trafficd/sinks/kafka", "neither on each other")
	f("trafficd/sources/ingest", "trafficd/pipeline", "nor on the pipeline")
	f("trafficd/sources/ingest", "trafficd/pipeline/journal", "nor on the pipeline")
	f("trafficd/sources/registry", "trafficd/pipeline/lib/watch", "")
	f("trafficd/pipeline/lib/watch", "trafficd/pipeline/batch", "does not know")
	f("trafficd/sources/internal/upload", "trafficd/schemas/geo", "does not know")
	f("trafficd/sinks/layers", "trafficd/pipeline/lib/watch", "")
	f("trafficd/pipeline/lib/unknown", "trafficd/pipeline/batch", "a leaf needs an arrow")
	f("trafficd/sources/ingestion", "trafficd/sources/ingest", "neither on each other")
	f("trafficd/sinks/kafka", "trafficd/sinks/clickhouse", "neither on each other")
	f("trafficd/sinks/kafka", "trafficd/cmd/dev/devstores/stores", "neither on each other")
	f("trafficd/schemas/xroute", "trafficd/schemas/geo", "")
	f("trafficd/schemas/geo", "trafficd/schemas/xroute", "depend only")
	f("trafficd/sinks/layers", "trafficd/pipeline/lib/negotiate", "")
	f("trafficd/pipeline/lib/negotiate", "trafficd/schemas/contract", "does not know any endpoint")
	f("trafficd/deployments/kafka", "trafficd/cmd/dev/devstores", "only embed")
	f("trafficd/schemas/clickhouse", "trafficd/pipeline/batch", "depend only")
	f("trafficd/sources", "trafficd/pipeline/batch", "has no arrow")
	f("trafficd/internal/thing", "fmt", "has no arrow")
	f("trafficd/sinks/helpers", "fmt", "meaningless name")
	f("trafficd/cmd/trafficctl/internal/common", "fmt", "meaningless name")
}

// faults returns a message for each forbidden import and each meaningless name.
func faults(packages []goPackage) []string {
	var found []string
	for _, p := range packages {
		name := strings.TrimPrefix(p.ImportPath, module)
		if slices.Contains(emptyNames, p.Name) || slices.Contains(emptyNames, path.Base(name)) {
			found = append(found, fmt.Sprintf("package %s has a meaningless name: name it after its purpose", p.ImportPath))
		}
		own, a, ok := arrowOf(name)
		if !ok {
			found = append(found, fmt.Sprintf("package %s has no arrow in arrows_test.go", p.ImportPath))
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

// arrowOf returns the arrow of a package and the directory that matched, such as sinks/kafka/ for
// sinks/*/.
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

// below reports whether name is the directory or inside it.
func below(name, directory string) bool { return strings.HasPrefix(name+"/", directory) }

func atTop(name string) bool {
	return slices.Contains(topLevel, name) || slices.ContainsFunc(ignoredAtTop, func(pattern string) bool {
		fits, _ := path.Match(pattern, name)
		return fits
	})
}

// listPackages runs go list, with -e so that a package that does not compile does not hide the
// others.
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
