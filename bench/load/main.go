// Load runs one line of the benchmark on a cluster that speaks Kafka's protocol, and prints the outcome as one JSON object.
//
//	load MODE --bootstrap HOST:PORT --topic TOPIC [flags]
//
// The modes are topic (create it), produce, consume, produce-and-consume, transactions, flushed and pipelined (the same records
// without transactions), latency, one-at-a-time, one-in-flight and failover; ../load_in_python.py takes the same flags. Only this program has replayed
// (one-in-flight with an encoded request), share (workers of a share group), share-kill (one of them is killed) and share-hold (the one).
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Work holds the options of the command line.
type Work struct {
	bootstrap   string
	topic       string
	partitions  int
	replication int
	records     int64
	recordBytes int
	acks        string
	producers   int
	consumers   int
	connections int
	rate        int
	duration    time.Duration
	transaction int64
	committed   bool
	ca          string
}

// Outcome is the printed object. A field is left out where the mode has no such figure.
type Outcome struct {
	Records  int64     `json:"records"`
	Failed   int64     `json:"failed"`
	Seconds  float64   `json:"seconds"`
	Ack      *Quantile `json:"ack_ms,omitempty"`
	EndToEnd *Quantile `json:"end_to_end_ms,omitempty"`
	Gap      float64   `json:"longest_gap_s,omitempty"`
}

var modes = map[string]func(context.Context, Work) (Outcome, error){
	"topic":               createTopic,
	"produce":             produce,
	"consume":             consume,
	"produce-and-consume": produceAndConsume,
	"transactions":        transactions,
	"flushed":             flushed,
	"pipelined":           pipelined,
	"latency":             latency,
	"one-at-a-time":       oneAtATime,
	"one-in-flight":       oneInFlight,
	"replayed":            replayed,
	"failover":            failover,
	"share":               share,
	"share-kill":          shareKill,
	"share-hold":          shareHold,
}

func main() {
	if len(os.Args) < 2 || modes[os.Args[1]] == nil {
		fail(fmt.Errorf("the first argument is one of: %s", strings.Join(slices.Sorted(maps.Keys(modes)), ", ")))
	}
	work, limit := parse(os.Args[2:])
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	outcome, err := modes[os.Args[1]](ctx, work)
	if err != nil {
		fail(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(outcome); err != nil {
		fail(err)
	}
}

func parse(arguments []string) (work Work, limit time.Duration) {
	flags := flag.NewFlagSet("load", flag.ExitOnError)
	flags.StringVar(&work.bootstrap, "bootstrap", "127.0.0.1:9092", "brokers to begin with, host:port,host:port")
	flags.StringVar(&work.topic, "topic", "bench", "topic")
	flags.IntVar(&work.partitions, "partitions", 6, "partitions of a topic that is created")
	flags.IntVar(&work.replication, "replication", 1, "replicas of a topic that is created")
	flags.Int64Var(&work.records, "records", 1_000_000, "records in all")
	flags.IntVar(&work.recordBytes, "record-bytes", 100, "bytes of a record's value")
	flags.StringVar(&work.acks, "acks", "all", "all or 1")
	flags.IntVar(&work.producers, "producers", 1, "producers at once, in produce, transactions, flushed and pipelined")
	flags.IntVar(&work.consumers, "consumers", 1, "consumers at once, in consume; each reads partitions of its own")
	flags.IntVar(&work.connections, "connections", 16, "connections at once, in one-in-flight")
	flags.IntVar(&work.rate, "rate", 1000, "records a second, in latency and failover")
	flags.Int64Var(&work.transaction, "transaction-records", 0, "records of a transaction, in produce and transactions, and of what is counted in flushed and pipelined; 0: none")
	flags.BoolVar(&work.committed, "read-committed", false, "read only what is committed")
	flags.StringVar(&work.ca, "ca", "", "the certificate of brokers with TLS")
	seconds := flags.Float64("seconds", 10, "how long, in modes that run for a time")
	limitSeconds := flags.Float64("limit-seconds", 280, "give up after that long")
	_ = flags.Parse(arguments)
	work.duration = time.Duration(*seconds * float64(time.Second))
	return work, time.Duration(*limitSeconds * float64(time.Second))
}

// connect returns a client with the same settings for every system and mode.
func connect(work Work, extra ...kgo.Opt) (*kgo.Client, error) {
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(work.bootstrap, ",")...),
		kgo.DefaultProduceTopic(work.topic),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.ProducerBatchMaxBytes(1 << 20),
		kgo.ProducerLinger(5 * time.Millisecond),
		kgo.MaxBufferedRecords(200_000),
		kgo.FetchMaxBytes(50 << 20),
		kgo.FetchMaxPartitionBytes(4 << 20),
		kgo.BrokerMaxReadBytes(200 << 20),
	}
	if work.ca != "" {
		trusted, err := certificates(work.ca)
		if err != nil {
			return nil, err
		}
		options = append(options, kgo.DialTLSConfig(&tls.Config{RootCAs: trusted}))
	}
	if work.acks == "1" {
		options = append(options, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	}
	if work.committed {
		options = append(options, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	return kgo.NewClient(append(options, extra...)...)
}

func certificates(file string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s has no certificate", file)
	}
	return pool, nil
}

func valueOf(work Work) []byte {
	return []byte(strings.Repeat("abcdefghijklmnopqrstuvwxyz", work.recordBytes/26+1)[:work.recordBytes])
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "load:", err)
	os.Exit(1)
}
