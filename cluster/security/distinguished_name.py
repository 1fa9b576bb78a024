"""The distinguished name of a certificate, as RFC 2253 and Java write it."""

from collections.abc import Iterator

from cryptography import x509

_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
"""Attributes with a keyword in Java's RFC 2253 names. The values of others are written in hexadecimal digits."""
_ESCAPED = frozenset(',=+<>#;"\\')


def distinguished_name(certificate: bytes) -> str:
    """Return the subject of a certificate (DER) as Java's X500Principal.getName() writes it."""
    subject = x509.load_der_x509_certificate(certificate).subject
    names = _elements(subject.public_bytes())
    return ",".join("+".join(map(_attribute, _elements(one))) for one in reversed(list(names)))


def _attribute(element: bytes) -> str:
    oid, value = _elements(element)
    dotted = _dotted(oid)
    keyword = _KEYWORDS.get(dotted)
    text = _text(value)
    if keyword is None or text is None:
        return f"{keyword or dotted}=#{value.hex()}"
    return f"{keyword}={_escaped(text)}"


def _escaped(text: str) -> str:
    escaped = "".join("\\" + char if char in _ESCAPED else "\\00" if char == "\0" else char for char in text)
    leading = len(escaped) - len(escaped.lstrip(" "))
    body = escaped[leading:]
    trailing = len(body) - len(body.rstrip(" "))
    return "\\ " * leading + body[: len(body) - trailing] + "\\ " * trailing


_STRINGS = {0x0C: "utf-8", 0x13: "ascii", 0x14: "latin-1", 0x16: "ascii", 0x1C: "utf-32-be", 0x1E: "utf-16-be"}
"""ASN.1 tags of strings, with their encodings."""


def _text(value: bytes) -> str | None:
    """Return the text of a DER string; None for other types."""
    encoding = _STRINGS.get(value[0])
    if encoding is None:
        return None
    try:
        return value[_content(value, 0)[0] :].decode(encoding)
    except UnicodeDecodeError:
        return None


def _elements(der: bytes) -> Iterator[bytes]:
    """Yield the elements of a DER sequence or set, with their headers."""
    at, end = _content(der, 0)
    while at < end:
        _, after = _content(der, at)
        yield der[at:after]
        at = after


def _content(der: bytes, at: int) -> tuple[int, int]:
    """Return start and end of the content of the element at `at`. The library has checked the lengths."""
    length, start = der[at + 1], at + 2
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(der[at + 2 : start])
    return start, start + length


def _dotted(oid: bytes) -> str:
    numbers, number = list[int](), 0
    for byte in oid[_content(oid, 0)[0] :]:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))
