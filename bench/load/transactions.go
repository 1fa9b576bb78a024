package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var transactionalIds atomic.Int64

// connectTransactional returns a producer with a transactional id of its own.
func connectTransactional(work Work) (*kgo.Client, error) {
	id := fmt.Sprintf("bench-%d-%d-%d", os.Getpid(), time.Now().UnixNano(), transactionalIds.Add(1))
	return connect(work, kgo.TransactionalID(id))
}

// commit writes that many records in a transaction and commits it.
func commit(
	ctx context.Context, client *kgo.Client, value []byte, records int64, acknowledged func(*kgo.Record, error),
) error {
	if err := client.BeginTransaction(); err != nil {
		return err
	}
	for range records {
		client.Produce(ctx, &kgo.Record{Value: value}, acknowledged)
	}
	if err := client.Flush(ctx); err != nil {
		return err
	}
	return client.EndTransaction(ctx, kgo.TryCommit)
}

// transactions commits one transaction after the other from one producer, and counts them.
func transactions(ctx context.Context, work Work) (Outcome, error) {
	client, err := connectTransactional(work)
	if err != nil {
		return Outcome{}, err
	}
	defer client.Close()
	value := valueOf(work)
	var failed atomic.Int64
	acknowledged := func(_ *kgo.Record, err error) {
		if err != nil {
			failed.Add(1)
		}
	}
	// The first one is not counted: the client opens connections and fetches metadata and a producer id meanwhile.
	if err := commit(ctx, client, value, work.transaction, acknowledged); err != nil {
		return Outcome{}, err
	}
	var waits Waits
	start := time.Now()
	for time.Since(start) < work.duration {
		began := time.Now()
		if err := commit(ctx, client, value, work.transaction, acknowledged); err != nil {
			return Outcome{}, err
		}
		waits.add(time.Since(began))
	}
	seconds := time.Since(start).Seconds()
	if len(waits.times) == 0 {
		return Outcome{}, errors.New("no transaction was committed in time")
	}
	return Outcome{Records: int64(len(waits.times)), Failed: failed.Load(), Seconds: seconds, Ack: waits.quantile()}, nil
}
