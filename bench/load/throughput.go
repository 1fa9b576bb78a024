package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// createTopic creates the topic if it is missing, and waits until every partition has a leader and all replicas in sync.
func createTopic(ctx context.Context, work Work) (Outcome, error) {
	client, err := connect(work)
	if err != nil {
		return Outcome{}, err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	for {
		_, err = admin.CreateTopic(ctx, int32(work.partitions), int16(work.replication), nil, work.topic)
		// A broker may answer before the controller counts it among those that take replicas.
		if !errors.Is(err, kerr.InvalidReplicationFactor) || ctx.Err() != nil {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		return Outcome{}, err
	}
	for ctx.Err() == nil {
		topics, err := admin.ListTopics(ctx, work.topic)
		if err == nil && allInSync(topics[work.topic]) {
			return Outcome{}, nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return Outcome{}, ctx.Err()
}

func allInSync(topic kadm.TopicDetail) bool {
	for _, partition := range topic.Partitions {
		if partition.Err != nil || partition.Leader < 0 || len(partition.ISR) < len(partition.Replicas) {
			return false
		}
	}
	return topic.Err == nil && len(topic.Partitions) > 0
}

// produce sends the records as fast as the acknowledgements allow, split over the producers.
func produce(ctx context.Context, work Work) (Outcome, error) {
	value := valueOf(work)
	share := work.records / int64(work.producers)
	var failed atomic.Int64
	acknowledged := func(_ *kgo.Record, err error) {
		if err != nil {
			failed.Add(1)
		}
	}
	start := time.Now()
	err := together(work.producers, func() error {
		if work.transaction > 0 {
			return produceTransactions(ctx, work, value, share, acknowledged)
		}
		client, err := connect(work)
		if err != nil {
			return err
		}
		defer client.Close()
		for range share {
			client.Produce(ctx, &kgo.Record{Value: value}, acknowledged)
		}
		return client.Flush(ctx)
	})
	return Outcome{Records: share * int64(work.producers), Failed: failed.Load(), Seconds: time.Since(start).Seconds()}, err
}

// produceTransactions sends the records in transactions of work.transaction each.
func produceTransactions(
	ctx context.Context, work Work, value []byte, records int64, acknowledged func(*kgo.Record, error),
) error {
	client, err := connectTransactional(work)
	if err != nil {
		return err
	}
	defer client.Close()
	for left := records; left > 0; left -= work.transaction {
		if err := commit(ctx, client, value, min(left, work.transaction), acknowledged); err != nil {
			return err
		}
	}
	return nil
}

// together runs the same work in parallel that many times, and returns all errors joined.
func together(times int, work func() error) error {
	var group sync.WaitGroup
	errs := make([]error, times)
	for index := range times {
		group.Add(1)
		go func() {
			defer group.Done()
			errs[index] = work()
		}()
	}
	group.Wait()
	return errors.Join(errs...)
}
