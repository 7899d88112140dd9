package clients

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"trafficd/cmd/dev/conformance/foreign"
	"trafficd/cmd/dev/daemontest"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"trafficd/cmd/dev/needs"
)

// Directory of the files that pin the tools of these tests: requirements.txt, pom.xml and
// package-lock.json.
const openapiTools = "testdata/openapi"

// generatorSHA256 is the checksum of openapi-generator's jar.
const generatorSHA256 = "4b83ccc6fd43056c8c631cd0195e5100bd0550912502527bab09ac76152dab0c"

// codeSample is an entry of x-codeSamples.
type codeSample struct{ Lang, Source string }

// clientDocument holds the parts of the OpenAPI document that these tests read.
type clientDocument struct {
	Paths map[string]map[string]struct {
		CodeSamples []codeSample `yaml:"x-codeSamples"`
	}
}

// generator describes how a language's client is generated, according to the first lines of its
// samples.
type generator struct {
	name       string
	properties string
	build      func(t *testing.T, client string, samples map[string]string) map[string]*exec.Cmd
}

// TestGeneratedClients generates clients from the running daemon's OpenAPI document with
// openapi-generator, compiles them with the document's code samples, and runs the samples: they
// send a batch, read its rejections, and read the forecast layer.
func TestGeneratedClients(t *testing.T) {
	needs.Everything(t, "openapi-generator and its languages")
	d := daemontest.Examples(t)
	generators := map[string]generator{
		"Python":     {name: "python", properties: "{packageName: trafficd}", build: buildPython},
		"Java":       {name: "java", properties: "{library: native, useGzipFeature: true, useSingleRequestParameter: true}", build: buildJava},
		"TypeScript": {name: "typescript-fetch", properties: "{}", build: buildTypeScript},
		"Go":         {name: "go", properties: "{packageName: trafficd, withGoMod: false}", build: buildGo},
	}
	_, text := daemontest.WithoutKey(t, http.MethodGet, "http://"+d.API+daemontest.SchemasPath+"openapi.yaml")
	var document clientDocument
	require.NoError(t, yaml.Unmarshal([]byte(text), &document))
	samples := make(map[string]map[string]string) // language → output → program
	for output, operation := range map[string][]codeSample{
		"accepted 1, rejected 1\nmeasurement 1: UNKNOWN_DETECTOR in measurements[1].detectorCode\n": document.Paths["/dataprovider/ingestion/v1/detectors/data/ingest"]["post"].CodeSamples,
		"street 4711: 43.2\n": document.Paths["/mlf/v1/forecast/realtime"]["get"].CodeSamples,
	} {
		require.Len(t, operation, len(generators))
		for _, s := range operation {
			if samples[s.Lang] == nil {
				samples[s.Lang] = make(map[string]string)
			}
			samples[s.Lang][output] = s.Source
		}
	}

	directory := generate(t, text, generators)
	for language, g := range generators {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			for want, program := range g.build(t, filepath.Join(directory, g.name), samples[language]) {
				foreign.RunDocumented(t, program, want, "TRAFFICD_URL=http://"+d.API, "TRAFFICD_KEY="+daemontest.ExamplesKey)
			}
		})
	}
}

// generate runs openapi-generator for all languages in one process, and returns the directory with
// the clients.
func generate(t *testing.T, document string, generators map[string]generator) (directory string) {
	t.Helper()
	directory = t.TempDir()
	input := filepath.Join(directory, "openapi.yaml")
	require.NoError(t, os.WriteFile(input, []byte(document), 0o644))
	jar := filepath.Join(openapiJars(t), "generator", "openapi-generator-cli-7.24.0.jar")
	args := []string{"-jar", jar, "batch", "--fail-fast", "--threads", "2"}
	for _, g := range generators {
		file := filepath.Join(directory, g.name+".yaml")
		config := fmt.Sprintf("generatorName: %s\ninputSpec: %s\noutputDir: %s\nadditionalProperties: %s\n"+
			"globalProperties: {apiDocs: false, modelDocs: false, apiTests: false, modelTests: false}\n", g.name, input, filepath.Join(directory, g.name), g.properties)
		require.NoError(t, os.WriteFile(file, []byte(config), 0o644))
		args = append(args, file)
	}
	started := time.Now()
	text, err := foreign.Java(args...).CombinedOutput()
	require.NoError(t, err, "%s", daemontest.LastBytes(text, 4000))
	t.Logf("openapi-generator took %.1f s", time.Since(started).Seconds())
	return directory
}

// openapiJars returns the directory of openapi-generator and of the jars that its Java client
// needs.
func openapiJars(t *testing.T) string {
	return foreign.Fetched(t, "openapi", filepath.Join(openapiTools, "pom.xml"), func(dir string) {
		foreign.Fetch(t, "openapi-generator", "mvn", "--batch-mode", "--strict-checksums", "--file", filepath.Join(openapiTools, "pom.xml"), "-Dfetched="+dir,
			"dependency:copy@generator", "dependency:copy-dependencies@client")
		jar, err := os.ReadFile(filepath.Join(dir, "generator", "openapi-generator-cli-7.24.0.jar"))
		require.NoError(t, err)
		sum := sha256.Sum256(jar)
		require.Equal(t, generatorSHA256, hex.EncodeToString(sum[:]))
	})
}

func write(t *testing.T, path, text string) string {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

func buildPython(t *testing.T, client string, samples map[string]string) map[string]*exec.Cmd {
	programs := make(map[string]*exec.Cmd)
	for output, source := range samples {
		cmd := exec.Command(openapiPython(t), "-W", "error", write(t, filepath.Join(t.TempDir(), "sample.py"), source))
		cmd.Env = append(cmd.Environ(), "PYTHONPATH="+client)
		programs[output] = cmd
	}
	return programs
}

// openapiPython returns a Python that has schemathesis and what generated clients need.
func openapiPython(t *testing.T) string {
	return filepath.Join(foreign.Fetched(t, "openapi-python", filepath.Join(openapiTools, "requirements.txt"), func(dir string) {
		foreign.Fetch(t, "an environment for schemathesis", "python3", "-m", "venv", dir)
		foreign.Fetch(t, "schemathesis", filepath.Join(dir, "bin", "python"), "-m", "pip", "install", "--quiet",
			"--require-hashes", "--only-binary", ":all:", "--requirement", filepath.Join(openapiTools, "requirements.txt"))
	}), "bin", "python")
}

func buildJava(t *testing.T, client string, samples map[string]string) map[string]*exec.Cmd {
	libraries, classes := filepath.Join(openapiJars(t), "client", "*"), t.TempDir()
	classPath := classes + string(filepath.ListSeparator) + libraries
	programs := make(map[string]*exec.Cmd)
	args := []string{"-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC", "-XDsuppressNotes", "-cp", libraries, "-d", classes}
	for output, source := range samples {
		_, name, _ := strings.Cut(source, "\nclass ")
		name, _, _ = strings.Cut(name, " ")
		args = append(args, write(t, filepath.Join(t.TempDir(), name+".java"), source))
		programs[output] = foreign.Java("-cp", classPath, name)
	}
	require.NoError(t, filepath.WalkDir(filepath.Join(client, "src", "main"), func(path string, _ os.DirEntry, err error) error {
		if strings.HasSuffix(path, ".java") {
			args = append(args, path)
		}
		return err
	}))
	foreign.RunSilent(t, exec.Command("javac", args...))
	return programs
}

// npmModules returns the directory of the packages of package-lock.json.
func npmModules(t *testing.T) string {
	t.Helper()
	return filepath.Join(foreign.Fetched(t, "npm", filepath.Join(openapiTools, "package-lock.json"), func(dir string) {
		for _, file := range []string{"package.json", "package-lock.json"} {
			foreign.CopyFile(t, filepath.Join(openapiTools, file), filepath.Join(dir, file))
		}
		foreign.Fetch(t, "the packages of JavaScript", "npm", "ci", "--prefix", dir, "--no-audit", "--no-fund")
	}), "node_modules")
}

func buildTypeScript(t *testing.T, client string, samples map[string]string) map[string]*exec.Cmd {
	modules := npmModules(t)
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(filepath.Join(dir, "client"), os.DirFS(client)))
	args := []string{
		filepath.Join(modules, "typescript", "bin", "tsc"), "--strict", "--target", "es2022", "--lib", "es2022,dom,dom.iterable", "--module", "commonjs",
		"--typeRoots", filepath.Join(modules, "@types"), "--types", "node", "--outDir", filepath.Join(dir, "out"),
	}
	programs := make(map[string]*exec.Cmd)
	for output, source := range samples {
		name := fmt.Sprintf("sample%d", len(programs))
		args = append(args, write(t, filepath.Join(dir, name+".ts"), source))
		programs[output] = exec.Command("node", "--no-warnings", filepath.Join(dir, "out", name+".js")) // fetch is experimental in Node.js 18
	}
	foreign.RunSilent(t, exec.Command("node", args...))
	return programs
}

func buildGo(t *testing.T, client string, samples map[string]string) map[string]*exec.Cmd {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "go.mod"), "module example.org/traffic\n\ngo 1.24\n")
	require.NoError(t, os.CopyFS(filepath.Join(dir, "trafficd"), os.DirFS(client)))
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "trafficd", "test"))) // tests of files that were not generated
	programs := make(map[string]*exec.Cmd)
	for output, source := range samples {
		name := fmt.Sprintf("sample%d", len(programs))
		write(t, filepath.Join(dir, name, "main.go"), source)
		programs[output] = exec.Command(filepath.Join(dir, "bin", name))
	}
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "bin")+string(filepath.Separator), "./...")
	build.Dir = dir
	build.Env = append(build.Environ(), "GOWORK=off")
	foreign.RunSilent(t, build)
	return programs
}
