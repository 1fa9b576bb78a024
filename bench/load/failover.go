package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// failover produces to partition 0 at a steady rate while the benchmark kills its leader, and returns the longest gap between
// acknowledgements. The run ends when every record is acknowledged, however long that takes.
func failover(ctx context.Context, work Work) (Outcome, error) {
	client, err := connect(work,
		kgo.ProducerLinger(0),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		// By default the client refreshes metadata at most every few seconds, and would measure that interval.
		kgo.MetadataMinAge(50*time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }),
	)
	if err != nil {
		return Outcome{}, err
	}
	defer client.Close()
	if err := client.ProduceSync(ctx, &kgo.Record{Value: make([]byte, work.recordBytes)}).FirstErr(); err != nil {
		return Outcome{}, err
	}
	start := time.Now()
	var sent, failed atomic.Int64
	var lock sync.Mutex
	last, longest := start, time.Duration(0)
	acknowledged := func(_ *kgo.Record, err error) {
		if err != nil {
			failed.Add(1)
			return
		}
		sent.Add(1)
		lock.Lock()
		defer lock.Unlock()
		now := time.Now()
		longest, last = max(longest, now.Sub(last)), now
	}
	gap := time.Second / time.Duration(work.rate)
	for due := start; due.Sub(start) < work.duration; due = due.Add(gap) {
		time.Sleep(time.Until(due))
		client.Produce(ctx, &kgo.Record{Value: make([]byte, work.recordBytes)}, acknowledged)
	}
	if err := client.Flush(ctx); err != nil {
		return Outcome{}, err
	}
	return Outcome{
		Records: sent.Load(), Failed: failed.Load(), Seconds: time.Since(start).Seconds(), Gap: longest.Seconds(),
	}, nil
}
