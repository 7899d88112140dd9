package watch

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/fsnotify/fsnotify"
)

// folders pokes when the content behind a path may have changed. It watches
// folders, not the file: a rename over the file, and a swapped symlink
// anywhere on the way to it, change the entry of a folder.
type folders struct {
	path    string
	poke    chan struct{} // holds one: several changes are one reason to look
	watcher *fsnotify.Watcher
	running sync.WaitGroup
}

func watchFolders(path string) *folders {
	return &folders{path: path, poke: make(chan struct{}, 1)}
}

// follow watches the folders on today's way to the file, and those of the past
// no longer. Where the system grants no watch, the slow check remains.
func (w *folders) follow() {
	if w.watcher == nil {
		watcher, err := fsnotify.NewWatcher()
		if err != nil {
			return
		}
		w.watcher = watcher
		w.running.Go(func() { w.forward(watcher) })
	}
	today := foldersTo(w.path)
	for _, folder := range today {
		_ = w.watcher.Add(folder) // a folder that is not there is met by the slow check
	}
	for _, folder := range w.watcher.WatchList() {
		if !slices.Contains(today, folder) {
			_ = w.watcher.Remove(folder) // it may have gone by itself
		}
	}
}

// forward ends when the watcher is closed. An error means that events were
// lost: a reason to look as well.
func (w *folders) forward(watcher *fsnotify.Watcher) {
	for {
		select {
		case _, ok := <-watcher.Events:
			if !ok {
				return
			}
		case _, ok := <-watcher.Errors:
			if !ok {
				return
			}
		}
		select {
		case w.poke <- struct{}{}:
		default:
		}
	}
}

func (w *folders) close() {
	if w.watcher == nil {
		return
	}
	_ = w.watcher.Close() // ends forward
	w.running.Wait()
}

// foldersTo lists the folder of each symlink on the way along path, and that
// of the file in the end.
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
		if err != nil || links == 40 { // no link; or a loop, as the system sees it
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
