package journal

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/pipeline/lib/durable"
)

// killedChildDir is the environment variable that makes the test binary run killedChild in the
// given directory.
const killedChildDir = "JOURNAL_TEST_KILLED_CHILD_DIR"

// TestKill9 kills processes that write to a real disk: the journal must contain every frame that
// they reported as acknowledged.
func TestKill9(t *testing.T) {
	cfg := testConfig()
	cfg.Dir = t.TempDir()
	acknowledged := uint64(0)
	for round := range uint64(6) {
		acknowledged = killAfter(t, cfg.Dir, acknowledged+20+round*17)
		j := mustOpen(t, cfg, osFS{})
		frames := readAll(t, j)
		require.GreaterOrEqual(t, uint64(len(frames)), acknowledged)
		for i, frame := range frames {
			require.Equal(t, payload(uint64(i)+1, len(frame)), frame)
		}
		acknowledged = uint64(len(frames)) // without consumers nothing is deleted
		require.NoError(t, j.Close())
	}
}

// killAfter starts a child, kills it once it has reported frame seq, and returns the last frame
// reported.
func killAfter(t *testing.T, dir string, seq uint64) (newest uint64) {
	t.Helper()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), killedChildDir+"="+dir)
	child.Stderr = os.Stderr
	in, err := child.StdinPipe() // closed when this process dies
	require.NoError(t, err)
	defer in.Close()
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		newest, err = strconv.ParseUint(lines.Text(), 10, 64)
		require.NoError(t, err)
		if newest == seq {
			require.NoError(t, child.Process.Kill())
		}
	}
	require.ErrorContains(t, child.Wait(), "killed")
	require.GreaterOrEqual(t, newest, seq)
	return newest
}

// killedChild writes frames and reports each acknowledged one, until it is killed. It writes no
// more than fits into the journal, however late that is.
func killedChild(dir string) {
	cfg := testConfig()
	cfg.Dir, cfg.MaxBytes, cfg.MinFreeBytes = dir, 64<<20, 0 // others use the disk, too
	j, err := Open(cfg, nil)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	var entries [3]durable.Entry
	for range 700 {
		for i := range entries {
			_, next := j.Bounds()
			seq := next + uint64(i)
			entries[i].Data = payload(seq, 8+int(seq*37%3000))
		}
		for i := range entries {
			err = j.Enqueue(&entries[i])
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		}
		for i := range entries {
			if err := entries[i].Wait(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			fmt.Println(entries[i].Seq)
		}
	}
	_, _ = os.Stdin.Read(make([]byte, 1))
}
