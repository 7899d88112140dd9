package api

import (
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// settle is for how long a file has to be left alone before it is read: editors
// and copies write in several steps.
const settle = 50 * time.Millisecond

// pollEvery bounds how late a change is seen that no event tells of: network file
// systems, or a folder that was itself replaced.
const pollEvery = 15 * time.Second

// maxLinks is where a chain of symbolic links is taken for a loop.
const maxLinks = 32

// watcher calls changed, never twice at a time, when a file may have changed.
// It watches the folders, not the file: a rename puts another file in its place,
// and a mounted secret swaps a link further along the way.
type watcher struct {
	events  *fsnotify.Watcher
	path    string
	poll    time.Duration
	changed func()
	stop    chan struct{}
	done    chan struct{}
}

// watchFile starts the watching, and looks every poll without being told of anything;
// close ends it and waits.
func watchFile(path string, poll time.Duration, changed func()) (*watcher, error) {
	events, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	w := &watcher{events: events, path: path, poll: poll, changed: changed, stop: make(chan struct{}), done: make(chan struct{})}
	w.follow()
	go w.run()
	return w, nil
}

func (w *watcher) close() {
	close(w.stop)
	<-w.done
	_ = w.events.Close()
}

func (w *watcher) run() {
	defer close(w.done)
	poll := time.NewTicker(w.poll)
	defer poll.Stop()
	quiet := time.NewTimer(0) // something may have changed before the watching began
	defer quiet.Stop()
	for {
		select {
		case <-w.stop:
			return
		case <-w.events.Events:
			quiet.Reset(settle)
		case err := <-w.events.Errors:
			if err != nil { // events were lost
				quiet.Reset(settle)
			}
		case <-quiet.C:
			w.follow()
			w.changed()
		case <-poll.C:
			w.follow()
			w.changed()
		}
	}
}

// follow watches the folder of every link on the way to the file, and the file's
// own. To watch a folder again does nothing; one that went away drops out by itself.
func (w *watcher) follow() {
	path, err := filepath.Abs(w.path)
	if err != nil {
		return
	}
	for range maxLinks {
		link, target := firstLink(path)
		if link == "" {
			break
		}
		_ = w.events.Add(filepath.Dir(link))
		path = target
	}
	_ = w.events.Add(filepath.Dir(path)) // if it is missing, that is the poll's business
}

// firstLink finds the first symbolic link among an absolute path's parts, and gives
// the path that it leads to.
func firstLink(path string) (link, target string) {
	for end := 1; end <= len(path); end++ {
		if end < len(path) && path[end] != filepath.Separator {
			continue
		}
		to, err := os.Readlink(path[:end])
		if err != nil {
			continue
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(path[:end]), to)
		}
		return path[:end], filepath.Join(to, path[end:])
	}
	return "", ""
}
