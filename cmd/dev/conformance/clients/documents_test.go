package clients

import (
	"bytes"
	"encoding/json"
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

	"trafficd/cmd/dev/conformance/foreign"
	"trafficd/cmd/dev/daemontest"
	"trafficd/cmd/dev/devstores/stores"
	"trafficd/cmd/dev/launch"
	"trafficd/cmd/dev/needs"
	"trafficd/pipeline/lib/gunzip/compress"
	"trafficd/schemas/contract"
	"trafficd/schemas/openlr"
)

// TestIntegratorsPage runs the programs of schemas/openapi/integrators.md.
func TestIntegratorsPage(t *testing.T) {
	needs.Everything(t, "the languages of the examples")
	d := daemontest.Examples(t)
	programs := foreign.Snippets(t, "../../../../schemas/openapi/integrators.md")
	want := programs["text"]
	delete(programs, "text")
	commands := map[string]func(dir string) *exec.Cmd{
		"bash": func(dir string) *exec.Cmd { return exec.Command("bash", filepath.Join(dir, "main.bash")) },
		"python": func(dir string) *exec.Cmd {
			return exec.Command("python3", "-W", "error", filepath.Join(dir, "main.python"))
		},
		"go":   func(dir string) *exec.Cmd { return exec.Command("go", "run", filepath.Join(dir, "main.go")) },
		"java": func(dir string) *exec.Cmd { return foreign.Java(filepath.Join(dir, "main.java")) },
	}
	require.Len(t, programs, len(commands))
	for language, program := range programs {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, filepath.Join(dir, "main."+language), program)
			foreign.RunDocumented(t, commands[language](dir), want, "TRAFFICD_URL=http://"+d.API, "TRAFFICD_KEY="+daemontest.ExamplesKey)
		})
		t.Run(language+" after failures", func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, filepath.Join(dir, "main."+language), program)
			proxy, keys := failingProxy(t, d.API)
			cmd := commands[language](dir)
			cmd.Env = append(cmd.Environ(), "TRAFFICD_URL="+proxy, "TRAFFICD_KEY="+daemontest.ExamplesKey)
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

// TestMapClientsPage runs the programs of schemas/openapi/mapclients.md, which read the layer and
// then wait for the change of a street.
func TestMapClientsPage(t *testing.T) {
	needs.Everything(t, "the languages of the examples")
	programs := foreign.Snippets(t, "../../../../schemas/openapi/mapclients.md")
	want := programs["text"]
	delete(programs, "text")
	delete(programs, "js") // for a page: TestVectorTiles shows tiles in MapLibre
	modules := npmModules(t)
	commands := map[string]func(dir string) *exec.Cmd{
		"javascript": func(dir string) *exec.Cmd {
			require.NoError(t, os.Symlink(modules, filepath.Join(dir, "node_modules")))
			return exec.Command("node", "--no-warnings", write(t, filepath.Join(dir, "main.mjs"), programs["javascript"]))
		},
		"python": func(dir string) *exec.Cmd {
			foreign.Run(t, "protoc", "--proto_path=../../../../schemas/proto", "--python_out="+dir, "trafficd/v1/forecast.proto")
			packages, err := filepath.Glob(filepath.Join(openlrPython(t), "lib", "python*", "site-packages"))
			require.NoError(t, err)
			cmd := exec.Command(protobufPython(t), write(t, filepath.Join(dir, "main.py"), programs["python"]))
			cmd.Env = append(cmd.Environ(), "PYTHONPATH="+strings.Join(packages, ":"))
			return cmd
		},
	}
	require.Len(t, programs, len(commands))
	for language, command := range commands {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			d := daemontest.New(t)
			others := daemontest.StreetLine(4712, 50) + daemontest.StreetLine(4713, 60)
			file := d.SetForecastFile("forecasts.ndjson")
			daemontest.ReplaceFile(t, file, daemontest.StreetLine(4711, 43.2)+others)
			d.Keys(daemontest.KeyEntry(daemontest.ExamplesKey, "forecast", "Europe/Copenhagen"))
			d.Run().Await(http.StatusOK)
			d.AwaitLayer(daemontest.ExamplesKey)

			program := command(dir)
			program.Dir = dir
			program.Env = append(program.Environ(), "TRAFFICD_URL=http://"+d.API, "TRAFFICD_KEY="+daemontest.ExamplesKey)
			var out, warnings bytes.Buffer
			program.Stdout, program.Stderr = &out, &warnings
			require.NoError(t, program.Start())
			t.Cleanup(func() { _ = program.Process.Kill() })
			drawn := filepath.Join(dir, "streets.geojson")
			d.Eventually(func() bool { _, err := os.Stat(drawn); return err == nil }, "streets.geojson")
			daemontest.ReplaceFile(t, file, daemontest.StreetLine(4711, 21.5)+others)
			require.NoError(t, program.Wait(), "%s", &warnings)
			require.Equal(t, want, out.String())
			require.Empty(t, warnings.String())

			text, err := os.ReadFile(drawn)
			require.NoError(t, err)
			var collection struct {
				Features []struct {
					Properties struct{ Street, Fromnode, Speed float64 }
					Geometry   struct{ Coordinates [][2]float64 }
				}
			}
			require.NoError(t, json.Unmarshal(text, &collection))
			line, err := openlr.Decode("CwOiYCUMnQkJAP+/ABQBCg==")
			require.NoError(t, err)
			require.Len(t, collection.Features, 3)
			for i, speed := range []float64{21.5, 50, 60} {
				f := collection.Features[i]
				require.Equal(t, struct{ Street, Fromnode, Speed float64 }{4711 + float64(i), 1, speed}, f.Properties)
				require.Len(t, f.Geometry.Coordinates, len(line.Points))
				for n, p := range line.Points {
					require.InDelta(t, p.Lon, f.Geometry.Coordinates[n][0], 1e-9)
					require.InDelta(t, p.Lat, f.Geometry.Coordinates[n][1], 1e-9)
				}
			}
		})
	}
}

// TestConsumersPage runs the programs of schemas/proto/README.md on a topic with one measurement.
func TestConsumersPage(t *testing.T) {
	needs.Everything(t, "the languages of the examples")
	kafka := stores.StartKafka(t, stores.Topic("measurements", 6))
	d := daemontest.Examples(t, "kafka.enabled=true", "kafka.brokers="+strings.Join(kafka.Brokers, ","))
	batch := `{"measurements":[{"detectorCode":"MQ-0815-1","measureTypeCode":"speed","timestampFrom":"2026-01-31T12:00:00Z","timestampTo":"2026-01-31T12:05:00Z","value":47.5}]}`
	accepted, err := post(t, d, batch)
	require.NoError(t, err)
	require.Equal(t, 1, accepted.Accepted)
	page, err := os.ReadFile("../../../../schemas/proto/README.md")
	require.NoError(t, err)
	look := regexp.MustCompile(`(?m)^ {4}(curl .*\n {4}kcat .*)$`).FindStringSubmatch(string(page))
	require.NotNil(t, look)
	cmd := exec.Command("bash", "-ec", look[1])
	cmd.Dir = t.TempDir()
	cmd.Env = append(cmd.Environ(), "TRAFFICD_URL=http://"+d.API, "KAFKA_BROKERS="+strings.Join(kafka.Brokers, ","))
	shown, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", shown)
	require.Contains(t, string(shown), `detector_code: "MQ-0815-1"`)

	programs := foreign.Snippets(t, "../../../../schemas/proto/README.md")
	want := programs["text"]
	delete(programs, "text")
	libraries := foreign.Jars(t, "consumer", filepath.Join("testdata", "consumers", "pom.xml"))
	generate := func(dir, language string) {
		foreign.Run(t, "protoc", "--proto_path=../../../../schemas/proto", "--"+language+"_out="+dir, "trafficd/v1/measurement.proto")
	}
	commands := map[string]func(dir string) *exec.Cmd{
		"go": func(dir string) *exec.Cmd { return exec.Command("go", "run", filepath.Join(dir, "main.go")) },
		"python": func(dir string) *exec.Cmd {
			generate(dir, "python")
			return exec.Command("/usr/bin/python3", filepath.Join(dir, "main.python"))
		},
		"java": func(dir string) *exec.Cmd {
			generate(dir, "java")
			foreign.Run(t, "javac", "-cp", libraries, "-d", dir, filepath.Join(dir, "main.java"), filepath.Join(dir, "trafficd", "v1", "MeasurementOuterClass.java"))
			return foreign.Java("-cp", dir+":"+libraries, "Main")
		},
	}
	require.Len(t, programs, len(commands))
	for language, program := range programs {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, filepath.Join(dir, "main."+language), program)
			foreign.RunDocumented(t, commands[language](dir), want, "KAFKA_BROKERS="+strings.Join(kafka.Brokers, ","))
		})
	}
}

// post sends a batch with the key of the integrator.
func post(t *testing.T, d *daemontest.Trafficd, batch string) (result contract.Result, err error) {
	t.Helper()
	r, err := launch.Post(t.Context(), http.DefaultClient, "http://"+d.API, daemontest.ExamplesKey, compress.Gzip(batch))
	if err != nil {
		return result, err
	}
	return r.Result()
}
