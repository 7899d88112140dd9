// Package sites serves what the archive has of detectors: for the operators' map, the latest speed
// of every site that has a position, and the last hour of one site; for integrators and operators,
// the detectors whose measurements mislead (Health). All viewers of the map share one query per
// refreshEvery for each answer, and there is none without viewers. While the archive cannot be
// read, the last answer is served with the reason.
package sites

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/gzip"
	"github.com/valyala/fasthttp"

	"trafficd/pipeline/lib/dial"
	"trafficd/pipeline/lib/negotiate"
	schema "trafficd/schemas/clickhouse"
)

// The paths on the operators' listener. Clients cannot request them: no right of their keys covers
// measurements.
const (
	Path     = "/sites"
	HourPath = "/site" // with the parameters product_instance and detector
)

const (
	refreshEvery = 10 * time.Second // the derived tables follow the archive as often
	queryTimeout = 10 * time.Second
	maxSites     = 100_000 // a nation has 20,000 to 97,000; an answer takes 160 bytes for each
	maxValues    = 20_000  // of the last hour of a site: 72 types a minute are 4,320
	maxAnswers   = 64      // sites whose last hour is kept
)

// Archive is where measurements are read from.
type Archive struct {
	Addresses []string
	Login     dial.ClickHouse
	Layout    schema.Layout
}

// Service answers requests. It is safe for concurrent use.
type Service struct {
	conn    driver.Conn
	queries queries
	mu      sync.Mutex
	answers map[string]*answer
}

// New returns a service that connects when it is first asked.
func New(a Archive) (*Service, error) {
	a.Login.Database = "" // it might not exist yet, and the handshake would fail
	conn, err := a.Login.Open(&clickhouse.Options{
		Addr: a.Addresses, DialTimeout: queryTimeout / 2, ReadTimeout: queryTimeout, MaxOpenConns: 2,
		Compression: &clickhouse.Compression{Method: clickhouse.CompressionLZ4},
		Settings:    clickhouse.Settings{"max_execution_time": int(queryTimeout.Seconds()), "join_use_nulls": 1},
	})
	if err != nil {
		return nil, fmt.Errorf("clickhouse.%w", err)
	}
	return &Service{conn: conn, queries: newQueries(a.Layout), answers: map[string]*answer{}}, nil
}

// Close closes the connections. s may be nil.
func (s *Service) Close() {
	if s != nil {
		_ = s.conn.Close() // nothing is lost
	}
}

// ServeSites responds with the latest speeds of all sites.
func (s *Service) ServeSites(ctx *fasthttp.RequestCtx) error {
	return s.serve(ctx, "", "places", s.places)
}

// ServeHour responds with the measurements of a site in the last hour.
func (s *Service) ServeHour(ctx *fasthttp.RequestCtx) error {
	instance, detector := string(ctx.QueryArgs().Peek("product_instance")), string(ctx.QueryArgs().Peek("detector"))
	return s.serve(ctx, instance+"\x00"+detector, "types", func(ctx context.Context) (any, string, error) {
		return s.hour(ctx, instance, detector)
	})
}

// answer is the latest answer to a request.
type answer struct {
	mu    sync.Mutex
	tried time.Time // start of the last query
	read  time.Time // start of the last query that succeeded
	data  []byte    // JSON
	content
}

// content is the body of a response.
type content struct {
	etag   string
	packed []byte // JSON, compressed
}

func newContent(parts ...[]byte) content {
	digest := xxhash.New()
	var packed bytes.Buffer
	z, _ := gzip.NewWriterLevel(&packed, gzip.BestSpeed) // a valid level
	for _, part := range parts {
		_, _ = digest.Write(part) // never fails
		_, _ = z.Write(part)      // writing to memory cannot fail
	}
	_ = z.Close()
	return content{fmt.Sprintf("%016x", digest.Sum64()), packed.Bytes()}
}

// serve responds with the content, or with a 304.
func (c content) serve(ctx *fasthttp.RequestCtx, vary string) {
	h := &ctx.Response.Header
	h.Set(fasthttp.HeaderCacheControl, "private, no-cache")
	h.Set(fasthttp.HeaderVary, vary)
	if negotiate.AcceptsGzip(ctx.Request.Header.PeekAll(fasthttp.HeaderAcceptEncoding)) {
		h.SetContentEncoding("gzip")
		negotiate.Serve(ctx, `"`+c.etag+`-gzip"`, "application/json", func() []byte { return c.packed })
		return
	}
	negotiate.Serve(ctx, `"`+c.etag+`"`, "application/json", func() []byte {
		z, _ := gzip.NewReader(bytes.NewReader(c.packed)) // newContent has written it
		body, _ := io.ReadAll(z)
		return body
	})
}

// serve responds with an answer, which it refreshes if that is due. Other requests for the same
// answer wait meanwhile.
func (s *Service) serve(
	ctx *fasthttp.RequestCtx, key, member string, query func(context.Context) (data any, remark string, err error),
) (err error) {
	a := s.answer(key)
	a.mu.Lock()
	if time.Since(a.tried) >= refreshEvery {
		err = a.refresh(member, query)
	}
	current := a.content
	a.mu.Unlock()
	if err == nil {
		current.serve(ctx, fasthttp.HeaderAcceptEncoding)
	}
	return err
}

func (s *Service) answer(key string) *answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.answers[key]
	if a == nil {
		if len(s.answers) > maxAnswers {
			s.answers = map[string]*answer{"": s.answers[""]}
		}
		a = &answer{}
		s.answers[key] = a
	}
	return a
}

// refresh runs the query. If it fails, the data of the last one remain. The ETag does not depend on
// the time, so that an answer whose data have not changed is not sent again.
func (a *answer) refresh(member string, query func(context.Context) (any, string, error)) error {
	a.tried = time.Now()
	within, cancel := context.WithTimeout(context.Background(), queryTimeout)
	defer cancel()
	data, problem, err := query(within)
	if err == nil {
		a.read = a.tried
		if a.data, err = json.Marshal(data); err != nil {
			return err
		}
	} else {
		problem = "cannot read the archive: " + err.Error()
	}
	if a.data == nil {
		a.data = []byte("[]")
	}
	end, _ := json.Marshal(problem) // a string is valid
	end = append(append(append([]byte(`,"problem":`), end...), `,"`+member+`":`...), a.data...)
	start := `{"time":null`
	if !a.read.IsZero() {
		start = `{"time":"` + a.read.UTC().Format(time.RFC3339) + `"`
	}
	a.content = newContent([]byte(start), end, []byte("}\n"))
	a.etag = fmt.Sprintf("%016x", xxhash.Sum64(end))
	return nil
}

// Place is a position with the sites there.
type Place struct {
	Longitude float64 `json:"longitude"`
	Latitude  float64 `json:"latitude"`
	Sites     []Site  `json:"sites"`
}

// Site is a detector with its current speeds in km/h. Without a speed in the last 15 minutes, it
// has neither Speed nor Slowest.
type Site struct {
	ProductInstance string     `json:"productInstance"`
	DetectorCode    string     `json:"detectorCode"`
	Speed           *float64   `json:"speed,omitempty"`   // the measure type speed: of the whole carriageway
	Usual           *float64   `json:"usual,omitempty"`   // mean of Speed at this hour of the weekday in the last four weeks
	Slowest         *float64   `json:"slowest,omitempty"` // of the lanes in the site's latest interval
	MeasuredUntil   *time.Time `json:"measuredUntil,omitempty"`
}

func (s *Service) places(ctx context.Context) (data any, remark string, err error) {
	rows, err := s.conn.Query(ctx, s.queries.sites)
	if err != nil {
		return nil, "", err
	}
	defer rows.Close()
	all := []Place{}
	for n := 1; rows.Next(); n++ {
		if n > maxSites {
			remark = fmt.Sprintf("there are more than %d sites; the others are not shown", maxSites)
			break
		}
		var p Place
		var d Site
		err := rows.Scan(&p.Longitude, &p.Latitude, &d.ProductInstance, &d.DetectorCode, &d.Speed, &d.Usual, &d.Slowest, &d.MeasuredUntil)
		if err != nil {
			return nil, "", err
		}
		if last := len(all) - 1; last < 0 || all[last].Longitude != p.Longitude || all[last].Latitude != p.Latitude {
			all = append(all, p)
		}
		last := &all[len(all)-1]
		last.Sites = append(last.Sites, d)
	}
	return all, remark, rows.Err()
}

// Series are the measurements of a type in the last hour, in the order of time.
type Series struct {
	MeasureTypeCode string  `json:"measureTypeCode"`
	Values          []Value `json:"values"`
}

// Value is a measurement.
type Value struct {
	From  time.Time `json:"from"`
	To    time.Time `json:"to"`
	Value float64   `json:"value"`
}

func (s *Service) hour(ctx context.Context, instance, detector string) (data any, remark string, err error) {
	rows, err := s.conn.Query(ctx, s.queries.hour, instance, detector)
	if err != nil {
		return nil, "", err
	}
	defer rows.Close()
	all := []Series{}
	for n := 1; rows.Next(); n++ {
		if n > maxValues {
			remark = fmt.Sprintf("the site has more than %d measurements in the last hour; the others are not shown", maxValues)
			break
		}
		var code string
		var v Value
		if err := rows.Scan(&code, &v.From, &v.To, &v.Value); err != nil {
			return nil, "", err
		}
		if last := len(all) - 1; last < 0 || all[last].MeasureTypeCode != code {
			all = append(all, Series{MeasureTypeCode: code})
		}
		last := &all[len(all)-1]
		last.Values = append(last.Values, v)
	}
	return all, remark, rows.Err()
}

type queries struct{ sites, hour, tests, health, evidence string }

// newQueries returns the queries for the tables of an archive. The latest interval of a site wins,
// then the values of whole lanes over those of their classes, which have longer codes, then the
// slowest. A position is a place if it is the same to a metre.
func newQueries(l schema.Layout) queries {
	names := strings.NewReplacer("{table}", fmt.Sprintf("`%s`.`%s", l.Database, l.Table),
		"{limit}", fmt.Sprint(maxSites+1), "{values}", fmt.Sprint(maxValues+1))
	return queries{
		sites: names.Replace(`
SELECT s.x, s.y, s.product_instance, s.detector_code,
    if(tupleElement(v.total, 1) < v.until, NULL, tupleElement(v.total, 2)) AS speed, u.usual, v.slowest, v.until
FROM
(
    SELECT product_instance, detector_code, round(assumeNotNull(longitude), 5) AS x, round(assumeNotNull(latitude), 5) AS y
    FROM {table}_detectors` + "`" + `
    WHERE abs(longitude) <= 180 AND abs(latitude) <= 90 AND (product_instance, listed_at) IN
        (SELECT product_instance, max(listed_at) FROM {table}_registry` + "`" + ` GROUP BY product_instance)
) AS s
LEFT JOIN
(
    SELECT toString(product_instance) AS product_instance, detector_code, max(m.2) AS until,
        maxIf((m.2, m.5), measure_type_code = 'speed') AS total,
        0 - tupleElement(max((m.2, measure_type_code != 'speed', -countSubstrings(toString(measure_type_code), '.'), -m.5)), 4) AS slowest
    FROM
    (
        SELECT product_instance, measure_type_code, detector_code, max(measurement) AS m
        FROM {table}_last` + "`" + `
        WHERE measure_type_code = 'speed' OR startsWith(measure_type_code, 'speed.')
        GROUP BY product_instance, measure_type_code, detector_code
        HAVING m.2 > now64(9) - INTERVAL 15 MINUTE
    )
    GROUP BY product_instance, detector_code
) AS v ON v.product_instance = s.product_instance AND v.detector_code = s.detector_code
LEFT JOIN
(
    SELECT toString(product_instance) AS product_instance, detector_code, avg(average) AS usual
    FROM {table}_1h` + "`" + `
    WHERE measure_type_code = 'speed'
        AND bucket IN (SELECT toStartOfHour(now('UTC')) - toIntervalDay(arrayJoin([7, 14, 21, 28])))
    GROUP BY product_instance, detector_code
) AS u ON u.product_instance = s.product_instance AND u.detector_code = s.detector_code
ORDER BY s.x, s.y, s.product_instance, s.detector_code
LIMIT {limit}`),
		hour: names.Replace(`
SELECT measure_type_code, timestamp_from, timestamp_to, value
FROM {table}_current` + "`" + `
WHERE product_instance = ? AND detector_code = ? AND timestamp_from >= now() - INTERVAL 1 HOUR
ORDER BY toString(measure_type_code), timestamp_from, timestamp_to
LIMIT {values}`),
		tests: names.Replace(`
SELECT toString(product_instance) AS instance, max(last) AS checked, sum(toUnixTimestamp(last)) AS sum
FROM
(
    SELECT product_instance, measure_type_code, max(last_at) AS last
    FROM {table}_health` + "`" + ` WHERE state = 'checked' GROUP BY product_instance, measure_type_code
)
GROUP BY product_instance`),
		health: names.Replace(`
SELECT product_instance, detector_code, measure_type_code, state, first_at, last_at, rule
FROM {table}_detector_health` + "`" + `
WHERE current
ORDER BY product_instance, detector_code, measure_type_code, state`),
		evidence: names.Replace(`
SELECT bucket, sum(count) AS values, sum(sum) / values AS mean, count() AS detectors
FROM {table}_1h` + "`" + `
WHERE product_instance = ? AND measure_type_code = ? AND (detector_code = ? OR ? = '') AND bucket >= now() - INTERVAL 9 DAY
GROUP BY bucket ORDER BY bucket`),
	}
}
