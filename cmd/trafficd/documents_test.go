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

	"trafficd/cmd/devstores/stores"
	"trafficd/sources/ingest"
)

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

// TestConsumersPage runs the programs of schemas/proto/README.md on a topic with one measurement.
func TestConsumersPage(t *testing.T) {
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
