package conf

import (
	"errors"
	"io"
	"os"
	"slices"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/term"

	"trafficd/pipeline/lib/settings"
)

// Log holds the logging settings.
type Log struct {
	Level  string `setting:"level"`  // minimum severity that is logged
	Format string `setting:"format"` // format of the log lines
}

// Validate reports every invalid setting.
func (l Log) Validate() error {
	return errors.Join(
		settings.Check(slices.Contains([]string{"debug", "info", "warn", "error"}, l.Level),
			"level is %q, must be debug (one line per batch), info, warn or error", l.Level),
		settings.Check(slices.Contains([]string{"auto", "json", "console"}, l.Format),
			"format is %q, must be auto (console on a terminal, else json), json or console", l.Format),
	)
}

// SetLevel sets the global log level. An invalid level is treated as info.
func (l Log) SetLevel() {
	level, err := zerolog.ParseLevel(l.Level)
	if err != nil {
		level = zerolog.InfoLevel
	}
	zerolog.SetGlobalLevel(level)
}

// Logger sets the level and returns a logger that writes to file. An invalid format is treated as
// json.
func (l Log) Logger(file *os.File) zerolog.Logger {
	l.SetLevel()
	zerolog.DurationFieldFormat = zerolog.DurationFormatString // with the unit
	var w io.Writer = file
	terminal := term.IsTerminal(int(file.Fd()))
	if l.Format == "console" || l.Format == "auto" && terminal {
		w = zerolog.ConsoleWriter{Out: file, TimeFormat: time.TimeOnly, NoColor: !terminal || os.Getenv("NO_COLOR") != ""}
	}
	return zerolog.New(w).With().Timestamp().Logger()
}
