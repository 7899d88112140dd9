package feeds

import (
	"bytes"
	"time"
)

// formats is the table of formats, and of the publishers whose documents need other defaults: what
// their times mean, how long they measure, and which numbers stand for no value. A document whose
// beginning contains one of the marks is guessed to be of the first such format.
var formats = []Format{
	{"ndw", []string{"<nationalIdentifier>NLNDW<"}, Options{Time: Begin, Period: time.Minute, MinusOne: true}, "", parseDatex2},
	{"fintraffic", []string{"country>fi<"}, Options{Time: End, Period: 5 * time.Minute}, "", parseDatex2},
	{"bison-fute", []string{"<nationalIdentifier>TIPI<"}, Options{Time: End, Period: 6 * time.Minute}, "Europe/Paris", parseDatex2},
	{"autobahn", []string{"country>de<", `lang="DE"`}, Options{Time: End, Period: time.Minute}, "Europe/Berlin", parseDatex2},
	{"swiss", []string{"country>ch<"}, Options{Time: Begin, Period: time.Minute}, "Europe/Zurich", parseDatex2},
	{"miv", []string{"<miv"}, Options{Time: Begin, Period: time.Minute, Sentinels: noSpeed}, "Europe/Brussels", parseMIV},
	{"hongkong", []string{"<raw_speed_volume_list"}, Options{}, "Asia/Hong_Kong", parseHongKong},
	{"madrid", []string{"<pms"}, Options{Time: End, Period: 5 * time.Minute, Mapping: &madrid}, "Europe/Madrid", parseRows},
	{"wzdx", []string{`"feed_info"`, `"device_type"`}, Options{}, "", parseWZDx},
	{"datex2", []string{"datex2.eu", "d2LogicalModel", "measurementSiteRecord"}, Options{}, "", parseDatex2},
	{"rows", nil, Options{}, "", parseRows},
}

// noSpeed are the speeds of Flanders that stand for no value.
var noSpeed = map[Measure][]float64{Speed: {252, 254, 255}}

// madrid are the averages of five minutes of the measuring points of Madrid. Only those of the M-30
// have a speed. The error is N, S, or Error as all values. Old documents have no time and another
// id. The position is UTM 30N or, in some documents, in degrees.
var madrid = Mapping{
	Form: "xml", Path: "pm", Decimal: ",", Detector: "idelem|codigo", At: "../fecha_hora", Layout: "02/01/2006 15:04:05",
	Values: []Column{{Name: "intensidad", Measure: "flow"}, {Name: "ocupacion", Measure: "occupancy"}, {Name: "velocidad", Measure: "speed"}},
	Faults: []string{"error!=N"}, Name: "descripcion", Lon: "st_x", Lat: "st_y",
}

// Guess returns the format of a document that begins with head.
func Guess(head []byte) (Format, bool) {
	for _, f := range formats {
		for _, mark := range f.marks {
			if bytes.Contains(head, []byte(mark)) {
				return f, true
			}
		}
	}
	return Format{}, false
}
