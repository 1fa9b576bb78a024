// Command franz_go_client produces numbers to a topic and consumes them until its standard input ends.
//
// Its output has a line for each number that the brokers have acknowledged or that it has consumed, and for each error.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

func main() {
	options := map[string]string{}
	for _, word := range os.Args[1:] {
		key, value, _ := strings.Cut(word, "=")
		options[key] = value
	}
	var output sync.Mutex
	say := func(format string, words ...any) {
		output.Lock()
		defer output.Unlock()
		fmt.Printf(format+"\n", words...)
	}
	client, err := kgo.NewClient(settings(options)...)
	if err != nil {
		say("error %v", err)
		os.Exit(1)
	}
	ctx, cancel := context.WithCancel(context.Background())
	sending, noMore := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for number := 0; sending.Err() == nil; number++ {
			value := fmt.Sprint(number)
			client.Produce(context.Background(), &kgo.Record{Value: []byte(value)}, func(_ *kgo.Record, err error) {
				if err != nil {
					say("error produce %v", err)
				} else {
					say("sent %s", value)
				}
			})
			time.Sleep(50 * time.Millisecond)
		}
	}()
	go func() {
		for {
			fetches := client.PollFetches(ctx)
			fetches.EachError(func(_ string, _ int32, err error) {
				if !errors.Is(err, context.Canceled) {
					say("error consume %v", err)
				}
			})
			fetches.EachRecord(func(record *kgo.Record) { say("got %s", record.Value) })
			if ctx.Err() != nil {
				return
			}
		}
	}()
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		if input.Text() == "flush" {
			noMore()
			<-ended
			if err := client.Flush(context.Background()); err != nil {
				say("error flush %v", err)
			}
			say("flushed")
		}
	}
	noMore()
	cancel()
	client.Close()
}

func settings(options map[string]string) []kgo.Opt {
	chosen := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(options["brokers"], ",")...),
		kgo.DefaultProduceTopic(options["topic"]),
		kgo.ConsumeTopics(options["topic"]),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	}
	if path := options["ca"]; path != "" {
		trusted := x509.NewCertPool()
		trusted.AppendCertsFromPEM(read(path))
		config := &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12}
		if pem := options["pem"]; pem != "" {
			certificate, err := tls.X509KeyPair(read(pem), read(pem))
			if err != nil {
				panic(err)
			}
			config.Certificates = []tls.Certificate{certificate}
		}
		chosen = append(chosen, kgo.DialTLSConfig(config))
	}
	user, password := options["user"], options["password"]
	switch options["mechanism"] {
	case "PLAIN":
		chosen = append(chosen, kgo.SASL(plain.Auth{User: user, Pass: password}.AsMechanism()))
	case "SCRAM-SHA-256":
		chosen = append(chosen, kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		chosen = append(chosen, kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha512Mechanism()))
	case "OAUTHBEARER":
		fresh := func(context.Context) (oauth.Auth, error) {
			return oauth.Auth{Token: strings.TrimSpace(string(read(options["token"])))}, nil
		}
		chosen = append(chosen, kgo.SASL(oauth.Oauth(fresh)))
	}
	return chosen
}

func read(path string) []byte {
	content, err := os.ReadFile(path)
	if err != nil {
		panic(err)
	}
	return content
}
