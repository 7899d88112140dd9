package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"trafficd/cmd/dev/needs"
	"trafficd/cmd/internal/ops"
)

// TestDiskFull checks that while the disk is full, batches get 503 and the readiness check reports
// why, even across kills and restarts, and deliveries continue. Once there is space, batches are
// accepted again. Batches that got a 207 are in both stores once; those that got a 503 are in
// neither.
func TestDiskFull(t *testing.T) {
	needs.Everything(t, "the right to mount a disk")
	if !mayMount(t) {
		inNamespace(t)
		return
	}
	f := func(name string, minFree int64, wantReason string) {
		t.Run(name, func(t *testing.T) {
			d, c, k := onRealStores(t)
			disk := mountDisk(t, 48<<20)
			journal := filepath.Join(disk.dir, "journal")
			d.Set("journal.dir="+journal, "journal.max_bytes=160MiB", fmt.Sprint("journal.min_free_bytes=", minFree))
			d.start().Await(http.StatusOK)

			const size = 500
			var promised ledger
			batch := 0
			for range 2 {
				d.sendSome(&promised, &batch, size)
				d.awaitDelivered()
				d.awaitDeletion(journal)
				require.NoError(t, c.Pause())
				require.NoError(t, k.Pause())
				d.sendSome(&promised, &batch, size)
				disk.fill(minFree)
				if minFree > 0 {
					d.Await(http.StatusServiceUnavailable)
				}
				d.requireNoSpace(d.fillDisk(&promised, &batch, size), wantReason)
				d.killAndStart(func() {})
				require.NoError(t, c.Resume())
				require.NoError(t, k.Resume())
				d.awaitDelivered()
				disk.free()

				d.sendSome(&promised, &batch, size)
				d.killAndStart(func() { disk.fill(minFree) })
				d.awaitDelivered()
				d.awaitDeletion(journal)  // what is delivered makes room
				d.killAndStart(func() {}) // so do the deleted segments that the journal has kept for reuse
				require.NoError(t, c.Pause())
				require.NoError(t, k.Pause())
				d.requireNoSpace(d.fillDisk(&promised, &batch, size), wantReason)
				require.NoError(t, c.Resume())
				require.NoError(t, k.Resume())
				disk.free()
			}
			d.sendSome(&promised, &batch, size)
			d.awaitDelivered()
			promised.Check(t, c, k)
			t.Logf("%d batches were rejected", batch-promised.Len())
		})
	}
	f("no space", 0, "no space left on device")
	f("low", 8<<20, "the journal's disk is low on space")
}

// TestDiskLow checks that a disk smaller than min_free_bytes counts as low on space from the
// start.
func TestDiskLow(t *testing.T) {
	t.Parallel()
	d := newProcess(t)
	settings := d.Args
	d.Set("journal.min_free_bytes=1000000000000000000")
	d.start()
	var r ops.Readiness
	d.Eventually(func() bool { _, r = d.Readiness(); return r.Components["daemon"].State == ops.OK }, "started")
	require.Regexp(t, `the journal's disk is low on space; free some, or lower min_free_bytes and restart trafficd: `+filepath.Join(d.Dir, "journal")+
		` has \d+ bytes free, min_free_bytes is 1000000000000000000,`, strings.Join(r.Components["journal"].Reasons, " "))
	rejected := d.send(0, 10).response
	requireRetryAfter(t, rejected)
	require.NotContains(t, rejected.Description, "/", "clients do not see paths")
	out, err := exec.Command(binary, append(d.Args, "--check-config=deep")...).CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "journal.min_free_bytes: the journal's disk is low on space")
	d.Terminate()

	d.Args = settings
	d.start().Await(http.StatusOK)
	require.Equal(t, 10, d.send(0, 10).Accepted)
}

// killAndStart kills the daemon, calls meanwhile, and starts the daemon again; it may be unready.
func (d *process) killAndStart(meanwhile func()) {
	d.t.Helper()
	d.kill()
	meanwhile()
	d.start()
	d.Eventually(func() bool { _, r := d.Readiness(); return r.Components["daemon"].State == ops.OK }, "started")
}

// awaitDeletion waits until the journal in dir has deleted everything that it can. After both
// stores have everything, that takes until the idempotency store has copied the responses, which it
// does every second and which fails if the disk is full.
func (d *process) awaitDeletion(dir string) {
	d.t.Helper()
	copyErrors := func() float64 { return d.Metric("trafficd_pipeline_idempotency_errors_total") }
	before := copyErrors()
	d.Eventually(func() bool {
		segments, err := filepath.Glob(filepath.Join(dir, "*.seg"))
		require.NoError(d.t, err)
		_, r := d.Readiness()
		empty := filepath.Join(dir, fmt.Sprintf("%020.0f.seg", r.Components["journal"].Detail["next_frame"]))
		segments = slices.DeleteFunc(segments, func(s string) bool { return s == empty })
		return len(segments) == 1 || copyErrors() > before
	}, "delivered segments are deleted")
}

// requireNoSpace checks that the rejection is due to a full disk, and that the readiness check
// reports it.
func (d *process) requireNoSpace(r sent, reason string) {
	d.t.Helper()
	requireRetryAfter(d.t, r.response)
	status, ready := d.Readiness()
	require.Equal(d.t, http.StatusServiceUnavailable, status)
	require.Equal(d.t, ops.NotReady, ready.Components["journal"].State)
	require.Contains(d.t, strings.Join(ready.Components["journal"].Reasons, " "), reason)
}

// sendSome sends new batches until 20 are accepted. It does not send a rejected batch again.
func (d *process) sendSome(promised *ledger, next *int, size int) {
	d.t.Helper()
	for range 20 {
		var r sent
		d.Eventually(func() bool {
			r = d.send(*next, size)
			*next++
			return r.Status == http.StatusMultiStatus
		}, "batches are accepted")
		promised.Add(d.t, r.batch, r.response)
	}
}

// fillDisk sends batches until ten are rejected. No batch may be accepted after a rejected one.
func (d *process) fillDisk(promised *ledger, next *int, size int) (r sent) {
	d.t.Helper()
	for rejections := 0; rejections < 10; *next++ {
		r = d.send(*next, size)
		if r.Status == http.StatusMultiStatus {
			require.Zero(d.t, rejections, "a batch was accepted although the disk is full")
			promised.Add(d.t, r.batch, r.response)
			continue
		}
		requireRetryAfter(d.t, r.response)
		rejections++
	}
	return r
}

// disk is a small separate disk.
type disk struct {
	t   *testing.T
	dir string
}

// mayMount reports whether this user may mount a disk.
func mayMount(t *testing.T) bool {
	t.Helper()
	dir := t.TempDir()
	err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4096")
	if errors.Is(err, unix.EPERM) {
		return false
	}
	require.NoError(t, err)
	require.NoError(t, unix.Unmount(dir, 0))
	return true
}

// inNamespace runs the test again as root of new user and mount namespaces.
func inNamespace(t *testing.T) {
	t.Helper()
	const inside = "TRAFFICD_TEST_IN_NAMESPACE"
	require.Empty(t, os.Getenv(inside), "cannot mount in a user namespace either: run this test as root")
	again := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	again.Env = append(os.Environ(), inside+"=yes")
	again.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := again.CombinedOutput()
	t.Logf("%s", out)
	require.NoError(t, err, "cannot mount a small disk: run this test as root, or allow user namespaces (sysctl user.max_user_namespaces, kernel.apparmor_restrict_unprivileged_userns)")
}

// mountDisk mounts a disk in memory until the end of the test.
func mountDisk(t *testing.T, bytes int64) *disk {
	t.Helper()
	d := &disk{t, t.TempDir()}
	require.NoError(t, unix.Mount("tmpfs", d.dir, "tmpfs", 0, fmt.Sprint("size=", bytes)))
	t.Cleanup(func() { require.NoError(t, unix.Unmount(d.dir, unix.MNT_DETACH)) })
	return d
}

func (d *disk) ballast() string { return filepath.Join(d.dir, "ballast") }

// fill uses the free space up to slightly less than the given number of bytes.
func (d *disk) fill(leave int64) {
	d.t.Helper()
	require.NoError(d.t, os.WriteFile(d.ballast(), nil, 0o600))
	for { // the daemon writes too
		var st unix.Statfs_t
		require.NoError(d.t, unix.Statfs(d.dir, &st))
		surplus := int64(st.Bavail)*st.Bsize - leave
		if surplus < 0 || surplus == 0 && leave == 0 {
			return
		}
		f, err := os.OpenFile(d.ballast(), os.O_APPEND|os.O_WRONLY, 0)
		require.NoError(d.t, err)
		_, err = f.Write(make([]byte, max(surplus, 4096)))
		if err = errors.Join(err, f.Close()); !errors.Is(err, unix.ENOSPC) { // the daemon was faster
			require.NoError(d.t, err)
		}
	}
}

func (d *disk) free() {
	d.t.Helper()
	require.NoError(d.t, os.Remove(d.ballast()))
}
