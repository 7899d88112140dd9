package main

import (
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"trafficd/cmd/dev/daemontest"
	"trafficd/cmd/dev/needs"
	"trafficd/cmd/trafficd/config"
	"trafficd/schemas/openapi"
	"trafficd/schemas/proto"
	"trafficd/schemas/xroute"
	"trafficd/sources/api"
)

func withoutKey(t *testing.T, method, url string, headers ...string) (*http.Response, string) {
	t.Helper()
	return daemontest.WithoutKey(t, method, url, headers...)
}

// TestSchemas checks that the daemon serves the embedded schemas without a key, and that a
// download of them compiles.
func TestSchemas(t *testing.T) {
	t.Parallel()
	needs.Program(t, "protoc")
	d := newProcess(t, "api.base_path=/traffic").start()
	d.Await(http.StatusOK)
	base, directory := "http://"+d.API+"/traffic", t.TempDir()
	names := daemontest.DownloadSchemas(t, base, directory)
	require.Equal(t, append(append([]string{"openapi.yaml"}, protoFiles()...), descriptorSet), names)

	protoc := []string{"--proto_path=" + directory, "--descriptor_set_out=" + filepath.Join(directory, "out.binpb")}
	for _, name := range names[:len(names)-1] {
		served, err := os.ReadFile(filepath.Join(directory, name))
		require.NoError(t, err)
		embedded := openapi.Document
		if strings.HasSuffix(name, ".proto") {
			embedded, err = proto.Files.ReadFile(name)
			require.NoError(t, err)
			protoc = append(protoc, name)
		}
		require.Equal(t, string(embedded), string(served), name)
	}
	out, err := exec.CommandContext(t.Context(), "protoc", protoc...).CombinedOutput()
	require.NoError(t, err, "protoc (package protobuf-compiler): %s", out)

	decode := exec.CommandContext(t.Context(), "protoc", "--descriptor_set_in="+filepath.Join(directory, descriptorSet), "--decode=trafficd.v1.Measurement")
	decode.Stdin = strings.NewReader("\x12\x02D1\x22\x02\x08\x05")
	out, err = decode.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, "detector_code: \"D1\"\ntimestamp_from {\n  seconds: 5\n}\n", string(out))
}

func TestSchemaResponses(t *testing.T) {
	t.Parallel()
	d := newProcess(t).start()
	d.Await(http.StatusOK)
	url := "http://" + d.API + schemasPath + "trafficd/v1/forecast.proto"
	response, text := withoutKey(t, http.MethodGet, url)
	etag := response.Header.Get("ETag")
	require.NotEmpty(t, etag)
	require.Equal(t, "public, no-cache", response.Header.Get("Cache-Control"))
	require.Equal(t, "text/plain; charset=utf-8", response.Header.Get("Content-Type"))
	require.NotEmpty(t, response.Header.Get("Trace-Id"))
	require.EqualValues(t, len(text), response.ContentLength)

	head, body := withoutKey(t, http.MethodHead, url)
	require.Equal(t, response.ContentLength, head.ContentLength)
	require.Empty(t, body)

	f := func(status int, method, tag string) {
		t.Helper()
		response, body := withoutKey(t, method, url, "If-None-Match", tag)
		require.Equal(t, status, response.StatusCode)
		if status == http.StatusNotModified {
			require.Empty(t, body)
			require.Equal(t, etag, response.Header.Get("ETag"))
		}
	}
	f(http.StatusNotModified, http.MethodGet, etag)
	f(http.StatusNotModified, http.MethodGet, `"other", W/`+etag)
	f(http.StatusNotModified, http.MethodGet, "*")
	f(http.StatusOK, http.MethodGet, `"other"`)
	f(http.StatusMethodNotAllowed, http.MethodPost, etag)
	response, body = withoutKey(t, http.MethodGet, url+".bak")
	require.Equal(t, http.StatusNotFound, response.StatusCode)
	require.Equal(t, `</docs>; rel="service-doc"`, response.Header.Get("Link"))
	require.Contains(t, body, "; /docs describes the paths")
	response, body = withoutKey(t, http.MethodGet, "http://"+d.API+"/")
	require.Equal(t, http.StatusOK, response.StatusCode)
	require.Contains(t, body, `<a href="docs">`)
}

// TestRoutesAreDocumented checks that the OpenAPI document describes the methods of each route,
// and which need no key, and that contract 6.5 lists the route.
func TestRoutesAreDocumented(t *testing.T) {
	var document struct {
		Paths map[string]map[string]struct{ Security []any }
	}
	require.NoError(t, yaml.Unmarshal(openapi.Document, &document))
	text, err := os.ReadFile("../../schemas/contract/contract.md")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(text), "\n### 6.5 ")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n### ")
	keys, err := api.OpenKeyring(api.DefaultConfig(), zerolog.Nop())
	require.NoError(t, err)
	defer keys.Close()
	for _, r := range (&daemon{cfg: &config.Config{}, keys: keys}).routes() {
		if strings.HasPrefix(r.Path, docsPath) {
			continue // the document itself, as a page
		}
		name := path.Base(r.Path)
		listed := strings.Contains(table, " "+r.Path+" ") || strings.Contains(table, r.Path+",") || strings.Contains(table, ", "+name)
		require.True(t, listed, "%s is not in contract 6.5", r.Path)
		documented := r.Path
		if slices.Contains(xroute.SchemaNames(), name) {
			documented = path.Join(path.Dir(r.Path), "{schema}")
		}
		for _, method := range r.Methods {
			if method == http.MethodHead {
				continue // like GET
			}
			operation, ok := document.Paths[documented][strings.ToLower(method)]
			require.True(t, ok, "%s %s is not in the OpenAPI document", method, r.Path)
			open := operation.Security != nil && len(operation.Security) == 0
			require.Equal(t, slices.Contains(r.Open, method), open, "security of %s %s", method, r.Path)
		}
	}
}
