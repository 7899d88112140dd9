package main

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"strings"

	"github.com/valyala/fasthttp"

	"trafficd/schemas/contract"
	"trafficd/schemas/openapi"
	"trafficd/schemas/proto"
	"trafficd/sources/api"
)

// schemasPath is where the descriptions of the interfaces stand, for everybody to
// read. The protobuf definitions below it have the paths by which they import
// each other, so that what is downloaded side by side compiles.
const schemasPath = "/schemas/"

// schemaMethods need no key: a schema is no secret, and tools that fetch one have none.
var schemaMethods = []string{fasthttp.MethodGet, fasthttp.MethodHead}

// schemaRoutes has a route for each schema, and one for their list.
func schemaRoutes() []api.Route {
	var list strings.Builder
	var routes []api.Route
	add := func(name, mediaType string, content []byte) {
		routes = append(routes, api.Route{
			Path: schemasPath + name, Methods: schemaMethods, Open: schemaMethods, Endpoint: newSchema(mediaType, content),
		})
		if name != "" {
			fmt.Fprintln(&list, name)
		}
	}
	add("openapi.yaml", "application/yaml", openapi.Document)
	for _, name := range protoFiles() {
		content, _ := proto.Files.ReadFile(name) // it was listed
		add(name, "text/plain; charset=utf-8", content)
	}
	add("", "text/plain; charset=utf-8", []byte(list.String()))
	return routes
}

// protoFiles names what is embedded.
func protoFiles() []string {
	var names []string
	_ = fs.WalkDir(proto.Files, ".", func(path string, d fs.DirEntry, err error) error { // in memory: it cannot fail
		if err == nil && !d.IsDir() {
			names = append(names, path)
		}
		return err
	})
	return names
}

// schema is an endpoint that gives one text, which is the same as long as the
// daemon runs.
type schema struct {
	mediaType string
	etag      string
	content   []byte
}

func newSchema(mediaType string, content []byte) *schema {
	digest := sha256.Sum256(content)
	return &schema{mediaType, fmt.Sprintf("%q", fmt.Sprintf("%x", digest[:8])), content}
}

// Admit implements api.Endpoint.
func (s *schema) Admit(*contract.Client, *fasthttp.RequestHeader) (release func(), apiErr *contract.APIError) {
	return nil, nil
}

// Handle implements api.Endpoint. A cache may keep the text, but asks each time: it
// changes with the daemon's version, and the answer is most often a 304.
func (s *schema) Handle(_ *contract.Client, ctx *fasthttp.RequestCtx) (items int, err error) {
	h := &ctx.Response.Header
	h.Set(fasthttp.HeaderETag, s.etag)
	h.Set(fasthttp.HeaderCacheControl, "public, no-cache")
	if known := string(ctx.Request.Header.Peek(fasthttp.HeaderIfNoneMatch)); known == "*" || strings.Contains(known, s.etag) {
		ctx.SetStatusCode(fasthttp.StatusNotModified)
		return 0, nil
	}
	ctx.SetContentType(s.mediaType)
	ctx.Response.SetBodyRaw(s.content)
	return 0, nil
}
