/*
 * Record-level validation of a produced batch: the rules of contents.py, one record after the other.
 *
 * A batch's content is `count` records without a gap. A number is a zigzag varint: twice the number, odd where it is
 * negative, in octets of seven bits, the lowest first, with the highest bit set in all but the last.
 *
 *		length		number: of what follows, in octets
 *		attributes	one octet
 *		timestamp	number: relative to the batch's
 *		delta		number: the record's offset relative to the batch's, which is 0, 1, 2, ...
 *		key			number: length, -1 where there is none; and so many octets
 *		value		the same
 *		headers		number: how many; each is a name and a value, which are as a key is, but a name must be there
 *
 * Invariants:
 *
 * - read_octet alone reads the buffer, and nothing at or after `size`. It reads each octet once: were memory to
 *   change meanwhile, the answer could be wrong, but no bound.
 * - A number has up to 35 bits. After a length was added to a place, an octet is read there before the next is added.
 *   So a place, of 64 bits, stays below `size` + 2^36 and does not overflow.
 * - A place never goes back: the time is linear in the octets.
 *
 * contents.py finds the same rule broken first, and says the same of it; tests/storage/test_admission.py compares.
 */
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>

#define NUMBER_BITS_MAX 35
#define TIMESTAMP_OCTETS_MAX 10

/* Looked at while the interpreter waits: some 2 ms for the worst of headers, and 0.05 ms for what clients send. */
#define LOCKED_OCTETS_MAX (1 << 20)

typedef enum Outcome
{
	SOUND,
	PAST_BUFFER,
	PAST_BATCH,
	LONG_NUMBER,
	LONG_TIMESTAMP,
	OTHER_DELTA,
	OTHER_LENGTH,
	TOO_MANY_HEADERS,
	NO_NAME,
	OCTETS_LEFT,
	OVER_BUDGET
} Outcome;

typedef struct Walk
{
	const unsigned char *octets;
	uint64_t	size;			/* of the buffer */
	uint64_t	end;			/* of the records: at most `size` */
	uint64_t	place;			/* of the octet that is read next */
	uint64_t	delta;			/* of the record at hand */
	uint64_t	record_end;		/* of the record at hand, as its length says */
	uint64_t	headers;		/* of the record at hand, as it says */
	uint64_t	headers_left;	/* that all further records may have together */
	bool		have_keys;		/* all records so far */
} Walk;

#define CHECK(step) \
	do { Outcome outcome_ = (step); if (outcome_ != SOUND) return outcome_; } while (0)

static inline Outcome
read_octet(Walk *walk, unsigned char *octet)
{
	if (walk->place >= walk->size)
		return PAST_BUFFER;
	*octet = walk->octets[walk->place++];
	return SOUND;
}

/* Read a number as it is written, zigzag. */
static inline Outcome
read_number(Walk *walk, uint64_t *number)
{
	unsigned char octet;

	*number = 0;
	for (int shift = 0; shift < NUMBER_BITS_MAX; shift += 7)
	{
		CHECK(read_octet(walk, &octet));
		*number |= (uint64_t) (octet & 0x7F) << shift;
		if (octet < 0x80)
			return SOUND;
	}
	return LONG_NUMBER;
}

/* Step over a key, a value or a part of a header. Whether it lies within the record is known at the record's end. */
static inline Outcome
skip_field(Walk *walk, bool *is_there)
{
	uint64_t	length;

	CHECK(read_number(walk, &length));
	*is_there = !(length & 1);
	if (*is_there)
		walk->place += length >> 1;
	return SOUND;
}

/* Step over so many headers, a number as it is written. */
static Outcome
skip_headers(Walk *walk, uint64_t number)
{
	uint64_t	octets = walk->place < walk->record_end ? walk->record_end - walk->place : 0;
	bool		is_there;

	walk->headers = number >> 1;
	/* A header is two octets or more. */
	if ((number & 1) || walk->headers > octets / 2)
		return TOO_MANY_HEADERS;
	if (walk->headers > walk->headers_left)
		return OVER_BUDGET;
	walk->headers_left -= walk->headers;
	for (uint64_t header = 0; header < walk->headers; header++)
	{
		CHECK(skip_field(walk, &is_there));
		if (!is_there)
			return NO_NAME;
		CHECK(skip_field(walk, &is_there));
	}
	return SOUND;
}

static inline Outcome
skip_record(Walk *walk)
{
	uint64_t	number;
	uint64_t	timestamp;
	unsigned char octet;
	bool		is_there;

	CHECK(read_number(walk, &number));
	walk->record_end = walk->place + (number >> 1);
	if ((number & 1) || walk->record_end > walk->end)
		return PAST_BATCH;
	walk->place++;				/* attributes: no bit of them means anything */
	timestamp = walk->place;
	do
		CHECK(read_octet(walk, &octet));
	while (octet > 0x7F);
	if (walk->place - timestamp > TIMESTAMP_OCTETS_MAX)
		return LONG_TIMESTAMP;
	CHECK(read_number(walk, &number));
	if (number != walk->delta << 1)
		return OTHER_DELTA;
	CHECK(skip_field(walk, &is_there));
	walk->have_keys = walk->have_keys && is_there;
	CHECK(skip_field(walk, &is_there));
	CHECK(read_number(walk, &number));
	if (number != 0)
		CHECK(skip_headers(walk, number));
	return walk->place == walk->record_end ? SOUND : OTHER_LENGTH;
}

static Outcome
skip_records(Walk *walk, uint64_t count)
{
	for (walk->delta = 0; walk->delta < count; walk->delta++)
		CHECK(skip_record(walk));
	return walk->place == walk->end ? SOUND : OCTETS_LEFT;
}

/* Raise ValueError with the sentence that contents.py has for this. */
static void
raise_refusal(const Walk *walk, Outcome outcome, Py_ssize_t count)
{
	unsigned long long delta = walk->delta;
	unsigned long long octets;

	switch (outcome)
	{
		case PAST_BUFFER:
			PyErr_Format(PyExc_ValueError, "one of %zd records extends past the end of the batch", count);
			break;
		case PAST_BATCH:
			PyErr_Format(PyExc_ValueError, "record %llu extends past the end of the batch", delta);
			break;
		case LONG_NUMBER:
			PyErr_SetString(PyExc_ValueError, "a length of more than 32 bits");
			break;
		case LONG_TIMESTAMP:
			PyErr_Format(PyExc_ValueError, "record %llu has a timestamp of more than 64 bits", delta);
			break;
		case OTHER_DELTA:
			PyErr_Format(PyExc_ValueError, "record %llu has another offset delta", delta);
			break;
		case OTHER_LENGTH:
			PyErr_Format(PyExc_ValueError, "record %llu has a wrong length", delta);
			break;
		case TOO_MANY_HEADERS:
			octets = walk->place < walk->record_end ? walk->record_end - walk->place : 0;
			PyErr_Format(PyExc_ValueError, "%llu headers in %llu bytes", (unsigned long long) walk->headers, octets);
			break;
		case NO_NAME:
			PyErr_SetString(PyExc_ValueError, "a header without a name");
			break;
		case OCTETS_LEFT:
			octets = walk->end - walk->place;
			PyErr_Format(PyExc_ValueError, "%llu bytes after the last of %zd records", octets, count);
			break;
		case SOUND:
		case OVER_BUDGET:
			PyErr_SetString(PyExc_SystemError, "not a refusal");
			break;
	}
}

static PyObject *
examine(PyObject *module, PyObject *arguments)
{
	Py_buffer	buffer;
	Py_ssize_t	end;
	Py_ssize_t	count;
	Py_ssize_t	headers_max;
	Walk		walk = {0};
	Outcome		outcome;

	(void) module;
	if (!PyArg_ParseTuple(arguments, "y*nnn:examine", &buffer, &end, &count, &headers_max))
		return NULL;
	if (end < 0 || end > buffer.len || count < 0 || headers_max < 0)
	{
		PyBuffer_Release(&buffer);
		PyErr_SetString(PyExc_IndexError, "an end outside the buffer, or a negative number");
		return NULL;
	}
	walk.octets = buffer.buf;
	walk.size = (uint64_t) buffer.len;
	walk.end = (uint64_t) end;
	walk.headers_left = (uint64_t) headers_max;
	walk.have_keys = true;
	if (end <= LOCKED_OCTETS_MAX)
		outcome = skip_records(&walk, (uint64_t) count);
	else
	{
		Py_BEGIN_ALLOW_THREADS
		outcome = skip_records(&walk, (uint64_t) count);
		Py_END_ALLOW_THREADS
	}
	PyBuffer_Release(&buffer);

	if (outcome == OVER_BUDGET)
		Py_RETURN_NONE;
	if (outcome != SOUND)
	{
		raise_refusal(&walk, outcome, count);
		return NULL;
	}
	return Py_BuildValue("(Nn)", PyBool_FromLong(walk.have_keys), headers_max - (Py_ssize_t) walk.headers_left);
}

static PyMethodDef methods[] = {
	{"examine", examine, METH_VARARGS,
	"examine(buffer, end, count, headers_max)\n--\n\n"
	"Check that `buffer` up to `end` is `count` records. Return whether each has a key, and the number of headers;\n"
	"None where there are more than `headers_max`. Raises ValueError."},
	{NULL, NULL, 0, NULL}
};

static struct PyModuleDef definition = {
	PyModuleDef_HEAD_INIT,
	.m_name = "record_walk",
	.m_doc = "Record-level validation of a produced batch (ADR 27).",
	.m_size = 0,
	.m_methods = methods,
};

PyMODINIT_FUNC
PyInit_record_walk(void)
{
	return PyModuleDef_Init(&definition);
}
