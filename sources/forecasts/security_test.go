package forecasts

import (
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"trafficd/sinks/kafka"
)

// TestSecurityIsThatOfTheSink: a source and a sink know nothing of each other,
// so each reads TLS and SASL itself. For the operator they are one thing: the same
// keys, and the same words about what is wrong with them.
func TestSecurityIsThatOfTheSink(t *testing.T) {
	keysOf := func(section any) (keys []string) {
		for _, field := range reflect.VisibleFields(reflect.TypeOf(section)) {
			keys = append(keys, field.Tag.Get("koanf")+" "+field.Type.String())
		}
		return keys
	}
	require.Equal(t, keysOf(kafka.TLS{}), keysOf(TLS{}))
	require.Equal(t, keysOf(kafka.SASL{}), keysOf(SASL{}))

	f := func(security TLS, identity SASL, want string) {
		t.Helper()
		ours, theirs := DefaultConfig().Kafka, kafka.DefaultConfig()
		ours.TLS, ours.SASL = security, identity
		theirs.TLS, theirs.SASL = kafka.TLS(security), kafka.SASL(identity)
		err := ours.Validate()
		if err == nil {
			_, err = ours.Transport()
		}
		sink, sinkErr := kafka.New(theirs, zerolog.Nop())
		if want == "" {
			require.NoError(t, err)
			require.NoError(t, sinkErr)
			require.NoError(t, sink.Close())
			return
		}
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, sinkErr, strings.ReplaceAll(err.Error(), "forecasts.kafka.", "kafka."))
	}
	_, ca := certificate(t)
	missing := filepath.Join(t.TempDir(), "missing.pem")
	f(TLS{}, SASL{}, "")
	f(TLS{Enabled: true, CA: ca}, SASL{Mechanism: "plain", Username: "u", Password: "p"}, "")
	f(TLS{Enabled: true, InsecureSkipVerify: true}, SASL{Mechanism: "scram-sha-256", Username: "u", Password: "p"}, "")
	f(TLS{}, SASL{Mechanism: "scram-sha-512", Username: "u", Password: "p"}, "")
	f(TLS{CA: ca}, SASL{}, "tls.enabled is false")
	f(TLS{Enabled: true, Cert: "c.pem"}, SASL{}, "belong together")
	f(TLS{Enabled: true, CA: missing}, SASL{}, "cannot read forecasts.kafka.tls.ca")
	f(TLS{Enabled: true, CA: "security_test.go"}, SASL{}, "holds no PEM certificate")
	f(TLS{Enabled: true, Cert: ca, Key: ca}, SASL{}, "cannot use forecasts.kafka.tls.cert with forecasts.kafka.tls.key")
	f(TLS{}, SASL{Password: "p"}, "sasl.mechanism is empty")
	f(TLS{}, SASL{Mechanism: "plain", Username: "u"}, "have to be set for plain")
	f(TLS{}, SASL{Mechanism: "gssapi", Username: "u", Password: "p"}, "known are plain, scram-sha-256 and scram-sha-512")
	f(TLS{}, SASL{Mechanism: "scram-sha-256", Username: "u\x00", Password: "p"}, "cannot use forecasts.kafka.sasl.username")
}
