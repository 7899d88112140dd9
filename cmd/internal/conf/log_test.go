package conf

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestLogDuration checks that durations in the log have a unit.
func TestLogDuration(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	file, err := os.Create(path)
	require.NoError(t, err)
	defer file.Close()
	log := Log{Level: "info", Format: "json"}.Logger(file)
	log.Info().Dur("took", 5207*time.Millisecond).Msg("stopped")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Contains(t, string(text), `"took":"5.207s"`)
}
