package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// startPause slows workers until all of them have records, so that most records are left for the measurement.
	startPause = 100 * time.Millisecond
	// leftShare of the records is not taken: no worker waits for records while it is measured.
	leftShare = 0.05
	// flushLimit is how long the last acknowledgements may take.
	flushLimit = 30 * time.Second
)

// share has work.consumers workers of one share group take and acknowledge records of the topic, from its start. It counts from
// when each worker has taken records until work.duration has passed, or nearly all of the topic's work.records are taken, and
// all that was taken is acknowledged.
func share(ctx context.Context, work Work) (Outcome, error) {
	if err := shareFromStart(ctx, work); err != nil {
		return Outcome{}, err
	}
	ctx, enough := context.WithCancel(ctx)
	defer enough()
	var started, taken, before atomic.Int64
	var begin time.Time
	most := int64(float64(work.records) * (1 - leftShare))
	err := together(work.consumers, func() error {
		isFirst := true
		return workOn(ctx, work, func(records []*kgo.Record) {
			all := taken.Add(int64(len(records)))
			if isFirst && started.Add(1) == int64(work.consumers) {
				begin = time.Now()
				before.Store(all)
				time.AfterFunc(work.duration, enough)
			}
			isFirst = false
			switch {
			case all >= most:
				enough()
			case started.Load() < int64(work.consumers):
				time.Sleep(startPause)
			}
		})
	})
	if err == nil && before.Load() == 0 {
		err = fmt.Errorf("only %d of %d workers got records before all were taken", started.Load(), work.consumers)
	}
	if err != nil {
		return Outcome{}, err
	}
	return Outcome{Records: taken.Load() - before.Load(), Seconds: time.Since(begin).Seconds()}, nil
}

// shareKill kills one worker of a share group that has taken records, and measures the time until the others have all of them.
// Records are produced at work.rate meanwhile.
func shareKill(ctx context.Context, work Work) (Outcome, error) {
	if err := shareFromStart(ctx, work); err != nil {
		return Outcome{}, err
	}
	ctx, enough := context.WithCancel(ctx)
	defer enough()
	var started atomic.Int64
	var lock sync.Mutex
	redelivered := map[int64]time.Time{}
	survivors := work.consumers - 1
	errs := make(chan error, 2)
	go func() { errs <- trickle(ctx, work) }()
	go func() {
		errs <- together(survivors, func() error {
			isFirst := true
			return workOn(ctx, work, func(records []*kgo.Record) {
				if isFirst {
					started.Add(1)
				}
				isFirst = false
				lock.Lock()
				defer lock.Unlock()
				for _, record := range records {
					if record.DeliveryCount() > 1 {
						redelivered[record.Offset] = time.Now()
					}
				}
			})
		})
	}()
	wait := func(done func() bool) error {
		for !done() {
			select {
			case err := <-errs:
				return errors.Join(err, errors.New("the workers ended early"))
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Millisecond):
			}
		}
		return nil
	}
	if err := wait(func() bool { return started.Load() == int64(survivors) }); err != nil {
		return Outcome{}, err
	}
	held, killed, err := killHolder(ctx, work)
	if err != nil {
		return Outcome{}, err
	}
	var last time.Time
	err = wait(func() bool {
		lock.Lock()
		defer lock.Unlock()
		for _, offset := range held {
			at, ok := redelivered[offset]
			if !ok {
				return false
			}
			if at.After(last) {
				last = at
			}
		}
		return true
	})
	return Outcome{Records: int64(len(held)), Seconds: last.Sub(killed).Seconds()}, err
}

// killHolder runs a worker in a process of its own, and kills it once it has records. It returns their offsets, and when.
func killHolder(ctx context.Context, work Work) (held []int64, killed time.Time, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, killed, err
	}
	words := []string{"share-hold", "--bootstrap", work.bootstrap, "--topic", work.topic}
	if work.ca != "" {
		words = append(words, "--ca", work.ca)
	}
	holder := exec.CommandContext(ctx, self, words...)
	holder.Stderr = os.Stderr
	output, err := holder.StdoutPipe()
	if err != nil {
		return nil, killed, err
	}
	if err := holder.Start(); err != nil {
		return nil, killed, err
	}
	line, err := bufio.NewReader(output).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &held)
	}
	killed = time.Now()
	_ = holder.Process.Kill()
	_ = holder.Wait()
	return held, killed, err
}

// shareHold takes records, prints their offsets as JSON, and keeps them locked until it is killed.
func shareHold(ctx context.Context, work Work) (Outcome, error) {
	err := workOn(ctx, work, func(records []*kgo.Record) {
		offsets := make([]int64, len(records))
		for index, record := range records {
			offsets[index] = record.Offset
		}
		_ = json.NewEncoder(os.Stdout).Encode(offsets)
		<-ctx.Done()
	})
	return Outcome{}, err
}

// workOn is one worker: it takes records, passes them on and accepts them, and ends with ctx, once all that it has taken is
// acknowledged.
func workOn(ctx context.Context, work Work, taken func([]*kgo.Record)) error {
	var failure atomic.Value
	client, err := connect(work, kgo.ConsumeTopics(work.topic), kgo.ShareGroup(work.topic),
		kgo.ShareAckCallback(func(_ *kgo.Client, results kgo.ShareAckResults) {
			if err := results.Error(); err != nil {
				failure.Store(err)
			}
		}))
	if err != nil {
		return err
	}
	defer client.Close()
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			break
		}
		if err := fetches.Err(); err != nil {
			return err
		}
		if records := fetches.Records(); len(records) > 0 {
			taken(records)
			client.MarkAcks(kgo.AckAccept, records...)
		}
	}
	flushing, cancel := context.WithTimeout(context.Background(), flushLimit)
	defer cancel()
	if err := client.FlushAcks(flushing); err != nil {
		return err
	}
	err, _ = failure.Load().(error)
	return err
}

// trickle produces records at work.rate until ctx ends.
func trickle(ctx context.Context, work Work) error {
	client, err := connect(work, kgo.ProducerLinger(0))
	if err != nil {
		return err
	}
	defer client.Close()
	value := valueOf(work)
	ticks := time.NewTicker(time.Second / time.Duration(work.rate))
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticks.C:
			client.Produce(ctx, &kgo.Record{Value: value}, nil)
		}
	}
}

// shareFromStart has the share group begin with the first record: by default it takes only what is written after its begin.
func shareFromStart(ctx context.Context, work Work) error {
	client, err := connect(work)
	if err != nil {
		return err
	}
	defer client.Close()
	earliest := "earliest"
	config := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	config.Name, config.Value = "share.auto.offset.reset", &earliest
	resource := kmsg.NewIncrementalAlterConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeGroupConfig, work.topic
	resource.Configs = append(resource.Configs, config)
	request := kmsg.NewPtrIncrementalAlterConfigsRequest()
	request.Resources = append(request.Resources, resource)
	response, err := request.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(response.Resources[0].ErrorCode)
}
