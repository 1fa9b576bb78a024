package main

import (
	"context"
	"encoding/binary"
	"errors"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// warmUp is not counted: the client opens connections and fetches metadata and a producer id meanwhile.
const warmUp = 2 * time.Second

// Quantile holds quantiles of latencies in milliseconds.
type Quantile struct {
	P50  float64 `json:"p50"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
}

// Waits collects latencies from several goroutines.
type Waits struct {
	lock  sync.Mutex
	times []time.Duration
}

func (waits *Waits) add(wait ...time.Duration) {
	waits.lock.Lock()
	waits.times = append(waits.times, wait...)
	waits.lock.Unlock()
}

func (waits *Waits) quantile() *Quantile {
	waits.lock.Lock()
	defer waits.lock.Unlock()
	if len(waits.times) == 0 {
		return nil
	}
	sort.Slice(waits.times, func(a, b int) bool { return waits.times[a] < waits.times[b] })
	at := func(share float64) float64 {
		return float64(waits.times[int(share*float64(len(waits.times)-1))].Microseconds()) / 1000
	}
	return &Quantile{P50: at(0.5), P99: at(0.99), P999: at(0.999), Max: at(1)}
}

// latency produces at a steady rate, whatever the acknowledgements do, and counts from the time when a record was due: a broker
// that stalls is charged for every record that it delayed. A consumer measures the end-to-end latency.
func latency(ctx context.Context, work Work) (Outcome, error) {
	work.recordBytes = max(work.recordBytes, 8)
	counted := time.Now().Add(warmUp)
	end := counted.Add(work.duration)
	var acks, reads Waits
	var sent, failed atomic.Int64
	reader, err := startReader(ctx, work, counted, &reads)
	if err != nil {
		return Outcome{}, err
	}
	client, err := connect(work, kgo.ProducerLinger(0))
	if err != nil {
		return Outcome{}, err
	}
	defer client.Close()
	gap := time.Second / time.Duration(work.rate)
	for due := time.Now(); due.Before(end); due = due.Add(gap) {
		time.Sleep(time.Until(due))
		value := make([]byte, work.recordBytes)
		binary.BigEndian.PutUint64(value, uint64(due.UnixNano()))
		client.Produce(ctx, &kgo.Record{Value: value}, func(_ *kgo.Record, err error) {
			wait := time.Since(due)
			switch {
			case err != nil:
				failed.Add(1)
			case due.After(counted):
				sent.Add(1)
				acks.add(wait)
			}
		})
	}
	if err := client.Flush(ctx); err != nil {
		return Outcome{}, err
	}
	time.Sleep(time.Second)
	reader()
	return Outcome{
		Records: sent.Load(), Failed: failed.Load(), Seconds: work.duration.Seconds(),
		Ack: acks.quantile(), EndToEnd: reads.quantile(),
	}, nil
}

// startReader reads the topic from its end, and returns a function that stops it. Latencies count from when records were due.
func startReader(ctx context.Context, work Work, counted time.Time, reads *Waits) (stop func(), err error) {
	return follow(ctx, work, func(due, now time.Time) {
		if due.After(counted) {
			reads.add(now.Sub(due))
		}
	})
}

// follow calls seen for each record that is written from now on, with the time in it. It returns a function that stops it.
func follow(ctx context.Context, work Work, seen func(due, now time.Time)) (stop func(), err error) {
	client, err := connect(work, kgo.ConsumeTopics(work.topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtEnd()))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			fetches := client.PollFetches(ctx)
			now := time.Now()
			fetches.EachRecord(func(record *kgo.Record) {
				if len(record.Value) >= 8 {
					seen(time.Unix(0, int64(binary.BigEndian.Uint64(record.Value))), now)
				}
			})
		}
	}()
	return func() { cancel(); <-done; client.Close() }, nil
}

// oneAtATime sends a record, waits until a consumer has it, and sends the next, as Kafka's own EndToEndLatency does.
func oneAtATime(ctx context.Context, work Work) (Outcome, error) {
	work.recordBytes = max(work.recordBytes, 8)
	counted := time.Now().Add(warmUp)
	end := counted.Add(work.duration)
	arrived := make(chan time.Time, 1024)
	stop, err := follow(ctx, work, func(due, _ time.Time) { arrived <- due })
	if err != nil {
		return Outcome{}, err
	}
	defer stop()
	client, err := connect(work, kgo.ProducerLinger(0))
	if err != nil {
		return Outcome{}, err
	}
	defer client.Close()
	var acks, reads Waits
	for time.Now().Before(end) {
		sent := time.Now()
		value := make([]byte, work.recordBytes)
		binary.BigEndian.PutUint64(value, uint64(sent.UnixNano()))
		if err := client.ProduceSync(ctx, &kgo.Record{Value: value}).FirstErr(); err != nil {
			return Outcome{}, err
		}
		acknowledged := time.Since(sent)
		// The consumer may have started after the first records.
		got := isAmong(arrived, sent, time.Second)
		if sent.After(counted) {
			acks.add(acknowledged)
			reads.add(time.Since(sent))
			if !got {
				return Outcome{}, errors.New("a record was acknowledged, and not read within a second")
			}
		}
	}
	return Outcome{
		Records: int64(len(reads.times)), Seconds: work.duration.Seconds(), Ack: acks.quantile(), EndToEnd: reads.quantile(),
	}, nil
}

// isAmong waits until the record sent at that time arrives, and returns false after the limit.
func isAmong(arrived <-chan time.Time, sent time.Time, limit time.Duration) bool {
	late := time.After(limit)
	for {
		select {
		case due := <-arrived:
			if due.UnixNano() == sent.UnixNano() {
				return true
			}
		case <-late:
			return false
		}
	}
}

// oneInFlight opens many connections, each of which sends its next record when the one before is acknowledged.
func oneInFlight(ctx context.Context, work Work) (Outcome, error) {
	return inTurn(work, func() (send func() error, end func(), err error) {
		client, err := connect(work, kgo.ProducerLinger(0))
		if err != nil {
			return nil, nil, err
		}
		return func() error {
			return client.ProduceSync(ctx, &kgo.Record{Value: make([]byte, work.recordBytes)}).FirstErr()
		}, client.Close, nil
	})
}

// inTurn opens many connections, each of which sends a record again and again. open returns a function that sends one and waits for
// its acknowledgement, and one that ends the connection.
func inTurn(work Work, open func() (send func() error, end func(), err error)) (Outcome, error) {
	var waits Waits
	var count atomic.Int64
	start := time.Now()
	err := together(work.connections, func() error {
		send, end, err := open()
		if err != nil {
			return err
		}
		defer end()
		var mine []time.Duration
		for time.Since(start) < work.duration {
			sent := time.Now()
			if err := send(); err != nil {
				return err
			}
			mine = append(mine, time.Since(sent))
			count.Add(1)
		}
		waits.add(mine...)
		return nil
	})
	return Outcome{Records: count.Load(), Seconds: time.Since(start).Seconds(), Ack: waits.quantile()}, err
}
