"""The list of attempts to get into a closed cluster."""

from attempts.attempt import named
from attempts.bearer import BEARER
from attempts.brokers import BROKERS_FRAMES
from attempts.certificates import CERTIFICATES
from attempts.configs import CONFIGS
from attempts.frames import FRAMES_BEFORE_AUTHENTICATION
from attempts.http_routes import HTTP
from attempts.kafka_apis import KAFKA_APIS
from attempts.sasl import SASL
from attempts.scram import SCRAM_ATTEMPTS
from attempts.tokens import TOKENS

_BY_SASL = (*SASL, *BEARER, *SCRAM_ATTEMPTS, *TOKENS)
_BY_BYTES = (*FRAMES_BEFORE_AUTHENTICATION, *CERTIFICATES, *BROKERS_FRAMES)

ATTEMPTS = named((*KAFKA_APIS, *_BY_SASL, *_BY_BYTES, *CONFIGS, *HTTP))
