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
	if err := flush(ctx, client, value, records, acknowledged); err != nil {
		return err
	}
	return client.EndTransaction(ctx, kgo.TryCommit)
}

// flush writes that many records and waits until all of them are acknowledged.
func flush(
	ctx context.Context, client *kgo.Client, value []byte, records int64, acknowledged func(*kgo.Record, error),
) error {
	_ = send(ctx, client, value, records, acknowledged)
	return client.Flush(ctx)
}

// send writes that many records and waits for none of them.
func send(
	ctx context.Context, client *kgo.Client, value []byte, records int64, acknowledged func(*kgo.Record, error),
) error {
	for range records {
		client.Produce(ctx, &kgo.Record{Value: value}, acknowledged)
	}
	return nil
}

// write is one of commit, flush and send.
type write func(context.Context, *kgo.Client, []byte, int64, func(*kgo.Record, error)) error

// transactions commits one transaction after the other, and counts them.
func transactions(ctx context.Context, work Work) (Outcome, error) {
	return inParts(ctx, work, connectTransactional, commit)
}

// flushed does the same without transactions, and waits for the acknowledgements of each part instead.
func flushed(ctx context.Context, work Work) (Outcome, error) {
	return inParts(ctx, work, connectPlain, flush)
}

// pipelined does the same without any wait between the parts.
func pipelined(ctx context.Context, work Work) (Outcome, error) {
	return inParts(ctx, work, connectPlain, send)
}

func connectPlain(work Work) (*kgo.Client, error) {
	return connect(work)
}

// inParts writes parts of work.transaction records for a time, one after the other from each producer, and counts the parts.
func inParts(ctx context.Context, work Work, connected func(Work) (*kgo.Client, error), write write) (Outcome, error) {
	value := valueOf(work)
	clients := make([]*kgo.Client, work.producers)
	var failed, parts atomic.Int64
	acknowledged := func(_ *kgo.Record, err error) {
		if err != nil {
			failed.Add(1)
		}
	}
	for index := range clients {
		client, err := connected(work)
		if err != nil {
			return Outcome{}, err
		}
		defer client.Close()
		clients[index] = client
		// The first one is not counted: the client opens connections and fetches metadata and a producer id meanwhile.
		if err := write(ctx, client, value, work.transaction, acknowledged); err != nil {
			return Outcome{}, err
		}
		if err := client.Flush(ctx); err != nil {
			return Outcome{}, err
		}
	}
	var waits Waits
	var next atomic.Int64
	start := time.Now()
	err := together(work.producers, func() error {
		client := clients[next.Add(1)-1]
		for time.Since(start) < work.duration {
			began := time.Now()
			if err := write(ctx, client, value, work.transaction, acknowledged); err != nil {
				return err
			}
			waits.add(time.Since(began))
			parts.Add(1)
		}
		return client.Flush(ctx)
	})
	seconds := time.Since(start).Seconds()
	if err == nil && parts.Load() == 0 {
		err = errors.New("nothing was written in time")
	}
	return Outcome{Records: parts.Load(), Failed: failed.Load(), Seconds: seconds, Ack: waits.quantile()}, err
}
