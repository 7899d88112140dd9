package feeds

import "time"

// formats is the table of formats, and of the publishers whose documents need other defaults: what
// their times mean, how long they measure, and which numbers stand for no value.
var formats = []Format{
	{"datex2", Options{}, "", parseDatex2},
	{"ndw", Options{Time: Begin, Period: time.Minute, MinusOne: true}, "", parseDatex2},
	{"fintraffic", Options{Time: End, Period: 5 * time.Minute}, "", parseDatex2},
	{"bison-fute", Options{Time: Begin, Period: 6 * time.Minute}, "Europe/Paris", parseDatex2},
	{"autobahn", Options{Time: End, Period: time.Minute}, "Europe/Berlin", parseDatex2},
	{"swiss", Options{Time: Begin, Period: time.Minute}, "Europe/Zurich", parseDatex2},
	{"miv", Options{Time: Begin, Period: time.Minute, Sentinels: map[Measure][]float64{Speed: {252, 254, 255}}}, "Europe/Brussels", parseMIV},
	{"hongkong", Options{}, "Asia/Hong_Kong", parseHongKong},
	{"madrid", Options{Time: End, Period: 5 * time.Minute}, "Europe/Madrid", parseMadrid},
	{"wzdx", Options{}, "", parseWZDx},
	{"rows", Options{}, "", parseRows},
}
