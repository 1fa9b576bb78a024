"""The client side of the Kafka protocol: a codec and SASL without I/O, TLS, and a blocking connection on them."""
