package kafka

import (
	"context"
	"crypto/sha256"
	"encoding/xml"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	deployment "trafficd/deployments/kafka"

	"trafficd/cmd/devstores/internal/cache"
	"trafficd/cmd/devstores/internal/process"
	"trafficd/cmd/devstores/internal/progress"
)

// fetchJars returns the folder with Apache Kafka's jars, which Maven copies together the first time. A changed pom is another entry.
func fetchJars(ctx context.Context, log io.Writer) (string, error) {
	name := fmt.Sprintf("kafka-%s-%x", apacheVersion(), sha256.Sum256(deployment.POM))[:len("kafka-")+len(apacheVersion())+9]
	return cache.Entry(ctx, name, log, func(dir string) error { return copyJars(ctx, dir, log) })
}

func copyJars(ctx context.Context, dir string, log io.Writer) error {
	mvn, err := exec.LookPath("mvn")
	if err != nil {
		return fmt.Errorf("cannot fetch Apache Kafka: %w; install Maven, or take the broker %s", err, KindFake)
	}
	work, err := os.MkdirTemp(dir, "mvn-")
	if err != nil {
		return fmt.Errorf("cannot fetch Apache Kafka: %w", err)
	}
	defer os.RemoveAll(work)
	pom := filepath.Join(work, "pom.xml")
	if err := os.WriteFile(pom, deployment.POM, 0o644); err != nil {
		return fmt.Errorf("cannot fetch Apache Kafka: %w", err)
	}
	meter := progress.Files(log, "fetching Apache Kafka "+apacheVersion()+" with Maven")
	said := &mavenLog{}
	cmd := exec.Command(mvn, "--batch-mode", "--strict-checksums", "--file", pom,
		"dependency:copy-dependencies", "-DoutputDirectory="+dir)
	cmd.Stdout, cmd.Stderr = said, said
	if err := process.Run(ctx, cmd, func() { meter.Set(said.files()) }); err != nil {
		return fmt.Errorf("cannot fetch Apache Kafka with Maven: %w\n%s", err, said.errors())
	}
	meter.Done()
	return nil
}

// apacheVersion is the version that the pom pins.
func apacheVersion() string {
	var pom struct {
		Version string `xml:"properties>kafka.version"`
	}
	if err := xml.Unmarshal(deployment.POM, &pom); err != nil {
		return "unknown"
	}
	return strings.TrimSpace(pom.Version)
}
