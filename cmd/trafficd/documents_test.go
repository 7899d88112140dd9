package main

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/cmd/dev/needs"
	"trafficd/cmd/devstores/stores"
	"trafficd/sources/ingest"
)

// TestLinks checks that the files and sections that the documents link to exist.
func TestLinks(t *testing.T) {
	needs.Program(t, "git")
	const root = "../.."
	list, err := exec.CommandContext(t.Context(), "git", "-C", root, "ls-files", "--cached", "--others", "--exclude-standard", "*.md").Output()
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?ms)^```.*?^```$")
	read := func(path string) string {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		return blocks.ReplaceAllString(string(text), "")
	}
	anchors := func(document string) (found []string) {
		for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(read(document), -1) {
			kept := regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
			found = append(found, strings.ReplaceAll(kept, " ", "-"))
		}
		return found
	}
	links := 0
	for _, document := range strings.Fields(string(list)) {
		document = filepath.Join(root, document)
		for _, m := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(read(document), -1) {
			if strings.HasPrefix(m[1], "https://") {
				continue
			}
			links++
			path, anchor, _ := strings.Cut(m[1], "#")
			target := document
			if path != "" {
				target = filepath.Join(filepath.Dir(document), path)
			}
			_, err := os.Stat(target)
			require.NoError(t, err, "%s links to %s", document, m[1])
			if anchor != "" {
				require.Contains(t, anchors(target), anchor, "%s links to %s", document, m[1])
			}
		}
	}
	require.Greater(t, links, 50)
}

// TestDocumentedSettings checks that the daemon accepts the settings that the documents show.
func TestDocumentedSettings(t *testing.T) {
	checked := 0
	for _, document := range []string{"../../README.md", "../../deployments/README.md"} {
		text, err := os.ReadFile(document)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[1], "# forecaster.yaml") || strings.Contains(m[1], "envSecret:") { // values of the chart
				continue
			}
			file := filepath.Join(t.TempDir(), "trafficd.yaml")
			require.NoError(t, os.WriteFile(file, []byte(m[1]), 0o600))
			out, err := exec.CommandContext(t.Context(), binary, "--config", file, "--print-config").CombinedOutput()
			require.NoError(t, err, "%s: %s\n%s", document, m[1], out)
			checked++
		}
	}
	require.Equal(t, 4, checked)
}

// snippets returns the fenced blocks of a document by language. Each language occurs once.
func snippets(t *testing.T, document string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(document)
	require.NoError(t, err)
	found := make(map[string]string)
	for _, m := range regexp.MustCompile("(?ms)^```([a-z]+)\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		require.NotContains(t, found, m[1], document)
		found[m[1]] = m[2]
	}
	return found
}

// runDocumented runs a program that a document shows and requires its output and no warnings.
func runDocumented(t *testing.T, cmd *exec.Cmd, want string, env ...string) {
	t.Helper()
	cmd.Env = append(cmd.Environ(), env...)
	var warnings bytes.Buffer
	cmd.Stderr = &warnings
	got, err := cmd.Output()
	require.NoError(t, err, "%s%s", got, warnings.String())
	require.Equal(t, want, string(got))
	require.Empty(t, warnings.String())
}

// TestIntegratorsPage runs the programs of schemas/openapi/integrators.md.
func TestIntegratorsPage(t *testing.T) {
	needs.Everything(t, "the languages of the examples")
	d := clientsProcess(t)
	programs := snippets(t, "../../schemas/openapi/integrators.md")
	want := programs["text"]
	delete(programs, "text")
	commands := map[string]func(dir string) *exec.Cmd{
		"bash": func(dir string) *exec.Cmd { return exec.Command("bash", filepath.Join(dir, "main.bash")) },
		"python": func(dir string) *exec.Cmd {
			return exec.Command("python3", "-W", "error", filepath.Join(dir, "main.python"))
		},
		"go":   func(dir string) *exec.Cmd { return exec.Command("go", "run", filepath.Join(dir, "main.go")) },
		"java": func(dir string) *exec.Cmd { return java(filepath.Join(dir, "main.java")) },
	}
	require.Len(t, programs, len(commands))
	for language, program := range programs {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, filepath.Join(dir, "main."+language), program)
			runDocumented(t, commands[language](dir), want, "TRAFFICD_URL=http://"+d.API, "TRAFFICD_KEY="+integratorKey)
		})
		t.Run(language+" after failures", func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, filepath.Join(dir, "main."+language), program)
			proxy, keys := failingProxy(t, d.API)
			cmd := commands[language](dir)
			cmd.Env = append(cmd.Environ(), "TRAFFICD_URL="+proxy, "TRAFFICD_KEY="+integratorKey)
			got, err := cmd.Output()
			require.NoError(t, err, "%s", got)
			require.Equal(t, want, string(got))
			require.Len(t, *keys, 5)
			require.Equal(t, slices.Repeat((*keys)[:1], 4), (*keys)[:4], "attempts for the first batch")
			require.NotEqual(t, (*keys)[3], (*keys)[4])
		})
	}
}

// failingProxy returns the URL of a proxy, and the Idempotency-Keys of the requests that it has
// received. After the first request it closes the connection without a response, after the second
// one with half of the response; the third one gets a 409.
func failingProxy(t *testing.T, address string) (url string, keys *[]string) {
	keys = new([]string)
	transport := &http.Transport{DisableCompression: true} // forwards Content-Length
	t.Cleanup(transport.CloseIdleConnections)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*keys = append(*keys, r.Header.Get("Idempotency-Key"))
		if len(*keys) == 3 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusConflict)
			return
		}
		r.URL.Scheme, r.URL.Host, r.RequestURI = "http", address, ""
		response, err := transport.RoundTrip(r)
		if err != nil {
			t.Errorf("cannot forward a request: %v", err)
			return
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Errorf("cannot read the response: %v", err)
		}
		if len(*keys) == 1 {
			panic(http.ErrAbortHandler)
		}
		maps.Copy(w.Header(), response.Header)
		w.WriteHeader(response.StatusCode)
		if len(*keys) == 2 {
			body = body[:len(body)/2]
		}
		_, _ = w.Write(body)
	}))
	t.Cleanup(proxy.Close)
	return proxy.URL, keys
}

// TestSOAPPage runs the program of schemas/xroute/README.md.
func TestSOAPPage(t *testing.T) {
	needs.Everything(t, "zeep")
	d := clientsProcess(t)
	programs := snippets(t, "../../schemas/xroute/README.md")
	file := filepath.Join(t.TempDir(), "main.py")
	write(t, file, programs["python"])
	runDocumented(t, exec.Command(python(t), "-W", "error", file), programs["text"], "TRAFFICD_URL=http://"+d.API, "TRAFFICD_KEY="+integratorKey)
}

// TestConsumersPage runs the programs of schemas/proto/README.md on a topic with one measurement.
func TestConsumersPage(t *testing.T) {
	needs.Everything(t, "the languages of the examples")
	kafka := stores.StartKafka(t, stores.Topic("measurements", 6))
	d := clientsProcess(t, "kafka.enabled=true", "kafka.brokers="+strings.Join(kafka.Brokers, ","))
	batch := `{"measurements":[{"detectorCode":"MQ-0815-1","measureTypeCode":"speed","timestampFrom":"2026-01-31T12:00:00Z","timestampTo":"2026-01-31T12:05:00Z","value":47.5}]}`
	require.Contains(t, d.exchange(http.MethodPost, ingest.Path, pack(batch), "Content-Encoding", "gzip").body, `"accepted":1`)
	programs := snippets(t, "../../schemas/proto/README.md")
	want := programs["text"]
	delete(programs, "text")
	libraries := jarsOf(t, "consumer", filepath.Join("testdata", "consumers", "pom.xml"))
	generate := func(dir, language string) {
		mustRun(t, "protoc", "--proto_path=../../schemas/proto", "--"+language+"_out="+dir, "trafficd/v1/measurement.proto")
	}
	commands := map[string]func(dir string) *exec.Cmd{
		"go": func(dir string) *exec.Cmd { return exec.Command("go", "run", filepath.Join(dir, "main.go")) },
		"python": func(dir string) *exec.Cmd {
			generate(dir, "python")
			return exec.Command("/usr/bin/python3", filepath.Join(dir, "main.python"))
		},
		"java": func(dir string) *exec.Cmd {
			generate(dir, "java")
			mustRun(t, "javac", "-cp", libraries, "-d", dir, filepath.Join(dir, "main.java"), filepath.Join(dir, "trafficd", "v1", "MeasurementOuterClass.java"))
			return java("-cp", dir+":"+libraries, "Main")
		},
	}
	require.Len(t, programs, len(commands))
	for language, program := range programs {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, filepath.Join(dir, "main."+language), program)
			runDocumented(t, commands[language](dir), want, "KAFKA_BROKERS="+strings.Join(kafka.Brokers, ","))
		})
	}
}
