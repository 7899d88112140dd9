package config

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/term"
)

// Log says what is logged and in which form.
type Log struct {
	Level  string `koanf:"level"`  // debug, info, warn or error
	Format string `koanf:"format"` // json; console, for people; auto: console on a terminal
}

// DefaultLog logs what an operator has to know.
func DefaultLog() Log { return Log{Level: "info", Format: "auto"} }

// Validate names the values that there are.
func (l Log) Validate() error {
	switch l.Level {
	case "debug", "info", "warn", "error":
	default:
		return fmt.Errorf("level is %q: it is one of debug (one line per batch), info, warn, error", l.Level)
	}
	switch l.Format {
	case "auto", "json", "console":
		return nil
	}
	return fmt.Errorf("format is %q: it is one of auto (console on a terminal, else json), json, console", l.Format)
}

// Logger makes the logger that writes to file. The configuration is valid.
func (l Log) Logger(file *os.File) zerolog.Logger {
	level, err := zerolog.ParseLevel(l.Level)
	if err != nil {
		level = zerolog.InfoLevel
	}
	var w io.Writer = file
	terminal := term.IsTerminal(int(file.Fd()))
	if l.Format == "console" || l.Format == "auto" && terminal {
		w = zerolog.ConsoleWriter{Out: file, TimeFormat: time.TimeOnly, NoColor: !terminal || os.Getenv("NO_COLOR") != ""}
	}
	return zerolog.New(w).Level(level).With().Timestamp().Logger()
}
