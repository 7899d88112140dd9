// Package crashfs is an in-memory file system that can crash.
package crashfs

import (
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// The errors of an FS.
var (
	ErrPower  = errors.New("power is off")
	ErrFaulty = errors.New("disk error")
	ErrLocked = errors.New("locked")
)

// FS is an in-memory file system that can crash. It models the worst behaviour of real disks and
// kernels:
//   - after a power loss, each unsynced sector, file size and directory entry is randomly kept or
//     lost;
//   - a failed sync writes a random part of the dirty sectors and marks all of them clean, so a
//     later sync ignores them;
//   - truncating a file to its current size has no effect, and Datasync does not persist a smaller
//     size.
type FS struct {
	mu     sync.Mutex
	rng    *rand.Rand
	cache  map[string]*inode // directory entries as a process sees them
	disk   map[string]*inode // directory entries that were synced
	Budget int               // remaining changes until the power fails; negative: unlimited
	off    bool
	fault  func(op, path string) bool // whether a call fails; ops: write, sync, truncate, syncdir, create, open, rename, remove
	locked map[string]bool
	free   int64
	// Capacity is the maximum total size of all files; 0: unlimited.
	Capacity int64
	gate     func(path string) // called before each sync, without the lock; nil for none
}

const sectorBytes = 512

type sector = [sectorBytes]byte // immutable once stored; an absent sector is all zeros

type inode struct {
	cache, disk         map[int64]*sector
	cacheSize, diskSize int64
	dirty               map[int64]bool
	sizeDirty           bool
}

// New returns an empty file system. The seed determines what its crashes lose.
func New(seed uint64) *FS {
	return &FS{
		rng:   rand.New(rand.NewPCG(seed, 1)),
		cache: map[string]*inode{}, disk: map[string]*inode{}, locked: map[string]bool{},
		Budget: -1, free: 1 << 40,
	}
}

// Crash invalidates all open files and returns the file system after a restart. If power is lost,
// unsynced changes may be lost; otherwise (kill -9) the kernel keeps all changes, synced or not.
func (fs *FS) Crash(powerLost bool) *FS {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.off = true
	next := New(fs.rng.Uint64())
	next.cache, next.disk, next.free = fs.cache, fs.disk, fs.free
	if !powerLost {
		return next
	}
	next.cache, next.disk = map[string]*inode{}, map[string]*inode{}
	survivors := map[*inode]*inode{}
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

func (fs *FS) allNames() []string {
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

func (f *inode) afterPowerLoss(rng *rand.Rand) *inode {
	f.writeBack(rng)
	after := &inode{cache: map[int64]*sector{}, disk: map[int64]*sector{}, dirty: map[int64]bool{}}
	for i, s := range f.disk {
		after.disk[i], after.cache[i] = s, s
	}
	after.cacheSize, after.diskSize = f.diskSize, f.diskSize
	return after
}

// writeBack writes a random part of the dirty sectors to the disk, and marks all of them clean.
func (f *inode) writeBack(rng *rand.Rand) {
	share := rng.IntN(5)                                  // 0: nothing, 4: everything
	for _, i := range slices.Sorted(maps.Keys(f.dirty)) { // in an order that the seed determines
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

func (f *inode) flushSector(i int64) {
	if s := f.cache[i]; s != nil {
		f.disk[i] = s
	} else {
		delete(f.disk, i)
	}
}

// trim drops the sectors on disk that are past the end of the file, and clears the rest of the last
// one.
func (f *inode) trim() {
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

func (f *inode) sync(all bool) {
	for i := range f.dirty {
		f.flushSector(i)
	}
	if f.sizeDirty && (all || f.cacheSize > f.diskSize) {
		f.diskSize, f.sizeDirty = f.cacheSize, false
		f.trim()
	}
	f.dirty = map[int64]bool{}
}

func (f *inode) writeAt(p []byte, off int64) {
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

func (f *inode) setSize(size int64) {
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

func (f *inode) readAt(p []byte, off int64) (int, error) {
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
func (fs *FS) change(op, path string) error {
	if fs.off {
		return ErrPower
	}
	if fs.Budget == 0 {
		fs.off = true
		return ErrPower
	}
	fs.Budget--
	if fs.fault != nil && fs.fault(op, filepath.Base(path)) {
		return ErrFaulty
	}
	return nil
}

// MkdirAll does nothing: directories always exist.
func (fs *FS) MkdirAll(string) error { return nil }

// Lock acquires a lock, or returns ErrLocked.
func (fs *FS) Lock(path string) (io.Closer, error) {
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

// List returns the names in a directory, sorted.
func (fs *FS) List(dir string) ([]string, error) {
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

// Open opens a file with the flags of os.OpenFile.
func (fs *FS) Open(path string, flag int) (*File, error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	file := fs.cache[path]
	if flag&os.O_CREATE != 0 {
		if err := fs.change("create", path); err != nil {
			return nil, err
		}
		file = &inode{cache: map[int64]*sector{}, disk: map[int64]*sector{}, dirty: map[int64]bool{}}
		fs.cache[path] = file
	}
	if file == nil {
		return nil, os.ErrNotExist
	}
	if flag&os.O_CREATE == 0 && fs.fault != nil && fs.fault("open", filepath.Base(path)) { // not a change
		return nil, ErrFaulty
	}
	return &File{fs: fs, file: file, path: path}, nil
}

// Rename renames a file.
func (fs *FS) Rename(from, to string) error {
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

// Remove removes a file.
func (fs *FS) Remove(path string) error {
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

// SyncDir makes the names in all directories durable.
func (fs *FS) SyncDir(dir string) error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if err := fs.change("syncdir", dir); err != nil {
		return err
	}
	fs.disk = map[string]*inode{}
	for name, f := range fs.cache {
		fs.disk[name] = f
	}
	return nil
}

// Free returns the free space.
func (h *File) Free() (int64, error) { return h.fs.Available(), nil }

// Available returns the free space in bytes.
func (fs *FS) Available() int64 {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.Capacity > 0 {
		return fs.Capacity - fs.used()
	}
	return fs.free
}

// Fill lets other programs fill the disk until the given number of bytes is left; negative for an
// unlimited disk.
func (fs *FS) Fill(left int64) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.Capacity = 0; left >= 0 {
		fs.Capacity = fs.used() + left
	}
}

func (fs *FS) used() (sum int64) {
	for _, f := range fs.cache {
		sum += f.cacheSize
	}
	return sum
}

// SetFree sets the free space of a disk without a capacity.
func (fs *FS) SetFree(n int64) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.free = n
}

// SetFault sets the function that injects errors; nil for none.
func (fs *FS) SetFault(f func(op, path string) bool) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.fault = f
}

// FailOnce makes the next call of op fail.
func (fs *FS) FailOnce(op string) {
	failed := false
	fs.SetFault(func(name, _ string) bool {
		fails := !failed && name == op
		failed = failed || fails
		return fails
	})
}

func (fs *FS) syncGate() func(path string) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return fs.gate
}

// SetGate sets the function that is called before each sync; nil for none.
func (fs *FS) SetGate(gate func(path string)) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.gate = gate
}

// Bytes returns the contents of a file as a process sees them, or nil if there is no such file.
func (fs *FS) Bytes(path string) []byte {
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

// Put stores a durable file with the given contents.
func (fs *FS) Put(path string, b []byte) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f := &inode{cache: map[int64]*sector{}, disk: map[int64]*sector{}, dirty: map[int64]bool{}}
	f.writeAt(b, 0)
	f.sync(true)
	fs.cache[path], fs.disk[path] = f, f
}

// Clone returns a copy in which everything is durable.
func (fs *FS) Clone() *FS {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	c := New(1)
	for name, f := range fs.cache {
		b := make([]byte, f.cacheSize)
		_, _ = f.readAt(b, 0)
		c.Put(name, b)
	}
	return c
}

// File is an open file.
type File struct {
	fs   *FS
	file *inode
	path string
}

// ReadAt implements io.ReaderAt.
func (h *File) ReadAt(p []byte, off int64) (int, error) {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if h.fs.off {
		return 0, ErrPower
	}
	return h.file.readAt(p, off)
}

// WriteAt writes a random prefix of p if it fails.
func (h *File) WriteAt(p []byte, off int64) (int, error) {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	wasOff := h.fs.off
	err := h.fs.change("write", h.path)
	if grown := off + int64(len(p)) - h.file.cacheSize; err == nil && h.fs.Capacity > 0 && h.fs.used()+max(0, grown) > h.fs.Capacity {
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

// Truncate changes the size.
func (h *File) Truncate(size int64) error {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if err := h.fs.change("truncate", h.path); err != nil {
		return err
	}
	h.file.setSize(size)
	return nil
}

// Reserve fails: not every file system supports it.
func (h *File) Reserve(int64) error { return ErrFaulty }

// Sync makes the contents and all metadata durable.
func (h *File) Sync() error { return h.sync(true) }

// Datasync makes the contents durable, but not a smaller size.
func (h *File) Datasync() error { return h.sync(false) }

func (h *File) sync(all bool) error {
	if gate := h.fs.syncGate(); gate != nil {
		gate(filepath.Base(h.path))
	}
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	wasOff := h.fs.off
	err := h.fs.change("sync", h.path)
	if err == nil {
		h.file.sync(all)
	} else if !wasOff && errors.Is(err, ErrFaulty) {
		h.file.writeBack(h.fs.rng)
	}
	return err
}

// Size returns the size.
func (h *File) Size() (int64, error) {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	return h.file.cacheSize, nil
}

// Close does nothing.
func (h *File) Close() error { return nil }

// SetBudget makes the power fail after n more changes.
func (fs *FS) SetBudget(n int) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.Budget = n
}
