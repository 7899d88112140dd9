package cache

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"trafficd/cmd/internal/launch"
	"trafficd/cmd/internal/must"
)

// Jars returns the directory with the jars of a Java program, which Maven downloads the first time.
// A changed pom results in a new entry.
func Jars(ctx context.Context, program, version string, pom []byte, log io.Writer) (string, error) {
	name := fmt.Sprintf("%s-%s-%.4x", strings.ToLower(program), version, sha256.Sum256(pom))
	return Entry(ctx, name, log, func(dir string) (err error) {
		defer must.Return(&err, "cannot fetch "+program+" with Maven")
		mvn, err := exec.LookPath("mvn")
		if err != nil {
			return fmt.Errorf("cannot fetch %s: %w; install Maven", program, err)
		}
		work := must.Get(os.MkdirTemp(dir, "mvn-"))
		defer os.RemoveAll(work)
		file := filepath.Join(work, "pom.xml")
		must.Do(os.WriteFile(file, pom, 0o644))
		fmt.Fprintf(log, "fetching %s %s with Maven\n", program, version)
		cmd := exec.Command(mvn, "--batch-mode", "--strict-checksums", "--file", file, "dependency:copy-dependencies", "-DoutputDirectory="+dir)
		cmd.Stdout, cmd.Stderr = log, log
		must.Do(launch.Run(ctx, cmd)) // Maven has printed the reason
		return nil
	})
}
