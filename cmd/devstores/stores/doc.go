// Package stores gives tests and programs the real stores: a ClickHouse and a Kafka-protocol broker on loopback, each in a devstores
// process of its own, so that each can be killed, paused and started again on the same ports and the same folder.
//
//	s := stores.StartClickHouse(t)
//	k := stores.StartKafka(t, stores.Topic("measurements", 6))
//	…
//	require.NoError(t, s.Kill())    // kill -9, as a power cut of the process
//	require.NoError(t, s.Restart()) // same addresses, same data
//
// A test's stores stop at its end. They also end when the test's process dies, whatever it dies of. The program devstores is built
// once in a test process, without a C compiler, into .cache/bin of the module; what it fetches is fetched once for all.
//
// Environment:
//
//	TRAFFICD_TEST_KAFKA   kfake (default) or apache: the broker of StartKafka where no option names one
//	TRAFFICD_STORES_LOG   a file that gets one line for every store that a test was given
//	TRAFFICD_CACHE        see `devstores --help`
//
// A running store has goroutines in the test's process (it waits for its child). A test that looks for leaked goroutines starts its stores first and
// passes goleak.IgnoreCurrent(), or leaves the check to goleak.VerifyTestMain.
package stores
