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

// Tap lets operators follow a sample of the validated items. Without followers, its cost is one
// atomic load per batch. A follower that cannot keep up misses items. The zero value is ready to
// use.
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

// offer sends a sample of a validated batch to the followers. To avoid waiting, it does nothing if
// t is locked, usually by another worker.
func (t *Tap) offer(s *batch.Submission, items *batch.Items, r *batch.Result, now time.Time) {
	if t.active.Load() == 0 || !t.mu.TryLock() {
		return
	}
	defer t.mu.Unlock()
	_, client, _ := strings.Cut(s.Client, "\x00")
	for f := range t.followers {
		if f.filter.Client != "" && f.filter.Client != client || !f.admits(now) {
			continue
		}
		if !f.filter.Accepted {
			for _, x := range r.List {
				if !f.offer(items, r, int(x.Index), &x, client, now) {
					break
				}
			}
			continue
		}
		next := 0 // index in r.List
		for row := range items.Rows() {
			if next < len(r.List) && int(r.List[next].Index) == row {
				next++
			} else if !f.offer(items, r, row, nil, client, now) {
				break
			}
		}
	}
}

// admits reports whether the follower may receive another item in the second of now.
func (f *Follower) admits(now time.Time) bool {
	if second := now.Unix(); second != f.second {
		f.second, f.sent = second, 0
	}
	return f.sent < tapRate
}

// offer sends one item if it matches the filter. x is its rejection, nil if it was accepted. more
// is false if the follower has received tapRate items in this second or its channel is full.
func (f *Follower) offer(items *batch.Items, r *batch.Result, row int, x *batch.Rejection, client string, now time.Time) (more bool) {
	var detector []byte
	if row < items.Rows() {
		detector = items.Code(row)
	}
	if f.filter.Detector != "" && f.filter.Detector != string(detector) || x != nil && f.filter.Code != "" &&
		f.filter.Code != x.Code.String() {
		return true
	}
	item := TapItem{
		Time: now.UTC(), Client: client, Code: contract.OK.String(), Detector: contract.Echo(detector), Batch: r.ID.String(), Index: row,
	}
	if x != nil {
		item.Code = x.Code.String()
		if x.Field != contract.FieldItem {
			item.Field = x.Field.String()
		}
		item.Message = append(contract.AppendItemDescription([]byte{'"'}, x.Code, x.Field, r.Detail(*x), &r.Allowed), '"')
	} else {
		from, to := time.Unix(0, items.From[row]).UTC(), time.Unix(0, items.To[row]).UTC()
		item.Type, item.From, item.To = string(items.TypeCode(int(items.Type[row]))), &from, &to
		if v := items.Value[row]; !math.IsInf(v, 0) && !math.IsNaN(v) {
			item.Value = &v
		}
	}
	select {
	case f.Items <- item:
		f.sent++
		return f.sent < tapRate
	default:
		return false
	}
}
