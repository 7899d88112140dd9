package main

import (
	"context"
	"io"
	"net"
	"os"

	"github.com/rs/zerolog"
)

// notifyStep notifies systemd when the daemon starts to serve clients, and when it begins to stop
// (see sd_notify(3)). It does nothing unless a unit with Type=notify started the daemon.
func notifyStep(log zerolog.Logger) step {
	notify := func(state string) {
		path := os.Getenv("NOTIFY_SOCKET")
		if path == "" {
			return
		}
		c, err := net.Dial("unixgram", path)
		if err == nil {
			_, err = io.WriteString(c, state)
			_ = c.Close()
		}
		if err != nil {
			log.Warn().Err(err).Msg("cannot notify systemd")
		}
	}
	return step{
		"systemd notification",
		func() error { notify("READY=1"); return nil },
		func(context.Context) error { notify("STOPPING=1"); return nil },
	}
}
