"""Valid requests at their largest, sent to a running broker beside clients whose waits are measured."""
