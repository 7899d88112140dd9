package clickhouse

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"

	ch "github.com/ClickHouse/clickhouse-go/v2"
)

// class is the kind of a failure: the metric's label, and what to do about it.
// Only classRefused is ever final.
type class string

const (
	classNetwork   class = "network"
	classTimeout   class = "timeout"
	classCancelled class = "cancelled"
	classTLS       class = "tls"
	classAuth      class = "auth"
	classOverload  class = "overload"
	classDisk      class = "disk"
	classReadOnly  class = "readonly"
	classQuorum    class = "quorum"
	classSchema    class = "schema"
	classRefused   class = "refused"
	classOther     class = "other"
)

// hints say what a person can do.
var hints = map[class]string{
	classNetwork:   "check that the server runs and that addresses and secure are right",
	classTimeout:   "the server did not answer within the timeouts",
	classCancelled: "the attempt was called off",
	classTLS:       "check secure, ca_file, server_name, cert_file and the server's certificate",
	classAuth:      "check username, password and the user's grants",
	classOverload:  "the server is overloaded; it is tried again",
	classDisk:      "check the server's disks",
	classReadOnly:  "the table or the user may only read",
	classQuorum:    "check Keeper and the replicas",
	classSchema:    "the tables are not as expected: run the migrations (if a table was dropped by hand, delete its rows from schema_migrations first)",
	classRefused:   "a row's value breaks a rule of the table",
	classOther:     "see the server's log",
}

// code is one of the server's error codes. What is not listed is classOther
// and tried again. Whatever the class: once rows were on their way, a failure
// proves nothing, and the table is looked into before the next attempt.
type code struct {
	name  string
	class class
}

var codes = map[int32]code{
	// What a row's value can break, of rules that an operator put on the table:
	// constraints, and expressions of further columns. We send the types of our
	// own schema, so a fault of the statement as a whole is never among these. Nor
	// is INCORRECT_DATA (117): a server says that of a broken stream too.
	6:   {"CANNOT_PARSE_TEXT", classRefused},
	27:  {"CANNOT_PARSE_INPUT_ASSERTION_FAILED", classRefused},
	38:  {"CANNOT_PARSE_DATE", classRefused},
	41:  {"CANNOT_PARSE_DATETIME", classRefused},
	69:  {"ARGUMENT_OUT_OF_BOUND", classRefused},
	72:  {"CANNOT_PARSE_NUMBER", classRefused},
	128: {"TOO_LARGE_ARRAY_SIZE", classRefused},
	131: {"TOO_LARGE_STRING_SIZE", classRefused},
	135: {"ZERO_ARRAY_OR_TUPLE_INDEX", classRefused},
	153: {"ILLEGAL_DIVISION", classRefused},
	321: {"VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE", classRefused},
	376: {"CANNOT_PARSE_UUID", classRefused},
	395: {"FUNCTION_THROW_IF_VALUE_IS_NON_ZERO", classRefused},
	407: {"DECIMAL_OVERFLOW", classRefused},
	441: {"CANNOT_PARSE_DOMAIN_VALUE_FROM_STRING", classRefused},
	467: {"CANNOT_PARSE_BOOL", classRefused},
	469: {"VIOLATED_CONSTRAINT", classRefused},
	675: {"CANNOT_PARSE_IPV4", classRefused},
	676: {"CANNOT_PARSE_IPV6", classRefused},
	691: {"UNKNOWN_ELEMENT_OF_ENUM", classRefused},

	159:  {"TIMEOUT_EXCEEDED", classTimeout},
	209:  {"SOCKET_TIMEOUT", classTimeout},
	32:   {"ATTEMPT_TO_READ_AFTER_EOF", classNetwork},
	95:   {"CANNOT_READ_FROM_SOCKET", classNetwork},
	96:   {"CANNOT_WRITE_TO_SOCKET", classNetwork},
	99:   {"UNKNOWN_PACKET_FROM_CLIENT", classNetwork},
	101:  {"UNEXPECTED_PACKET_FROM_CLIENT", classNetwork},
	210:  {"NETWORK_ERROR", classNetwork},
	236:  {"ABORTED", classNetwork},
	271:  {"CANNOT_DECOMPRESS", classNetwork},
	394:  {"QUERY_WAS_CANCELLED", classNetwork},
	735:  {"QUERY_WAS_CANCELLED_BY_CLIENT", classNetwork},
	192:  {"UNKNOWN_USER", classAuth},
	193:  {"WRONG_PASSWORD", classAuth},
	194:  {"REQUIRED_PASSWORD", classAuth},
	195:  {"IP_ADDRESS_NOT_ALLOWED", classAuth},
	291:  {"DATABASE_ACCESS_DENIED", classAuth},
	497:  {"ACCESS_DENIED", classAuth},
	516:  {"AUTHENTICATION_FAILED", classAuth},
	720:  {"USER_EXPIRED", classAuth},
	767:  {"REQUIRED_SECOND_FACTOR", classAuth},
	160:  {"TOO_SLOW", classOverload},
	173:  {"CANNOT_ALLOCATE_MEMORY", classOverload},
	201:  {"QUOTA_EXCEEDED", classOverload},
	202:  {"TOO_MANY_SIMULTANEOUS_QUERIES", classOverload},
	203:  {"NO_FREE_CONNECTION", classOverload},
	241:  {"MEMORY_LIMIT_EXCEEDED", classOverload},
	252:  {"TOO_MANY_PARTS", classOverload},
	439:  {"CANNOT_SCHEDULE_TASK", classOverload},
	473:  {"DEADLOCK_AVOIDED", classOverload},
	700:  {"USER_SESSION_LIMIT_EXCEEDED", classOverload},
	745:  {"SERVER_OVERLOADED", classOverload},
	749:  {"TCP_CONNECTION_LIMIT_REACHED", classOverload},
	763:  {"SESSION_REFUSED", classOverload},
	776:  {"RESOURCE_LIMIT_EXCEEDED", classOverload},
	777:  {"MEMORY_RESERVATION_KILLED", classOverload},
	778:  {"MEMORY_RESERVATION_FAILED", classOverload},
	33:   {"CANNOT_READ_ALL_DATA", classDisk},
	40:   {"CHECKSUM_DOESNT_MATCH", classDisk},
	74:   {"CANNOT_READ_FROM_FILE_DESCRIPTOR", classDisk},
	75:   {"CANNOT_WRITE_TO_FILE_DESCRIPTOR", classDisk},
	76:   {"CANNOT_OPEN_FILE", classDisk},
	88:   {"CANNOT_TRUNCATE_FILE", classDisk},
	107:  {"FILE_DOESNT_EXIST", classDisk},
	172:  {"CANNOT_CREATE_DIRECTORY", classDisk},
	204:  {"CANNOT_FSYNC", classDisk},
	243:  {"NOT_ENOUGH_SPACE", classDisk},
	246:  {"CORRUPTED_DATA", classDisk},
	499:  {"S3_ERROR", classDisk},
	586:  {"CANNOT_CREATE_FILE", classDisk},
	164:  {"READONLY", classReadOnly},
	242:  {"TABLE_IS_READ_ONLY", classReadOnly},
	472:  {"READONLY_SETTING", classReadOnly},
	774:  {"TABLE_IS_PERMANENTLY_READ_ONLY", classReadOnly},
	225:  {"NO_ZOOKEEPER", classQuorum},
	244:  {"UNEXPECTED_ZOOKEEPER_ERROR", classQuorum},
	254:  {"NO_ACTIVE_REPLICAS", classQuorum},
	265:  {"NO_AVAILABLE_REPLICA", classQuorum},
	285:  {"TOO_FEW_LIVE_REPLICAS", classQuorum},
	286:  {"UNSATISFIED_QUORUM_FOR_PREVIOUS_WRITE", classQuorum},
	289:  {"REPLICA_IS_NOT_IN_QUORUM", classQuorum},
	319:  {"UNKNOWN_STATUS_OF_INSERT", classQuorum},
	369:  {"ALL_REPLICAS_ARE_STALE", classQuorum},
	416:  {"REPLICA_STATUS_CHANGED", classQuorum},
	999:  {"KEEPER_EXCEPTION", classQuorum},
	8:    {"THERE_IS_NO_COLUMN", classSchema},
	10:   {"NOT_FOUND_COLUMN_IN_BLOCK", classSchema},
	16:   {"NO_SUCH_COLUMN_IN_TABLE", classSchema},
	44:   {"ILLEGAL_COLUMN", classSchema},
	47:   {"UNKNOWN_IDENTIFIER", classSchema},
	53:   {"TYPE_MISMATCH", classSchema},
	60:   {"UNKNOWN_TABLE", classSchema},
	70:   {"CANNOT_CONVERT_TYPE", classSchema},
	81:   {"UNKNOWN_DATABASE", classSchema},
	115:  {"UNKNOWN_SETTING", classSchema},
	218:  {"TABLE_IS_DROPPED", classSchema},
	452:  {"SETTING_CONSTRAINT_VIOLATION", classAuth},
	1000: {"POCO_EXCEPTION", classOther},
	1001: {"STD_EXCEPTION", classOther},
	1002: {"UNKNOWN_EXCEPTION", classOther},
}

// errSchema is wrapped where the table's columns are not those of ours.
var errSchema = errors.New("unexpected column")

// classify decides alone whether a failure may be final: classRefused says
// that the server took the data and a row's value was at fault. Everything
// else is tried again.
func classify(err error) class {
	var exception *ch.Exception
	var network net.Error
	switch {
	case errors.As(err, &exception):
		if c, known := codes[exception.Code]; known {
			return c.class
		}
		return classOther
	case errors.Is(err, errSchema):
		return classSchema
	case errors.Is(err, context.Canceled):
		return classCancelled
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, ch.ErrAcquireConnTimeout):
		return classTimeout
	case isTLS(err):
		return classTLS
	case errors.As(err, &network):
		if network.Timeout() {
			return classTimeout
		}
		return classNetwork
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed), errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNRESET):
		return classNetwork
	}
	return classOther
}

// isTLS finds a certificate that is not accepted, ours or the server's, and a
// server that does not speak TLS.
func isTLS(err error) bool {
	var verification *tls.CertificateVerificationError
	var header tls.RecordHeaderError
	var operation *net.OpError
	return errors.As(err, &verification) || errors.As(err, &header) ||
		errors.As(err, &operation) && operation.Op == "remote error" // a TLS alert, see crypto/tls
}

// hinted adds what can be done to an error of the server or the network.
func hinted(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w; %s", err, hints[classify(err)])
}
