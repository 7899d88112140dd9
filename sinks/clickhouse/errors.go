package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"

	ch "github.com/ClickHouse/clickhouse-go/v2"

	"trafficd/pipeline/lib/dial"
	"trafficd/pipeline/lib/metrics"
)

// class classifies an error. It is the label class of errorsTotal, and selects the hint. Only
// classRejected is permanent.
type class string

const (
	classNetwork   class = "network"
	classTimeout   class = "timeout"
	classCancelled class = "cancelled"
	classTLS       class = "tls"
	classAuth      class = "auth"
	classOverload  class = "overload"
	classMemory    class = "memory"
	classDisk      class = "disk"
	classReadOnly  class = "readonly"
	classQuorum    class = "quorum"
	classSchema    class = "schema"
	classRejected  class = "rejected"
	classOther     class = "other"
)

var hints = map[class]string{
	classNetwork:   "check that the server is running and that the setting `addresses` is correct",
	classTimeout:   "the server did not respond within the timeouts",
	classCancelled: "the attempt was cancelled",
	classTLS:       "check tls.enabled, tls.ca, tls.server_name, tls.cert and the server's certificate",
	classAuth:      "check username, password and the user's grants",
	classOverload:  "the server is overloaded; will retry",
	classMemory:    "raise max_memory_usage of the user or the server's memory: an insert takes up to 70 MiB, more with materialized views",
	classDisk:      "check the server's disks",
	classReadOnly:  "the table or the user is read-only",
	classQuorum:    "check Keeper and the replicas",
	classSchema:    "the tables are not as expected: restore dropped ones, or run trafficd migrate, which creates them again",
	classRejected:  "a row's value violates a rule of the table",
	classOther:     "see the server's log",
}

// codes are the server's error codes by class. Unlisted codes belong to classOther. Whatever the
// class, rows that were sent may be in the table despite the error, so they are looked up before
// the next attempt.
var codes = map[class]map[int32]string{
	// A row's value can violate rules that an operator added to the table: constraints and
	// expressions of additional columns. Errors of the statement as a whole are not listed, because
	// the sink sends the types of its own schema. INCORRECT_DATA (117) is not listed either,
	// because a server also reports it for a broken stream.
	classRejected: {
		6: "CANNOT_PARSE_TEXT", 27: "CANNOT_PARSE_INPUT_ASSERTION_FAILED", 38: "CANNOT_PARSE_DATE",
		41: "CANNOT_PARSE_DATETIME", 69: "ARGUMENT_OUT_OF_BOUND", 72: "CANNOT_PARSE_NUMBER", 128: "TOO_LARGE_ARRAY_SIZE",
		131: "TOO_LARGE_STRING_SIZE", 135: "ZERO_ARRAY_OR_TUPLE_INDEX", 153: "ILLEGAL_DIVISION",
		321: "VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE", 376: "CANNOT_PARSE_UUID", 395: "FUNCTION_THROW_IF_VALUE_IS_NON_ZERO",
		407: "DECIMAL_OVERFLOW", 441: "CANNOT_PARSE_DOMAIN_VALUE_FROM_STRING", 467: "CANNOT_PARSE_BOOL",
		469: "VIOLATED_CONSTRAINT", 675: "CANNOT_PARSE_IPV4", 676: "CANNOT_PARSE_IPV6", 691: "UNKNOWN_ELEMENT_OF_ENUM",
	},
	classTimeout: {
		159: "TIMEOUT_EXCEEDED", 209: "SOCKET_TIMEOUT",
	},
	classNetwork: {
		32: "ATTEMPT_TO_READ_AFTER_EOF", 95: "CANNOT_READ_FROM_SOCKET", 96: "CANNOT_WRITE_TO_SOCKET",
		99: "UNKNOWN_PACKET_FROM_CLIENT", 101: "UNEXPECTED_PACKET_FROM_CLIENT", 210: "NETWORK_ERROR", 236: "ABORTED",
		271: "CANNOT_DECOMPRESS", 279: "ALL_CONNECTION_TRIES_FAILED", 394: "QUERY_WAS_CANCELLED", 735: "QUERY_WAS_CANCELLED_BY_CLIENT",
	},
	classAuth: {
		192: "UNKNOWN_USER", 193: "WRONG_PASSWORD", 194: "REQUIRED_PASSWORD", 195: "IP_ADDRESS_NOT_ALLOWED",
		291: "DATABASE_ACCESS_DENIED", 497: "ACCESS_DENIED", 516: "AUTHENTICATION_FAILED", 720: "USER_EXPIRED",
		767: "REQUIRED_SECOND_FACTOR", 452: "SETTING_CONSTRAINT_VIOLATION",
	},
	classMemory: {
		173: "CANNOT_ALLOCATE_MEMORY", 241: "MEMORY_LIMIT_EXCEEDED", 777: "MEMORY_RESERVATION_KILLED", 778: "MEMORY_RESERVATION_FAILED",
	},
	classOverload: {
		160: "TOO_SLOW", 201: "QUOTA_EXCEEDED", 202: "TOO_MANY_SIMULTANEOUS_QUERIES", 203: "NO_FREE_CONNECTION", 252: "TOO_MANY_PARTS",
		439: "CANNOT_SCHEDULE_TASK", 473: "DEADLOCK_AVOIDED", 700: "USER_SESSION_LIMIT_EXCEEDED", 745: "SERVER_OVERLOADED",
		749: "TCP_CONNECTION_LIMIT_REACHED", 763: "SESSION_REFUSED", 776: "RESOURCE_LIMIT_EXCEEDED",
	},
	classDisk: {
		33: "CANNOT_READ_ALL_DATA", 40: "CHECKSUM_DOESNT_MATCH", 74: "CANNOT_READ_FROM_FILE_DESCRIPTOR",
		75: "CANNOT_WRITE_TO_FILE_DESCRIPTOR", 76: "CANNOT_OPEN_FILE", 88: "CANNOT_TRUNCATE_FILE", 107: "FILE_DOESNT_EXIST",
		172: "CANNOT_CREATE_DIRECTORY", 204: "CANNOT_FSYNC", 243: "NOT_ENOUGH_SPACE", 246: "CORRUPTED_DATA", 499: "S3_ERROR",
		586: "CANNOT_CREATE_FILE",
	},
	classReadOnly: {
		164: "READONLY", 242: "TABLE_IS_READ_ONLY", 472: "READONLY_SETTING", 774: "TABLE_IS_PERMANENTLY_READ_ONLY",
	},
	classQuorum: {
		225: "NO_ZOOKEEPER", 244: "UNEXPECTED_ZOOKEEPER_ERROR", 254: "NO_ACTIVE_REPLICAS", 265: "NO_AVAILABLE_REPLICA",
		285: "TOO_FEW_LIVE_REPLICAS", 286: "UNSATISFIED_QUORUM_FOR_PREVIOUS_WRITE", 289: "REPLICA_IS_NOT_IN_QUORUM",
		319: "UNKNOWN_STATUS_OF_INSERT", 369: "ALL_REPLICAS_ARE_STALE", 416: "REPLICA_STATUS_CHANGED",
		999: "KEEPER_EXCEPTION",
	},
	classSchema: {
		8: "THERE_IS_NO_COLUMN", 10: "NOT_FOUND_COLUMN_IN_BLOCK", 16: "NO_SUCH_COLUMN_IN_TABLE", 44: "ILLEGAL_COLUMN",
		47: "UNKNOWN_IDENTIFIER", 53: "TYPE_MISMATCH", 60: "UNKNOWN_TABLE", 70: "CANNOT_CONVERT_TYPE",
		81: "UNKNOWN_DATABASE", 115: "UNKNOWN_SETTING", 218: "TABLE_IS_DROPPED",
	},
}

// errSchema is wrapped by errors about columns of the table that differ from the schema.
var errSchema = errors.New("unexpected column")

func classify(err error) class {
	var exception *ch.Exception
	var network net.Error
	switch {
	case errors.As(err, &exception):
		for c, names := range codes {
			if _, listed := names[exception.Code]; listed {
				return c
			}
		}
		return classOther
	case errors.Is(err, errSchema):
		return classSchema
	case errors.Is(err, context.Canceled):
		return classCancelled
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, ch.ErrAcquireConnTimeout):
		return classTimeout
	case dial.IsTLS(err):
		return classTLS
	case errors.As(err, &network):
		if network.Timeout() {
			return classTimeout
		}
		return classNetwork
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed),
		errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNRESET), errors.Is(err, dial.ErrHandshake):
		return classNetwork
	}
	return classOther
}

// countError counts *err by its class, unless it is nil.
func countError(err *error) {
	if *err != nil {
		errorsTotal.WithLabelValues(string(classify(*err))).Inc()
	}
}

func hinted(err error) error {
	return fmt.Errorf("%w; %s", err, hints[classify(err)])
}

var (
	rowsInserted     = metrics.NewCounter("trafficd_clickhouse_rows_inserted_total", "Rows whose insert was acknowledged, each counted once.")
	blocksDone       = metrics.NewCounter("trafficd_clickhouse_blocks_total", "Blocks of rows delivered.")
	insertSeconds    = metrics.NewSeconds("trafficd_clickhouse_insert_seconds", "Duration of an acknowledged INSERT, in seconds.")
	lookupSeconds    = metrics.NewSeconds("trafficd_clickhouse_lookup_seconds", "Duration of a lookup of an in-doubt block, in seconds.")
	deriveSeconds    = metrics.NewSeconds("trafficd_clickhouse_derive_seconds", "Duration of an update of the derived tables, in seconds.")
	deriveErrors     = metrics.NewCounter("trafficd_clickhouse_derive_errors_total", "Failed updates of the derived tables.")
	hostsUnavailable = metrics.NewGauge("trafficd_clickhouse_hosts_unavailable", "Servers of the cluster that cannot take rows.")
	derivedAt        = metrics.NewGauge("trafficd_clickhouse_derived_at_seconds",
		"Time of the last update of the derived tables, as Unix time; 0 if this process does not update them.")
	deriveInterval = metrics.NewGauge("trafficd_clickhouse_derive_interval_seconds", "Time between updates of the derived tables, in seconds.")
	rowsVanished   = metrics.NewCounter("trafficd_clickhouse_rows_vanished_total",
		"Rows that are not in the table although ClickHouse acknowledged them.")

	errorsTotal   = metrics.NewCounters("trafficd_clickhouse_errors_total", "Failed deliveries of a block, by class of the error.", "class")
	resolvedTotal = metrics.NewCounters("trafficd_clickhouse_resolved_total",
		"Lookups of in-doubt blocks, by how much of the block was found.", "found")
	foundAll  = resolvedTotal.WithLabelValues("all")
	foundSome = resolvedTotal.WithLabelValues("some")
	foundNone = resolvedTotal.WithLabelValues("none")
)

func init() {
	for c := range hints {
		errorsTotal.WithLabelValues(string(c))
	}
}
