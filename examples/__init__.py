"""Programs that use Cordwood as anybody would: through an ordinary Kafka client."""
