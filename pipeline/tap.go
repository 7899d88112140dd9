package pipeline

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"trafficd/pipeline/batch"
	"trafficd/schemas/contract"
)

const (
	tapRate      = 50  // items per second for each follower
	maxFollowers = 100 // maximum number at the same time; each may scan every batch
)

// Tap lets operators follow a sample of the items of batches that got a 207. Without followers, its
// cost is one atomic load per batch. A follower that cannot keep up misses items. The zero value is
// ready to use.
type Tap struct {
	active    atomic.Int32
	mu        sync.Mutex
	followers map[*Follower]bool
}

// TapFilter selects items. Empty fields match everything.
type TapFilter struct {
	Client, Code, Detector string
	Accepted               bool // select accepted items instead of rejected ones
}

// Validate returns an error if no item can match.
func (f TapFilter) Validate() error {
	var codes []string
	for c := range contract.CodeCount {
		if c.OfItems() {
			codes = append(codes, c.String())
		}
	}
	if f.Code == "" || slices.Contains(codes, f.Code) {
		return nil
	}
	return fmt.Errorf("code %q must be one of %s", f.Code, strings.Join(codes, ", "))
}

// TapItem is an item that was accepted or rejected. Type, From, To and Value are set only for
// accepted items; times are in UTC.
type TapItem struct {
	Time     time.Time       `json:"time"`
	Client   string          `json:"client"`
	Code     string          `json:"code"` // OK if accepted
	Detector string          `json:"detector,omitempty"`
	Field    string          `json:"field,omitempty"`
	Message  json.RawMessage `json:"message,omitempty"` // description of the rejection in the 207
	Type     string          `json:"type,omitempty"`
	From     *time.Time      `json:"from,omitempty"`
	To       *time.Time      `json:"to,omitempty"`
	Value    *float64        `json:"value,omitempty"`
	Batch    string          `json:"batch"`
	Index    int             `json:"index"`
}

// Follower receives items until Stop is called.
type Follower struct {
	Items  chan TapItem
	filter TapFilter
	tap    *Tap

	second int64 // Unix time of the second that sent refers to
	sent   int   // items sent in that second
}

// Follow adds a follower. It returns nil if there are already maxFollowers.
func (t *Tap) Follow(filter TapFilter) *Follower {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.followers) == maxFollowers {
		return nil
	}
	if t.followers == nil {
		t.followers = map[*Follower]bool{}
	}
	f := &Follower{Items: make(chan TapItem, 2*tapRate), filter: filter, tap: t}
	t.followers[f] = true
	t.active.Add(1)
	return f
}

// Stop ends the subscription. It does not close Items.
func (f *Follower) Stop() {
	f.tap.mu.Lock()
	defer f.tap.mu.Unlock()
	delete(f.tap.followers, f)
	f.tap.active.Add(-1)
}

// tapped is an item for a follower.
type tapped struct {
	*Follower
	item TapItem
}

// sample returns a sample of a validated batch for the followers, to be shown once the batch is
// durable. To avoid waiting, it returns nothing if t is locked, usually by another worker.
func (t *Tap) sample(s *batch.Submission, items *batch.Items, r *batch.Result, now time.Time) (sample []tapped) {
	if !t.mu.TryLock() {
		return nil
	}
	defer t.mu.Unlock()
	_, client, _ := strings.Cut(s.Client, "\x00")
	for f := range t.followers {
		if f.filter.Client != "" && f.filter.Client != client {
			continue
		}
		left := f.left(now)
		add := func(row int, x *batch.Rejection) (more bool) {
			if left > 0 && f.wants(items, row, x) {
				sample = append(sample, tapped{f, tapItem(items, r, row, x, client, now)})
				left--
			}
			return left > 0
		}
		if !f.filter.Accepted {
			for _, x := range r.List {
				if !add(int(x.Index), &x) {
					break
				}
			}
			continue
		}
		next := 0 // index in r.List
		for row := range items.Rows() {
			if next < len(r.List) && int(r.List[next].Index) == row {
				next++
			} else if !add(row, nil) {
				break
			}
		}
	}
	return sample
}

// send sends a sample to its followers. A follower misses the items that exceed tapRate or for
// which its channel has no room.
func (t *Tap) send(sample []tapped) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, x := range sample {
		if x.left(x.item.Time) == 0 {
			continue
		}
		select {
		case x.Items <- x.item:
			x.sent++
		default:
		}
	}
}

// left returns the number of items that the follower may receive in the second of now.
func (f *Follower) left(now time.Time) int {
	if second := now.Unix(); second > f.second { // batches may become durable in another order
		f.second, f.sent = second, 0
	}
	return tapRate - f.sent
}

// wants reports whether an item matches the filter. x is its rejection, nil if it was accepted.
func (f *Follower) wants(items *batch.Items, row int, x *batch.Rejection) bool {
	return (f.filter.Detector == "" || f.filter.Detector == string(detectorOf(items, row))) &&
		(x == nil || f.filter.Code == "" || f.filter.Code == x.Code.String())
}

// detectorOf returns the detector of an item, which is empty if the item was not decoded.
func detectorOf(items *batch.Items, row int) []byte {
	if row < items.Rows() {
		return items.Code(row)
	}
	return nil
}

func tapItem(items *batch.Items, r *batch.Result, row int, x *batch.Rejection, client string, now time.Time) TapItem {
	item := TapItem{
		Time: now.UTC(), Client: client, Code: contract.OK.String(), Detector: contract.Echo(detectorOf(items, row)),
		Batch: r.ID.String(), Index: row,
	}
	if x != nil {
		item.Code = x.Code.String()
		if x.Field != contract.FieldItem {
			item.Field = x.Field.String()
		}
		item.Message = append(contract.AppendItemDescription([]byte{'"'}, x.Code, x.Field, r.Detail(*x), &r.Allowed), '"')
		return item
	}
	from, to := time.Unix(0, items.From[row]).UTC(), time.Unix(0, items.To[row]).UTC()
	item.Type, item.From, item.To = string(items.TypeCode(int(items.Type[row]))), &from, &to
	if v := items.Value[row]; !math.IsInf(v, 0) && !math.IsNaN(v) {
		item.Value = &v
	}
	return item
}
