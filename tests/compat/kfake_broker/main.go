// Command kfake_broker runs franz-go's fake broker until its standard input ends, and prints its address.
//
// Its arguments are configs of the broker as key=value.
package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/twmb/franz-go/pkg/kfake"
)

func main() {
	configs := map[string]string{}
	for _, word := range os.Args[1:] {
		key, value, _ := strings.Cut(word, "=")
		configs[key] = value
	}
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.BrokerConfigs(configs))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer cluster.Close()
	fmt.Println(cluster.ListenAddrs()[0])
	io.Copy(io.Discard, os.Stdin)
}
