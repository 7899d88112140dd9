package journal

import (
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

var (
	errPower  = errors.New("power is off")
	errFaulty = errors.New("disk error")
)

// memFS is an in-memory file system that can crash. It models the worst behaviour of real disks and
// kernels:
//   - after a power loss, each unsynced sector, file size and directory entry is randomly kept or
//     lost;
//   - a failed sync writes a random part of the dirty sectors and marks all of them clean, so a
//     later sync ignores them;
//   - truncating a file to its current size has no effect, and Datasync does not persist a smaller
//     size.
type memFS struct {
	mu     sync.Mutex
	rng    *rand.Rand
	cache  map[string]*memFile // directory entries as a process sees them
	disk   map[string]*memFile // directory entries that were synced
	budget int                 // remaining changes until the power fails; negative: unlimited
	off    bool
	fault  func(op, path string) bool // whether a call fails; ops: write, sync, truncate, syncdir, create, open, rename, remove
	locked map[string]bool
	free   int64
	// capacity is the maximum total size of all files; 0: unlimited.
	capacity int64
	gate     func(path string) // called before each sync, without the lock; nil for none
}

const sectorBytes = 512

type sector = [sectorBytes]byte // immutable once stored; an absent sector is all zeros

type memFile struct {
	cache, disk         map[int64]*sector
	cacheSize, diskSize int64
	dirty               map[int64]bool
	sizeDirty           bool
}

func newMemFS(seed uint64) *memFS {
	return &memFS{
		rng:   rand.New(rand.NewPCG(seed, 1)),
		cache: map[string]*memFile{}, disk: map[string]*memFile{}, locked: map[string]bool{},
		budget: -1, free: 1 << 40,
	}
}

// crash invalidates all open files and returns the file system after a restart. If power is lost,
// unsynced changes may be lost; otherwise (kill -9) the kernel keeps all changes, synced or not.
func (fs *memFS) crash(powerLost bool) *memFS {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.off = true
	next := newMemFS(fs.rng.Uint64())
	next.cache, next.disk, next.free = fs.cache, fs.disk, fs.free
	if !powerLost {
		return next
	}
	next.cache, next.disk = map[string]*memFile{}, map[string]*memFile{}
	survivors := map[*memFile]*memFile{}
	for _, name := range fs.allNames() {
		file := fs.disk[name]
		if fs.rng.IntN(2) == 0 {
			file = fs.cache[name]
		}
		if file == nil {
			continue
		}
		if survivors[file] == nil {
			survivors[file] = file.afterPowerLoss(fs.rng)
		}
		next.cache[name], next.disk[name] = survivors[file], survivors[file]
	}
	return next
}

func (fs *memFS) allNames() []string {
	var names []string
	for name := range fs.cache {
		names = append(names, name)
	}
	for name := range fs.disk {
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (f *memFile) afterPowerLoss(rng *rand.Rand) *memFile {
	f.writeBack(rng)
	after := &memFile{cache: map[int64]*sector{}, disk: map[int64]*sector{}, dirty: map[int64]bool{}}
	for i, s := range f.disk {
		after.disk[i], after.cache[i] = s, s
	}
	after.cacheSize, after.diskSize = f.diskSize, f.diskSize
	return after
}

// writeBack writes a random part of the dirty sectors to the disk, and marks all of them clean.
func (f *memFile) writeBack(rng *rand.Rand) {
	share := rng.IntN(5) // 0: nothing, 4: everything
	for i := range f.dirty {
		if rng.IntN(4) < share {
			f.flushSector(i)
		}
	}
	if f.sizeDirty && rng.IntN(4) < share {
		if grown := f.cacheSize - f.diskSize; grown > 0 && rng.IntN(4) == 0 {
			f.diskSize += rng.Int64N(grown)
		} else {
			f.diskSize = f.cacheSize
		}
	}
	f.trim()
	f.dirty, f.sizeDirty = map[int64]bool{}, false
}

func (f *memFile) flushSector(i int64) {
	if s := f.cache[i]; s != nil {
		f.disk[i] = s
	} else {
		delete(f.disk, i)
	}
}

// trim drops the sectors on disk that are past the end of the file, and clears the rest of the last
// one.
func (f *memFile) trim() {
	for i, s := range f.disk {
		from := i * sectorBytes
		if from >= f.diskSize {
			delete(f.disk, i)
		} else if from+sectorBytes > f.diskSize {
			cut := *s
			clear(cut[f.diskSize-from:])
			f.disk[i] = &cut
		}
	}
}

func (f *memFile) sync(all bool) {
	for i := range f.dirty {
		f.flushSector(i)
	}
	if f.sizeDirty && (all || f.cacheSize > f.diskSize) {
		f.diskSize, f.sizeDirty = f.cacheSize, false
		f.trim()
	}
	f.dirty = map[int64]bool{}
}

func (f *memFile) writeAt(p []byte, off int64) {
	if end := off + int64(len(p)); end > f.cacheSize {
		f.setSize(end)
	}
	for len(p) > 0 {
		i := off / sectorBytes
		var s sector
		if old := f.cache[i]; old != nil {
			s = *old
		}
		n := copy(s[off%sectorBytes:], p)
		if s == (sector{}) {
			delete(f.cache, i)
		} else {
			f.cache[i] = &s
		}
		f.dirty[i] = true
		p, off = p[n:], off+int64(n)
	}
}

func (f *memFile) setSize(size int64) {
	if size == f.cacheSize {
		return
	}
	for i, s := range f.cache {
		from := i * sectorBytes
		if from >= size {
			delete(f.cache, i)
			f.dirty[i] = true
		} else if from+sectorBytes > size {
			cut := *s
			clear(cut[size-from:])
			f.cache[i], f.dirty[i] = &cut, true
		}
	}
	// Truncated sectors read as zeros if the file grows again.
	for i := size / sectorBytes; i*sectorBytes < f.cacheSize; i++ {
		f.dirty[i] = true
	}
	f.cacheSize, f.sizeDirty = size, true
}

func (f *memFile) readAt(p []byte, off int64) (int, error) {
	n := int(max(0, min(int64(len(p)), f.cacheSize-off)))
	for done := 0; done < n; {
		at := off + int64(done)
		var s sector
		if c := f.cache[at/sectorBytes]; c != nil {
			s = *c
		}
		done += copy(p[done:n], s[at%sectorBytes:])
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// change is called before every change and returns the injected error, if any.
func (fs *memFS) change(op, path string) error {
	if fs.off {
		return errPower
	}
	if fs.budget == 0 {
		fs.off = true
		return errPower
	}
	fs.budget--
	if fs.fault != nil && fs.fault(op, filepath.Base(path)) {
		return errFaulty
	}
	return nil
}

func (fs *memFS) MkdirAll(string) error { return nil }

func (fs *memFS) Lock(path string) (io.Closer, error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.locked[path] {
		return nil, ErrLocked
	}
	fs.locked[path] = true
	return closerFunc(func() error {
		fs.mu.Lock()
		defer fs.mu.Unlock()
		fs.locked[path] = false
		return nil
	}), nil
}

type closerFunc func() error

func (f closerFunc) Close() error { return f() }

func (fs *memFS) List(dir string) ([]string, error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	var names []string
	for path := range fs.cache {
		if filepath.Dir(path) == filepath.Clean(dir) {
			names = append(names, filepath.Base(path))
		}
	}
	slices.Sort(names)
	return names, nil
}

func (fs *memFS) Open(path string, flag int) (File, error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	file := fs.cache[path]
	if flag&os.O_CREATE != 0 {
		if err := fs.change("create", path); err != nil {
			return nil, err
		}
		file = &memFile{cache: map[int64]*sector{}, disk: map[int64]*sector{}, dirty: map[int64]bool{}}
		fs.cache[path] = file
	}
	if file == nil {
		return nil, os.ErrNotExist
	}
	if flag&os.O_CREATE == 0 && fs.fault != nil && fs.fault("open", filepath.Base(path)) { // not a change
		return nil, errFaulty
	}
	return &memHandle{fs: fs, file: file, path: path}, nil
}

func (fs *memFS) Rename(from, to string) error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if err := fs.change("rename", to); err != nil {
		return err
	}
	if fs.cache[from] == nil {
		return os.ErrNotExist
	}
	fs.cache[to] = fs.cache[from]
	delete(fs.cache, from)
	return nil
}

func (fs *memFS) Remove(path string) error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if err := fs.change("remove", path); err != nil {
		return err
	}
	if fs.cache[path] == nil {
		return os.ErrNotExist
	}
	delete(fs.cache, path)
	return nil
}

func (fs *memFS) SyncDir(dir string) error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if err := fs.change("syncdir", dir); err != nil {
		return err
	}
	fs.disk = map[string]*memFile{}
	for name, f := range fs.cache {
		fs.disk[name] = f
	}
	return nil
}

func (h *memHandle) Free() (int64, error) { return h.fs.available(), nil }

func (fs *memFS) available() int64 {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.capacity > 0 {
		return fs.capacity - fs.used()
	}
	return fs.free
}

func (fs *memFS) used() (sum int64) {
	for _, f := range fs.cache {
		sum += f.cacheSize
	}
	return sum
}

func (fs *memFS) setFree(n int64) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.free = n
}

// setFault sets the function that injects errors; nil for none.
func (fs *memFS) setFault(f func(op, path string) bool) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.fault = f
}

// failOnce makes the next call of op fail.
func (fs *memFS) failOnce(op string) {
	failed := false
	fs.setFault(func(name, _ string) bool {
		fails := !failed && name == op
		failed = failed || fails
		return fails
	})
}

func (fs *memFS) syncGate() func(path string) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return fs.gate
}

func (fs *memFS) setGate(gate func(path string)) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.gate = gate
}

// bytes returns the contents of a file as a process sees them, or nil if there is no such file.
func (fs *memFS) bytes(path string) []byte {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f := fs.cache[path]
	if f == nil {
		return nil
	}
	b := make([]byte, f.cacheSize)
	_, _ = f.readAt(b, 0)
	return b
}

// put stores a durable file with the given contents.
func (fs *memFS) put(path string, b []byte) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f := &memFile{cache: map[int64]*sector{}, disk: map[int64]*sector{}, dirty: map[int64]bool{}}
	f.writeAt(b, 0)
	f.sync(true)
	fs.cache[path], fs.disk[path] = f, f
}

func (fs *memFS) clone() *memFS {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	c := newMemFS(1)
	for name, f := range fs.cache {
		b := make([]byte, f.cacheSize)
		_, _ = f.readAt(b, 0)
		c.put(name, b)
	}
	return c
}

type memHandle struct {
	fs   *memFS
	file *memFile
	path string
}

func (h *memHandle) ReadAt(p []byte, off int64) (int, error) {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if h.fs.off {
		return 0, errPower
	}
	return h.file.readAt(p, off)
}

// WriteAt writes a random prefix of p if it fails.
func (h *memHandle) WriteAt(p []byte, off int64) (int, error) {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	wasOff := h.fs.off
	err := h.fs.change("write", h.path)
	if grown := off + int64(len(p)) - h.file.cacheSize; err == nil && h.fs.capacity > 0 && h.fs.used()+max(0, grown) > h.fs.capacity {
		err = unix.ENOSPC
	}
	if err == nil {
		h.file.writeAt(p, off)
		return len(p), nil
	}
	if wasOff {
		return 0, err
	}
	n := h.fs.rng.IntN(len(p) + 1)
	h.file.writeAt(p[:n], off)
	return n, err
}

func (h *memHandle) Truncate(size int64) error {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if err := h.fs.change("truncate", h.path); err != nil {
		return err
	}
	h.file.setSize(size)
	return nil
}

func (h *memHandle) Reserve(int64) error { return errFaulty } // not every file system supports it

func (h *memHandle) Sync() error     { return h.sync(true) }
func (h *memHandle) Datasync() error { return h.sync(false) }

func (h *memHandle) sync(all bool) error {
	if gate := h.fs.syncGate(); gate != nil {
		gate(filepath.Base(h.path))
	}
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	wasOff := h.fs.off
	err := h.fs.change("sync", h.path)
	if err == nil {
		h.file.sync(all)
	} else if !wasOff && errors.Is(err, errFaulty) {
		h.file.writeBack(h.fs.rng)
	}
	return err
}

func (h *memHandle) Size() (int64, error) {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	return h.file.cacheSize, nil
}

func (h *memHandle) Close() error { return nil }
