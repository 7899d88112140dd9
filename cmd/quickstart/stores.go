package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
)

// startStores starts ClickHouse and the broker and reads their addresses. The
// ports are the usual ones where they are free.
func (q *quickstart) startStores(ctx context.Context) error {
	say("starting ClickHouse and a Kafka-protocol broker (the first time ClickHouse is fetched: 178 MB)")
	log, err := logFile(q.path("devstores.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(q.bin("devstores"), "--dir", q.path("stores"), "--broker", q.broker, "--topic", topic+":6",
		"--clickhouse-tcp", port(9000), "--clickhouse-http", port(8123), "--kafka", port(9092))
	cmd.Stderr = os.Stderr
	if q.known() { // the stores' own progress is only of interest when something is fetched
		cmd.Stderr = log
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("cannot start devstores: %w", err)
	}
	if q.stores, err = q.children.start("devstores", cmd); err != nil {
		return err
	}
	line := make(chan string, 1)
	go func() { // ends with the line or with devstores
		text, _ := bufio.NewReader(out).ReadString('\n')
		line <- text
	}()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case text := <-line:
		if err := json.Unmarshal([]byte(text), &q.addresses); err != nil {
			return fmt.Errorf("devstores did not start: see above and %s", q.short(q.path("devstores.log")))
		}
	}
	return nil
}

// known tells whether the stores have run in this folder before.
func (q *quickstart) known() bool {
	_, err := os.Stat(q.path("stores"))
	return err == nil
}

// port gives the usual port if it is free, else 0, which means any.
func port(usual int) string {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", usual))
	if err != nil {
		return "0"
	}
	l.Close()
	return fmt.Sprint(usual)
}

// free gives the usual port or another one that is free now.
func free(usual int) string {
	if p := port(usual); p != "0" {
		return p
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Sprint(usual) // the daemon will say what is wrong with it
	}
	defer l.Close()
	_, p, _ := net.SplitHostPort(l.Addr().String())
	return p
}
