package watch

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/fsnotify/fsnotify"
)

// folders signals that the content behind a path may have changed. It watches folders, not the file:
// a rename over the file, and a replaced symlink anywhere on the path, change an entry of a folder.
type folders struct {
	path    string
	poke    chan struct{} // capacity 1: several changes need only one check
	watcher *fsnotify.Watcher
	running sync.WaitGroup
}

func watchFolders(path string) *folders {
	return &folders{path: path, poke: make(chan struct{}, 1)}
}

// follow watches the folders that are currently on the path to the file, and no others. If the system
// does not allow a watch, only the periodic check remains.
func (w *folders) follow() {
	if w.watcher == nil {
		watcher, err := fsnotify.NewWatcher()
		if err != nil {
			return
		}
		w.watcher = watcher
		w.running.Go(func() { w.forward(watcher) })
	}
	now := foldersTo(w.path)
	for _, folder := range now {
		_ = w.watcher.Add(folder) // the periodic check covers a missing folder
	}
	for _, folder := range w.watcher.WatchList() {
		if !slices.Contains(now, folder) {
			_ = w.watcher.Remove(folder) // it may have been deleted
		}
	}
}

// forward signals events until the watcher is closed. An error means that events were lost, so it is
// also signalled.
func (w *folders) forward(watcher *fsnotify.Watcher) {
	for {
		var ok bool
		select {
		case _, ok = <-watcher.Events:
		case _, ok = <-watcher.Errors:
		}
		if !ok {
			return
		}
		select {
		case w.poke <- struct{}{}:
		default:
		}
	}
}

func (w *folders) close() {
	if w.watcher != nil {
		_ = w.watcher.Close() // ends forward
		w.running.Wait()
	}
}

// foldersTo returns the folder of every symlink on the path, and that of the file itself.
func foldersTo(path string) []string {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil
	}
	var folders []string
	at, rest := "/", strings.Split(path, "/")
	for links := 0; len(rest) > 0; {
		next := filepath.Join(at, rest[0])
		rest = rest[1:]
		target, err := os.Readlink(next)
		if err != nil || links == 40 { // not a link, or more links than the system follows
			if len(rest) == 0 {
				folders = append(folders, at)
			}
			at = next
			continue
		}
		links++
		folders = append(folders, at)
		if filepath.IsAbs(target) {
			at = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	slices.Sort(folders)
	return slices.Compact(folders)
}
