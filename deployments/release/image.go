package main

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

const (
	// imageUser is the ID of the user "nonroot" in distroless images.
	imageUser  = 65532
	configFile = "/etc/trafficd/trafficd.yaml"
)

// writeImages writes one archive per architecture, for `docker load` and `podman load`, and an OCI
// layout archive with all architectures, for registries.
func (r *release) writeImages() error {
	tag, err := name.NewTag("trafficd:"+r.version, name.WithDefaultRegistry(""))
	if err != nil {
		return fmt.Errorf("cannot name the image: %w", err)
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range architectures {
		image, err := r.image(arch)
		if err != nil {
			return fmt.Errorf("cannot build the image for %s: %w", arch, err)
		}
		if err := tarball.WriteToFile(filepath.Join(r.out, fmt.Sprintf("trafficd-%s-image-%s.tar", r.version, arch)), tag, image); err != nil {
			return fmt.Errorf("cannot write the image for %s: %w", arch, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}},
		})
	}
	directory := filepath.Join(r.build, "oci")
	outer := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), mutate.IndexAddendum{
		Add: index, Descriptor: v1.Descriptor{Annotations: map[string]string{"org.opencontainers.image.ref.name": r.version}},
	})
	if _, err := layout.Write(directory, outer); err != nil {
		return fmt.Errorf("cannot write the OCI layout: %w", err)
	}
	entries, err := entriesOf(directory, "")
	if err != nil {
		return err
	}
	return r.create(fmt.Sprintf("trafficd-%s-image.oci.tar", r.version), func(w io.Writer) error { return writeTar(w, r.date, entries) })
}

// image returns an image with the programs and what they need: directories, a user and CA
// certificates.
func (r *release) image(arch string) (v1.Image, error) {
	settings, err := os.ReadFile(filepath.Join(r.root, "deployments/debian/trafficd.yaml"))
	if err != nil {
		return nil, err
	}
	// Within a container, the port is not reachable unless it is published.
	settings = bytes.Replace(settings, []byte("listen: 127.0.0.1:8080"), []byte("listen: 0.0.0.0:8080"), 1)
	entries := []entry{
		{name: "etc", dir: true, mode: 0o755},
		{name: "etc/ssl", dir: true, mode: 0o755},
		{name: "etc/ssl/certs", dir: true, mode: 0o755},
		{name: "etc/ssl/certs/ca-certificates.crt", content: caCertificates(), mode: 0o644},
		{name: "etc/passwd", content: fmt.Appendf(nil, "trafficd:x:%d:%[1]d::/var/lib/trafficd:/nonexistent\n", imageUser), mode: 0o644},
		{name: "etc/group", content: fmt.Appendf(nil, "trafficd:x:%d:\n", imageUser), mode: 0o644},
		{name: "etc/trafficd", dir: true, mode: 0o755},
		{name: configFile[1:], content: settings, mode: 0o644},
		{name: "etc/trafficd/keys.yaml", content: []byte("keys: []\n"), mode: 0o644},
		{name: "usr", dir: true, mode: 0o755},
		{name: "usr/bin", dir: true, mode: 0o755},
	}
	for _, name := range programs {
		entries = append(entries, entry{name: "usr/bin/" + name, source: r.program(arch, name), mode: 0o755})
	}
	entries = append(entries,
		entry{name: "usr/share", dir: true, mode: 0o755},
		entry{name: "usr/share/doc", dir: true, mode: 0o755},
		entry{name: "usr/share/doc/trafficd", dir: true, mode: 0o755},
		entry{name: "usr/share/doc/trafficd/LICENSE", source: filepath.Join(r.root, "LICENSE"), mode: 0o644},
		entry{name: "usr/share/doc/trafficd/NOTICES.txt", source: filepath.Join(r.build, "NOTICES.txt"), mode: 0o644},
		entry{name: "var", dir: true, mode: 0o755},
		entry{name: "var/lib", dir: true, mode: 0o755},
		entry{name: "var/lib/trafficd", dir: true, mode: 0o750, owner: imageUser},
	)
	var content bytes.Buffer
	if err := writeTar(&content, r.date, entries); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.Append(image, mutate.Addendum{
		Layer: layer, History: v1.History{Created: v1.Time{Time: r.date}, CreatedBy: "trafficd " + r.version},
	})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", arch, v1.Time{Time: r.date}
	config.Config = r.imageConfig()
	return mutate.ConfigFile(image, config)
}

func (r *release) imageConfig() v1.Config {
	return v1.Config{
		User:         fmt.Sprintf("%d:%[1]d", imageUser),
		Entrypoint:   []string{"/usr/bin/trafficd"},
		Cmd:          []string{"--config", configFile},
		Env:          []string{"PATH=/usr/bin"},
		WorkingDir:   "/var/lib/trafficd",
		StopSignal:   "SIGTERM",
		ExposedPorts: map[string]struct{}{"8080/tcp": {}, "8081/tcp": {}},
		Volumes:      map[string]struct{}{"/var/lib/trafficd": {}},
		Healthcheck: &v1.HealthConfig{
			Test:     []string{"CMD", "/usr/bin/trafficd", "health", "--config", configFile},
			Interval: 10 * time.Second, Timeout: 6 * time.Second, StartPeriod: 10 * time.Second, Retries: 3,
		},
		Labels: map[string]string{
			"org.opencontainers.image.title":       "trafficd",
			"org.opencontainers.image.description": "server for road traffic data",
			"org.opencontainers.image.licenses":    "Apache-2.0",
			"org.opencontainers.image.version":     r.version,
			"org.opencontainers.image.revision":    r.stamp,
			"org.opencontainers.image.created":     r.date.Format(time.RFC3339),
		},
	}
}

// caCertificates returns Mozilla's CA certificates in PEM. It omits those with additional
// constraints, because PEM cannot represent them.
func caCertificates() []byte {
	var text bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a write to memory cannot fail
		}
	}
	return text.Bytes()
}
