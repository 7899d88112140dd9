package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"trafficd/cmd/dev/launch"
	"trafficd/cmd/dev/must"
	"trafficd/sources/sites"
)

const (
	// recorded is where a publication of the Netherlands may be, relative to the module's root.
	recorded        = "../shared/data/feeds/ndw"
	publicationFile = "trafficspeed.xml.gz"
	siteTableFile   = "measurement_current.xml.gz"
	liveFeed        = "https://opendata.ndw.nu/"
)

// authority is the file server of a traffic authority. It publishes a recorded publication as if it
// were of this minute, and a site table that is made by a rule.
type authority struct {
	pieces [][]byte    // of the publication, between its times
	times  []time.Time // between the pieces
	table  []byte      // compressed
	server *http.Server
	url    string

	mu   sync.Mutex
	at   time.Time // the minute of the publication, until it is live; zero: not published yet
	live bool
	last struct { // the publication that was compressed last
		at   time.Time
		body []byte
	}
}

// checkFeed returns an error if there is no publication to replay. Later steps take long to fail.
func (q *quickstart) checkFeed(context.Context) error {
	switch q.feed {
	case "", "ndw-live":
		return nil
	case "ndw":
	default:
		return fmt.Errorf("feed %q must be ndw, for a recorded publication of the Netherlands, or ndw-live", q.feed)
	}
	q.data = cmp.Or(q.data, filepath.Join(q.root, recorded))
	path := filepath.Join(q.data, publicationFile)
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("cannot find a recorded publication: %w\nSave one with: curl -O %s%s\n"+
			"and name its directory: make run FEED=ndw DATA=directory\nWith network, no recording is needed: make run FEED=ndw-live",
			err, liveFeed, publicationFile)
	}
	return nil
}

// startFeed runs the daemon and the feeder, with a file server unless the feed is live.
func (q *quickstart) startFeed(ctx context.Context) (err error) {
	defer must.Return(&err)
	q.source = source{
		units:   map[string]string{"speed*": "km/h", "flow*": "veh/h"},
		example: "PZH01_MST_0065_00", file: liveFeed, about: "the live feed of the Netherlands",
	}
	if q.feed == "ndw" {
		path := filepath.Join(q.data, publicationFile)
		say("reading %s", q.short(path))
		q.authority = must.Get(openAuthority(path))
		q.source.file = q.authority.url
		q.source.about = "a recorded publication of the Netherlands as if it were now"
		say("the site table is made: lanes and classes follow from the publication, positions are invented along roads between towns")
	}
	say("starting trafficd on %s", q.daemon.API)
	must.Do(q.begin(q.daemon))
	must.Do(launch.Eventually(ctx, 30*time.Second, func() (err error) { // trafficd is creating the tables
		q.before, err = q.count(ctx)
		return err
	}))
	must.Do(q.writeSample())
	say("starting the feeder, which serves its list of sites to trafficd")
	must.Do(q.start(ctx, q.feeder, 2*time.Minute))
	return q.await(ctx, q.daemon, time.Minute)
}

// published counts values and measurements as the feeder does.
type published struct {
	sent
	New, Repeated, NoVehicle, Fault, Skipped, Totals, Sites uint64
}

// Values returns the number of values of all outcomes.
func (p published) Values() uint64 { return p.New + p.Repeated + p.NoVehicle + p.Fault + p.Skipped }

//go:embed feed.txt
var feedText string

func (q *quickstart) published(ctx context.Context) (p published, err error) {
	m, err := q.feeder.Metrics(ctx)
	for series, v := range m {
		for prefix, n := range map[string]*uint64{
			`trafficd_feeder_values_total{feed="ndw",outcome="new"`:        &p.New,
			`trafficd_feeder_values_total{feed="ndw",outcome="repeated"`:   &p.Repeated,
			`trafficd_feeder_values_total{feed="ndw",outcome="no_vehicle"`: &p.NoVehicle,
			`trafficd_feeder_values_total{feed="ndw",outcome="fault"`:      &p.Fault,
			`trafficd_feeder_values_total{feed="ndw",outcome="skipped"`:    &p.Skipped,
			"trafficd_feeder_totals_total{":                                &p.Totals,
			"trafficd_feeder_sites{":                                       &p.Sites,
			"trafficd_feeder_accepted_total{":                              &p.Accepted,
			"trafficd_feeder_rejected_total{":                              &p.Rejected,
		} {
			if strings.HasPrefix(series, prefix) {
				*n += uint64(v)
			}
		}
	}
	return p, err
}

// feedAndCount publishes, waits until both stores have everything, and prints a report. It returns
// an error if the counts differ.
func (q *quickstart) feedAndCount(ctx context.Context) (err error) {
	defer must.Return(&err)
	say("publishing %s", q.source.about)
	start := time.Now()
	if q.authority != nil {
		q.authority.publish(start)
	}
	var p published
	must.Do(launch.Eventually(ctx, 3*time.Minute, func() (err error) {
		if p, err = q.published(ctx); err == nil && (p.Values() == 0 || p.Accepted+p.Rejected != p.New+p.Totals) {
			err = fmt.Errorf("the feeder has read %d values, and trafficd has accepted %d of %d measurements; see %s",
				p.Values(), p.Accepted, p.New+p.Totals, q.short(q.path("feeder.log")))
		}
		return err
	}))
	p.Seconds = time.Since(start).Seconds()
	say("waiting until both stores have everything")
	must.Do(awaitDelivered(ctx, q.daemon, time.Minute))
	var after counts
	mismatch := launch.Eventually(ctx, 5*time.Second, func() (err error) {
		seconds := p.Seconds
		if p, err = q.published(ctx); err != nil { // a live feed may have published again
			return err
		}
		p.Seconds = seconds
		if after, err = q.count(ctx); err == nil && !p.arrived(after.minus(q.before)) {
			err = errors.New("the stores do not have exactly the accepted measurements")
		}
		return err
	})
	places := 0
	must.Do(launch.Eventually(ctx, time.Minute, func() (err error) { // the views of the archive follow
		places, err = q.places(ctx)
		return err
	}))
	now := after.minus(q.before)
	return errors.Join(q.render(os.Stdout, feedText, map[string]any{
		"P": p, "Now": now, "Total": after, "Agree": p.arrived(now), "Places": uint64(places), "Recorded": q.authority != nil,
		"Restarts": q.restarts.Load(), "About": q.source.about, "LiveFeed": liveFeed,
	}), mismatch)
}

// places returns the number of places that the map shows, or an error while none has a speed.
func (q *quickstart) places(ctx context.Context) (int, error) {
	_, body, err := q.daemon.Get(ctx, sites.Path)
	var all struct {
		Problem string
		Places  []sites.Place
	}
	if err == nil {
		err = json.Unmarshal(body, &all)
	}
	if err != nil {
		return 0, err
	}
	for _, p := range all.Places {
		for _, s := range p.Sites {
			if s.Slowest != nil {
				return len(all.Places), nil
			}
		}
	}
	return 0, fmt.Errorf("the map shows no speed: %s", cmp.Or(all.Problem, "the views of the archive are not complete yet"))
}

// openAuthority reads a publication and starts the file server.
func openAuthority(path string) (a *authority, err error) {
	defer must.Return(&err, "cannot replay "+path)
	f := must.Get(os.Open(path))
	defer f.Close()
	text := must.Get(io.ReadAll(must.Get(gzip.NewReader(f))))
	a = &authority{}
	from := 0
	for _, at := range timeText.FindAllSubmatchIndex(text, -1) {
		when := must.Get(time.Parse(time.RFC3339, string(text[at[2]:at[3]])))
		a.pieces, a.times = append(a.pieces, text[from:at[2]]), append(a.times, when)
		from = at[3]
	}
	if len(a.times) < 2 {
		return nil, errors.New("it contains no times in UTC")
	}
	a.pieces = append(a.pieces, text[from:])
	a.table = pack(siteTable(text))
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))
	a.url = "http://" + l.Addr().String() + "/"
	a.server = &http.Server{Handler: a, ReadHeaderTimeout: time.Minute}
	go func() { _ = a.server.Serve(l) }() // until Close
	return a, nil
}

var timeText = regexp.MustCompile(`>(20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z)<`)

func pack(text []byte) []byte {
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.BestSpeed) // a valid level
	_, _ = z.Write(text)                            // writing to memory cannot fail
	_ = z.Close()
	return b.Bytes()
}

// publish makes the publication of a minute available.
func (a *authority) publish(at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at = at.Truncate(time.Minute)
}

// goLive makes the publication follow the clock.
func (a *authority) goLive() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.live = true
}

// ServeHTTP serves both files. The first time of the publication is when it was published; all
// times are moved by whole minutes, so that it is of this minute.
func (a *authority) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/"+siteTableFile {
		w.Header().Set("ETag", `"made"`)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(a.table))
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	at := a.at
	if a.live {
		at = time.Now().Truncate(time.Minute)
	}
	if at.IsZero() {
		http.Error(w, "nothing has been published yet", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("ETag", strconv.Quote(at.UTC().Format(time.RFC3339)))
	if a.last.at != at {
		by := at.Sub(a.times[0].Truncate(time.Minute))
		var text bytes.Buffer
		for i, when := range a.times {
			text.Write(a.pieces[i])
			text.WriteString(when.Add(by).Format("2006-01-02T15:04:05Z"))
		}
		text.Write(a.pieces[len(a.times)])
		a.last.at, a.last.body = at, pack(text.Bytes())
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(a.last.body))
}

var siteText = regexp.MustCompile(
	`<measurementSiteReference [^>]*id="([^"]+)"|<measuredValue index="(\d+)">|xsi:type="(Traffic(?:Flow|Speed))"`)

// The parts of a record of the site table.
const (
	recordStart = `<measurementSiteRecord id=%[1]q version="1">
<measurementSiteName><values><value lang="nl">%[1]s (position made)</value></values></measurementSiteName>`
	recordValue = `<measurementSpecificCharacteristics index=%q><measurementSpecificCharacteristics>
<period>60</period><specificLane>lane%d</specificLane><specificMeasurementValueType>%s</specificMeasurementValueType>
<specificVehicleCharacteristics>%s</specificVehicleCharacteristics>
</measurementSpecificCharacteristics></measurementSpecificCharacteristics>`
	recordEnd = `<measurementSiteLocation xsi:type="Point"><locationForDisplay>
<latitude>%.5f</latitude><longitude>%.5f</longitude></locationForDisplay>
</measurementSiteLocation></measurementSiteRecord>
`
)

// siteTable returns a site table for the sites of a publication. Each group of flows and speeds
// that follow one another is a lane; the last value of a group is of all vehicles, those before it
// are of a class each. The positions are invented.
func siteTable(publication []byte) []byte {
	var b bytes.Buffer
	b.WriteString(`<?xml version="1.0" encoding="UTF-8"?>
<d2LogicalModel xmlns="http://datex2.eu/schema/2/2_0" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" modelBaseVersion="2">
<exchange><supplierIdentification><country>nl</country><nationalIdentifier>NLNDW</nationalIdentifier></supplierIdentification></exchange>
<payloadPublication xsi:type="MeasurementSiteTablePublication" lang="nl"><measurementSiteTable id="NDW01_MT" version="1">
`)
	type value struct{ index, kind string }
	id, values := "", []value(nil)
	end := func() {
		if id == "" {
			return
		}
		lon, lat := position(id)
		fmt.Fprintf(&b, recordStart, id)
		lane, group := 0, 0
		for i, v := range values {
			if v.kind == "TrafficFlow" && (i == 0 || values[i-1].kind == "TrafficSpeed") {
				lane++
			}
			if i == 0 || values[i-1].kind != v.kind {
				group = i
			}
			kind, class := "trafficFlow", `<vehicleType>anyVehicle</vehicleType>`
			if v.kind == "TrafficSpeed" {
				kind = "trafficSpeed"
			}
			if i+1 < len(values) && values[i+1].kind == v.kind {
				n := min(i-group, len(lengths)-1)
				class = lengths[n]
			}
			fmt.Fprintf(&b, recordValue, v.index, lane, kind, class)
		}
		fmt.Fprintf(&b, recordEnd, lat, lon)
	}
	for _, m := range siteText.FindAllSubmatch(publication, -1) {
		switch {
		case m[1] != nil:
			end()
			id, values = string(m[1]), values[:0]
		case m[2] != nil:
			values = append(values, value{string(m[2]), ""})
		case len(values) > 0:
			values[len(values)-1].kind = string(m[3])
		}
	}
	end()
	b.WriteString("</measurementSiteTable></payloadPublication></d2LogicalModel>\n")
	return b.Bytes()
}

// lengths are the classes of a lane, in the order of its values.
var lengths = []string{longer("", "5.6"), longer("5.6", "12.2"), longer("12.2", "15"), longer("15", "18"), longer("18", "")}

func longer(from, to string) string {
	text := ""
	for _, c := range [][2]string{{"greaterThanOrEqualTo", from}, {"lessThan", to}} {
		if c[1] != "" {
			text += "<lengthCharacteristic><comparisonOperator>" + c[0] + "</comparisonOperator>" +
				"<vehicleLength>" + c[1] + "</vehicleLength></lengthCharacteristic>"
		}
	}
	return text
}

// towns are the ends of the roads along which sites are put.
var towns = [][2]float64{
	{4.90, 52.37},
	{4.48, 51.92},
	{4.30, 52.07},
	{5.12, 52.09},
	{5.47, 51.44},
	{6.57, 53.21},
	{5.80, 53.20},
	{6.09, 52.51},
	{6.89, 52.22},
	{5.91, 51.98},
	{5.86, 51.84},
	{5.70, 50.85},
	{4.78, 51.59},
	{3.61, 51.50},
	{4.75, 52.63},
	{4.76, 52.94},
	{5.47, 52.52},
	{6.56, 52.99},
	{6.17, 51.37},
	{5.30, 51.69},
	{5.39, 52.16},
	{5.08, 51.56},
	{4.63, 52.38},
	{5.97, 52.21},
	{6.89, 52.78},
	{5.66, 52.96},
	{4.67, 51.81},
}

// roadSite matches the ids of the motorways: road, carriageway, and place in hectometres.
var roadSite = regexp.MustCompile(`^RWS01_MONIBAS_(\d{4})(\w{3})(\d{4})`)

// position invents the position of a site. Sites of a motorway are on the same road at their
// hectometre; others are on a road that depends on their id.
func position(id string) (lon, lat float64) {
	road, along := id[:min(len(id), 17)], float64(hash(id)%400)/400
	if m := roadSite.FindStringSubmatch(id); m != nil {
		hectometre, _ := strconv.Atoi(m[3])
		road, along = fmt.Sprint(m[1], hectometre/300), float64(hectometre%300)/300
	}
	a := towns[hash(road)%uint64(len(towns))]
	near := slices.Clone(towns)
	distance := func(b [2]float64) float64 { return math.Hypot((b[0]-a[0])*0.61, b[1]-a[1]) }
	slices.SortFunc(near, func(p, q [2]float64) int { return cmp.Compare(distance(p), distance(q)) })
	b := near[1+hash(road+"to")%4] // the first is the town itself
	bend := (float64(hash(road+"bend")%100)/100 - 0.5) * 0.35 * math.Sin(math.Pi*along)
	return a[0] + (b[0]-a[0])*along - (b[1]-a[1])*bend*1.64, a[1] + (b[1]-a[1])*along + (b[0]-a[0])*bend*0.61
}

func hash(text string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text)) // cannot fail
	x := h.Sum64()
	return (x ^ x>>29) * 0xbf58476d1ce4e5b9 >> 11 // texts that differ in their last letter are far apart
}
