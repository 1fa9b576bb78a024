package main

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

type partitions map[int32]kgo.Offset

// consume reads the topic from its start until its consumers together have read work.records records. Partitions are assigned
// to the consumers as in a group, but without the time that a group takes to form.
func consume(ctx context.Context, work Work) (Outcome, error) {
	shares, err := dealt(ctx, work)
	if err != nil {
		return Outcome{}, err
	}
	ctx, enough := context.WithCancel(ctx)
	defer enough()
	var seen, next atomic.Int64
	start := time.Now()
	err = together(len(shares), func() error {
		return read(ctx, work, shares[next.Add(1)-1], &seen, enough)
	})
	return Outcome{Records: seen.Load(), Seconds: time.Since(start).Seconds()}, err
}

// read counts the records in its partitions, at work.rate if that is not 0; the consumer that reads the last of all records
// calls enough.
func read(ctx context.Context, work Work, mine partitions, seen *atomic.Int64, enough func()) error {
	client, err := connect(work, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{work.topic: mine}))
	if err != nil {
		return err
	}
	defer client.Close()
	start := time.Now()
	for seen.Load() < work.records {
		fetches := client.PollFetches(ctx)
		// Other consumers have read the rest, so the poll was canceled.
		if errors.Is(ctx.Err(), context.Canceled) {
			return nil
		}
		if err := fetches.Err(); err != nil {
			return err
		}
		if seen.Add(int64(fetches.NumRecords())) >= work.records {
			enough()
		} else if work.rate > 0 {
			time.Sleep(time.Until(start.Add(time.Duration(seen.Load()) * time.Second / time.Duration(work.rate))))
		}
	}
	return nil
}

// produceAndConsume produces records while one consumer reads them, and ends when the consumer has all of them.
func produceAndConsume(ctx context.Context, work Work) (Outcome, error) {
	ends, err := ends(ctx, work)
	if err != nil {
		return Outcome{}, err
	}
	reading, enough := context.WithCancel(ctx)
	defer enough()
	var seen atomic.Int64
	done := make(chan error, 1)
	start := time.Now()
	go func() { done <- read(reading, work, ends, &seen, enough) }()
	outcome, err := produce(ctx, work)
	if err != nil {
		return Outcome{}, err
	}
	err = <-done
	outcome.Seconds = time.Since(start).Seconds()
	return outcome, err
}

// dealt assigns partitions to each consumer, from their start.
func dealt(ctx context.Context, work Work) ([]partitions, error) {
	ends, err := ends(ctx, work)
	if err != nil {
		return nil, err
	}
	shares := make([]partitions, min(work.consumers, len(ends)))
	for partition := range ends {
		share := int(partition) % len(shares)
		if shares[share] == nil {
			shares[share] = partitions{}
		}
		shares[share][partition] = kgo.NewOffset().AtStart()
	}
	return shares, nil
}

// ends returns the current end offset of each partition of the topic.
func ends(ctx context.Context, work Work) (partitions, error) {
	client, err := connect(work)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	listed, err := kadm.NewClient(client).ListEndOffsets(ctx, work.topic)
	if err != nil {
		return nil, err
	}
	if err := listed.Error(); err != nil {
		return nil, err
	}
	found := partitions{}
	listed.Each(func(end kadm.ListedOffset) { found[end.Partition] = kgo.NewOffset().At(end.Offset) })
	return found, nil
}
