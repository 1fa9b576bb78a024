package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	produceVersion = 9
	// Positions in a record batch: of its length, of its CRC, and of the first byte that each of the two covers.
	lengthAt, lengthFrom, crcAt, crcFrom = 8, 12, 17, 21
)

// replayed opens many connections, each of which sends one encoded Produce request again and again, one in flight. No client costs
// less, so that as much as possible of the machine is left to the brokers.
func replayed(ctx context.Context, work Work) (Outcome, error) {
	leaders, err := leaderAddresses(ctx, work)
	if err != nil {
		return Outcome{}, err
	}
	var next atomic.Int64
	deadline := time.Now().Add(2*work.duration + time.Minute)
	return inTurn(work, func() (send func() error, end func(), err error) {
		partition := int(next.Add(1)) % len(leaders)
		connection, err := net.DialTimeout("tcp", leaders[partition], work.duration)
		if err != nil {
			return nil, nil, err
		}
		request, answer := produceRequest(work, int32(partition)), []byte(nil)
		return func() (err error) {
			if answer, err = roundTrip(connection, request, answer); err != nil {
				return err
			}
			return produceError(answer)
		}, func() { connection.Close() }, connection.SetDeadline(deadline)
	})
}

// leaderAddresses returns the address of the leader of each partition of the topic.
func leaderAddresses(ctx context.Context, work Work) ([]string, error) {
	client, err := connect(work)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	found, err := kadm.NewClient(client).Metadata(ctx, work.topic)
	if err != nil {
		return nil, err
	}
	addresses := map[int32]string{}
	for _, broker := range found.Brokers {
		addresses[broker.NodeID] = fmt.Sprintf("%s:%d", broker.Host, broker.Port)
	}
	var leaders []string
	for _, partition := range found.Topics[work.topic].Partitions.Sorted() {
		address, known := addresses[partition.Leader]
		if !known {
			return nil, fmt.Errorf("partition %d of %s has no leader", partition.Partition, work.topic)
		}
		leaders = append(leaders, address)
	}
	if len(leaders) == 0 {
		return nil, fmt.Errorf("there is no topic %s", work.topic)
	}
	return leaders, nil
}

// roundTrip sends a request and returns the answer behind its length, in `into` where that is large enough.
func roundTrip(connection net.Conn, request, into []byte) ([]byte, error) {
	if _, err := connection.Write(request); err != nil {
		return nil, err
	}
	var length [4]byte
	if _, err := io.ReadFull(connection, length[:]); err != nil {
		return nil, err
	}
	size := int(binary.BigEndian.Uint32(length[:]))
	if cap(into) < size {
		into = make([]byte, size)
	}
	_, err := io.ReadFull(connection, into[:size])
	return into[:size], err
}

// produceError returns the error of the only partition in an answer.
func produceError(answer []byte) error {
	response := kmsg.NewPtrProduceResponse()
	response.Version = produceVersion
	// The correlation id and the tagged fields of the header come first.
	if len(answer) < 5 {
		return fmt.Errorf("an answer has %d bytes", len(answer))
	}
	if err := response.ReadFrom(answer[5:]); err != nil {
		return err
	}
	return kerr.ErrorForCode(response.Topics[0].Partitions[0].ErrorCode)
}

// produceRequest returns a request with one record, behind its length.
func produceRequest(work Work, partition int32) []byte {
	of := kmsg.NewProduceRequestTopicPartition()
	of.Partition, of.Records = partition, oneRecord(work)
	topic := kmsg.NewProduceRequestTopic()
	topic.Topic, topic.Partitions = work.topic, []kmsg.ProduceRequestTopicPartition{of}
	request := kmsg.NewPtrProduceRequest()
	request.Version, request.Acks, request.TimeoutMillis = produceVersion, -1, 30_000
	if work.acks == "1" {
		request.Acks = 1
	}
	request.Topics = []kmsg.ProduceRequestTopic{topic}
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID("replayed")).AppendRequest(nil, request, 1)
}

func oneRecord(work Work) []byte {
	record := kmsg.Record{Value: valueOf(work)}
	// The length covers all but itself, and a length of 0 takes one byte.
	record.Length = int32(len(record.AppendTo(nil)) - 1)
	now := time.Now().UnixMilli()
	batch := kmsg.RecordBatch{
		Magic: 2, FirstTimestamp: now, MaxTimestamp: now, ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1,
		PartitionLeaderEpoch: -1, NumRecords: 1, Records: record.AppendTo(nil),
	}
	encoded := batch.AppendTo(nil)
	binary.BigEndian.PutUint32(encoded[lengthAt:], uint32(len(encoded)-lengthFrom))
	binary.BigEndian.PutUint32(encoded[crcAt:], crc32.Checksum(encoded[crcFrom:], crc32.MakeTable(crc32.Castagnoli)))
	return encoded
}
