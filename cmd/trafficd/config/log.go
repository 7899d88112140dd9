package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/term"
)

// Log configures the log.
type Log struct {
	Level  string `setting:"level"`  // debug, info, warn or error
	Format string `setting:"format"` // json; console, for people; auto: console on a terminal
}

// Validate reports every invalid key.
func (l Log) Validate() error {
	var errs []error
	if !slices.Contains([]string{"debug", "info", "warn", "error"}, l.Level) {
		errs = append(errs, fmt.Errorf("level is %q, must be debug (one line per batch), info, warn or error", l.Level))
	}
	if !slices.Contains([]string{"auto", "json", "console"}, l.Format) {
		errs = append(errs, fmt.Errorf("format is %q, must be auto (console on a terminal, else json), json or console", l.Format))
	}
	return errors.Join(errs...)
}

// SetLevel sets the level of all loggers; an invalid one means info.
func (l Log) SetLevel() {
	level, err := zerolog.ParseLevel(l.Level)
	if err != nil {
		level = zerolog.InfoLevel
	}
	zerolog.SetGlobalLevel(level)
}

// Logger sets the level and returns the logger that writes to file; an invalid format means json.
func (l Log) Logger(file *os.File) zerolog.Logger {
	l.SetLevel()
	var w io.Writer = file
	terminal := term.IsTerminal(int(file.Fd()))
	if l.Format == "console" || l.Format == "auto" && terminal {
		w = zerolog.ConsoleWriter{Out: file, TimeFormat: time.TimeOnly, NoColor: !terminal || os.Getenv("NO_COLOR") != ""}
	}
	return zerolog.New(w).With().Timestamp().Logger()
}
