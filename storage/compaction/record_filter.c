/*
 * Both passes of the log cleaner over batches that are not compressed (ADR 39): keys into a table, and the filter.
 * in_python.py does the same more slowly; tests/storage/compaction/test_tables.py compares.
 *
 * A table is a buffer of the caller's: a Head, and `slots` entries of 16 octets with linear probing. Of a key's hash
 * of 128 bits, 32 choose the slot where the search begins, and 96 are in the entry. An entry without a place is free.
 *
 * Invariants:
 *
 * - read_octet alone reads the records, and nothing at or after `end`; hash_of and copy read what lies before a place
 *   that was compared with it. The caller owns the buffers, and no other thread changes them meanwhile.
 * - At least one slot stays free (`used_max` < `slots`), so that each search ends.
 * - A record that is written again grows by at most RECORD_GROWTH octets, and a batch is written only where there is
 *   room for that.
 */
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define HEADER_OCTETS 61
#define LENGTH_PREFIX_OCTETS 12
#define MAGIC 2
#define CODEC_MASK 0x07
#define LOG_APPEND_TIME 0x08
#define DELETE_HORIZON 0x40
#define NO_TIMESTAMP (-1)

#define LENGTH_BITS_MAX 35
#define NUMBER_BITS_MAX 70
/* The timestamp's delta from one octet to ten, and one more of the length. */
#define RECORD_GROWTH 10
/* Worked on while the interpreter waits: some 0.2 ms. */
#define LOCKED_OCTETS_MAX (1 << 16)
/* Records whose entries are fetched at a time: of a search in a table larger than the caches, most is that wait. */
#define AHEAD 16

#ifdef __GNUC__
#define FETCH(place) __builtin_prefetch(place)
#else
#define FETCH(place) ((void) (place))
#endif

typedef struct Head
{
	uint64_t	seed[2];
	int64_t		start;			/* offset of which an entry's place counts from 1 */
	int64_t		end;			/* offset up to which all records are in the table */
	uint64_t	slots;
	uint64_t	used;
	uint64_t	used_max;
	uint64_t	is_full;
} Head;

typedef struct Entry
{
	uint64_t	high;			/* of the hash */
	uint32_t	low;
	uint32_t	place;			/* offset - start + 1 */
} Entry;

typedef struct Hash
{
	uint64_t	first;
	uint64_t	second;
} Hash;

typedef struct Table
{
	Head		head;
	unsigned char *entries;
} Table;

typedef struct Batch
{
	const unsigned char *octets;
	uint64_t	size;
	int64_t		base_offset;
	int64_t		end_offset;
	int64_t		base_time;
	int64_t		max_time;
	uint32_t	attributes;
	uint32_t	count;
} Batch;

typedef struct Record
{
	const unsigned char *begin;	/* of its length */
	const unsigned char *end;
	const unsigned char *after_time;
	const unsigned char *key;
	uint64_t	key_octets;
	int64_t		time;			/* relative to the batch's */
	int64_t		offset;
	bool		has_key;
	bool		has_value;
} Record;

/* A place among the records of a batch. */
typedef struct Cursor
{
	const unsigned char *place;
	const unsigned char *end;
	int64_t		base_offset;
	int64_t		next_offset;
	int64_t		end_offset;
} Cursor;

typedef struct Filter
{
	const Table *table;
	int64_t		end;			/* records from here on stay */
	int64_t		now;
	int64_t		horizon;		/* for tombstones that have none yet */
	const unsigned char *needed;	/* last offsets of batches, ascending, of eight octets each */
	uint64_t	needed_count;
	unsigned char *out;
	uint64_t	out_size;
	uint64_t	out_place;
	unsigned char *rewritten;	/* places in `out` of batches that lack their checksum, of four octets each */
	uint64_t	rewritten_max;
	uint64_t	rewritten_count;
	uint64_t	records_read;
	uint64_t	records_kept;
} Filter;

typedef enum Outcome
{
	DONE,
	FULL,
	MALFORMED,
	NO_ROOM
} Outcome;

/* ---- Numbers ---- */

static inline uint64_t
load_big(const unsigned char *octets, int count)
{
	uint64_t	number = 0;

	for (int at = 0; at < count; at++)
		number = number << 8 | octets[at];
	return number;
}

static inline void
store_big(unsigned char *octets, int count, uint64_t number)
{
	for (int at = count - 1; at >= 0; at--)
	{
		octets[at] = (unsigned char) number;
		number >>= 8;
	}
}

/* Read a varint as it is written, zigzag. */
static inline bool
read_number(const unsigned char **place, const unsigned char *end, int bits_max, uint64_t *number)
{
	*number = 0;
	for (int shift = 0; shift < bits_max && *place < end; shift += 7)
	{
		unsigned char octet = *(*place)++;

		*number |= (uint64_t) (octet & 0x7F) << shift;
		if (octet < 0x80)
			return true;
	}
	return false;
}

static inline unsigned char *
write_number(unsigned char *place, uint64_t number)
{
	while (number > 0x7F)
	{
		*place++ = (unsigned char) (number | 0x80);
		number >>= 7;
	}
	*place++ = (unsigned char) number;
	return place;
}

static inline uint64_t
zigzag(int64_t number)
{
	return ((uint64_t) number << 1) ^ (number < 0 ? UINT64_MAX : 0);
}

static inline int64_t
unzigzag(uint64_t number)
{
	return (int64_t) ((number >> 1) ^ (number & 1 ? UINT64_MAX : 0));
}

static inline uint64_t
octets_of(uint64_t number)
{
	uint64_t	octets = 1;

	while (number >>= 7)
		octets++;
	return octets;
}

/* ---- Hash: SipHash-2-4 with 128 bits ---- */

#define ROTATED(x, bits) ((x) << (bits) | (x) >> (64 - (bits)))

static inline void
sip_round(uint64_t v[4])
{
	v[0] += v[1];
	v[1] = ROTATED(v[1], 13) ^ v[0];
	v[0] = ROTATED(v[0], 32);
	v[2] += v[3];
	v[3] = ROTATED(v[3], 16) ^ v[2];
	v[0] += v[3];
	v[3] = ROTATED(v[3], 21) ^ v[0];
	v[2] += v[1];
	v[1] = ROTATED(v[1], 17) ^ v[2];
	v[2] = ROTATED(v[2], 32);
}

static inline void
sip_word(uint64_t v[4], uint64_t word)
{
	v[3] ^= word;
	sip_round(v);
	sip_round(v);
	v[0] ^= word;
}

static inline uint64_t
sip_result(uint64_t v[4])
{
	for (int nth = 0; nth < 4; nth++)
		sip_round(v);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}

static inline Hash
hash_of(const uint64_t seed[2], const unsigned char *key, uint64_t octets)
{
	uint64_t	v[4] = {
		seed[0] ^ 0x736f6d6570736575u, seed[1] ^ 0x646f72616e646f6du ^ 0xee,
		seed[0] ^ 0x6c7967656e657261u, seed[1] ^ 0x7465646279746573u
	};
	uint64_t	word;
	uint64_t	at = 0;
	Hash		hash;

	for (; octets - at >= 8; at += 8)
	{
		memcpy(&word, key + at, 8);
		sip_word(v, word);
	}
	word = octets << 56;
	for (uint64_t shift = 0; at < octets; at++, shift += 8)
		word |= (uint64_t) key[at] << shift;
	sip_word(v, word);
	v[2] ^= 0xee;
	hash.first = sip_result(v);
	v[1] ^= 0xdd;
	hash.second = sip_result(v);
	return hash;
}

/* ---- Table ---- */

static bool
open_table(Table *table, const Py_buffer *buffer)
{
	uint64_t	octets = (uint64_t) buffer->len;

	if (octets < sizeof(Head))
		return false;
	memcpy(&table->head, buffer->buf, sizeof(Head));
	table->entries = (unsigned char *) buffer->buf + sizeof(Head);
	return table->head.slots <= UINT32_MAX && (octets - sizeof(Head)) / sizeof(Entry) >= table->head.slots
		&& table->head.used <= table->head.used_max && table->head.used_max < table->head.slots;
}

/* The slot where the search for a key begins. */
static inline uint64_t
slot_of(const Table *table, Hash hash)
{
	return ((hash.first >> 32) * table->head.slots) >> 32;
}

/* Find the entry of a key, or the free one where it belongs. */
static inline unsigned char *
find(const Table *table, Hash hash, Entry *entry)
{
	uint64_t	slot = slot_of(table, hash);

	for (;;)
	{
		unsigned char *at = table->entries + slot * sizeof(Entry);

		memcpy(entry, at, sizeof(Entry));
		if (entry->place == 0 || (entry->high == hash.second && entry->low == (uint32_t) hash.first))
			return at;
		if (++slot == table->head.slots)
			slot = 0;
	}
}

/* ---- Batches and records ---- */

static bool
read_batch(Batch *batch, const unsigned char *octets, uint64_t size)
{
	int64_t		length;
	int64_t		last_delta;
	int64_t		count;

	if (size < HEADER_OCTETS)
		return false;
	length = (int32_t) load_big(octets + 8, 4);
	last_delta = (int32_t) load_big(octets + 23, 4);
	count = (int32_t) load_big(octets + 57, 4);
	if (length < HEADER_OCTETS - LENGTH_PREFIX_OCTETS || (uint64_t) length > size - LENGTH_PREFIX_OCTETS)
		return false;
	if (octets[16] != MAGIC || last_delta < 0 || count < 0 || count > last_delta + 1)
		return false;
	batch->octets = octets;
	batch->size = (uint64_t) length + LENGTH_PREFIX_OCTETS;
	batch->base_offset = (int64_t) load_big(octets, 8);
	if (batch->base_offset < 0 || batch->base_offset > INT64_MAX - INT32_MAX - 1)
		return false;
	batch->end_offset = batch->base_offset + last_delta + 1;
	batch->base_time = (int64_t) load_big(octets + 27, 8);
	batch->max_time = (int64_t) load_big(octets + 35, 8);
	batch->attributes = (uint32_t) load_big(octets + 21, 2);
	batch->count = (uint32_t) count;
	return true;
}

static Cursor
records_of(const Batch *batch)
{
	return (Cursor) {
		batch->octets + HEADER_OCTETS, batch->octets + batch->size,
		batch->base_offset, batch->base_offset, batch->end_offset
	};
}

/* Read a record as far as the length of its value. Offsets ascend, with gaps where records have been removed. */
static inline bool
next_record(Cursor *cursor, Record *record)
{
	const unsigned char *place = cursor->place;
	uint64_t	number;

	record->begin = place;
	if (!read_number(&place, cursor->end, LENGTH_BITS_MAX, &number))
		return false;
	if ((number & 1) || number >> 1 > (uint64_t) (cursor->end - place))
		return false;
	cursor->place = record->end = place + (number >> 1);
	if (place == record->end)
		return false;
	place++;					/* attributes: no bit of them means anything */
	if (!read_number(&place, record->end, NUMBER_BITS_MAX, &number))
		return false;
	record->time = unzigzag(number);
	record->after_time = place;
	if (!read_number(&place, record->end, LENGTH_BITS_MAX, &number) || (number & 1))
		return false;
	record->offset = cursor->base_offset + (int64_t) (number >> 1);
	if (record->offset < cursor->next_offset || record->offset >= cursor->end_offset)
		return false;
	cursor->next_offset = record->offset + 1;
	if (!read_number(&place, record->end, LENGTH_BITS_MAX, &number))
		return false;
	record->has_key = !(number & 1);
	record->key = place;
	record->key_octets = record->has_key ? number >> 1 : 0;
	if (record->key_octets > (uint64_t) (record->end - place))
		return false;
	place += record->key_octets;
	if (!read_number(&place, record->end, LENGTH_BITS_MAX, &number))
		return false;
	record->has_value = !(number & 1);
	return !record->has_value || number >> 1 <= (uint64_t) (record->end - place);
}

/* Read the next records, AHEAD at most, and have their entries fetched. Return how many are not malformed. */
static inline uint32_t
read_ahead(const Table *table, Cursor *cursor, uint32_t count, Record records[AHEAD], Hash hashes[AHEAD])
{
	uint32_t	nth = 0;

	for (; nth < count && next_record(cursor, &records[nth]); nth++)
	{
		hashes[nth] = hash_of(table->head.seed, records[nth].key, records[nth].key_octets);
		if (records[nth].has_key)
			FETCH(table->entries + slot_of(table, hashes[nth]) * sizeof(Entry));
	}
	return nth;
}

/* ---- First pass ---- */

static Outcome
put_record(Table *table, const Record *record, Hash hash)
{
	uint64_t	place = (uint64_t) (record->offset - table->head.start) + 1;
	Entry		entry;
	unsigned char *at;

	if (place > UINT32_MAX)
		return FULL;
	at = find(table, hash, &entry);
	if (entry.place == 0)
	{
		if (table->head.used == table->head.used_max)
			return FULL;
		table->head.used++;
		entry.high = hash.second;
		entry.low = (uint32_t) hash.first;
	}
	entry.place = (uint32_t) place;
	memcpy(at, &entry, sizeof(Entry));
	return DONE;
}

static Outcome
put_batch(Table *table, const Batch *batch)
{
	Cursor		cursor = records_of(batch);
	Record		records[AHEAD];
	Hash		hashes[AHEAD];

	if (batch->end_offset <= table->head.start)
		return DONE;
	for (uint32_t left = batch->count; left > 0;)
	{
		uint32_t	wanted = left < AHEAD ? left : AHEAD;
		uint32_t	count = read_ahead(table, &cursor, wanted, records, hashes);

		for (uint32_t nth = 0; nth < count; nth++)
		{
			const Record *record = &records[nth];

			if (record->has_key && record->offset >= table->head.start
				&& put_record(table, record, hashes[nth]) == FULL)
			{
				table->head.is_full = 1;
				table->head.end = record->offset;
				return FULL;
			}
		}
		if (count < wanted)
			return MALFORMED;
		left -= count;
	}
	if (cursor.place != cursor.end)
		return MALFORMED;
	table->head.end = batch->end_offset;
	return DONE;
}

static Outcome
put_batches(Table *table, const unsigned char *octets, uint64_t size, uint64_t *place, uint32_t other_kinds)
{
	Outcome		outcome = DONE;
	Batch		batch;

	while (outcome == DONE && *place < size)
	{
		if (!read_batch(&batch, octets + *place, size - *place))
			return MALFORMED;
		if (batch.attributes & other_kinds)
			break;
		outcome = put_batch(table, &batch);
		if (outcome == DONE)
			*place += batch.size;
	}
	return outcome;
}

/* ---- Second pass ---- */

static bool
is_needed(const Filter *filter, const Batch *batch)
{
	uint64_t	low = 0;
	uint64_t	high = filter->needed_count;

	while (low < high)
	{
		uint64_t	middle = low + (high - low) / 2;
		int64_t		offset;

		memcpy(&offset, filter->needed + middle * 8, 8);
		if (offset == batch->end_offset - 1)
			return true;
		if (offset < batch->end_offset)
			low = middle + 1;
		else
			high = middle;
	}
	return false;
}

/* `hash` is that of the key. */
static inline bool
is_kept(const Filter *filter, const Record *record, Hash hash, bool tombstones_go)
{
	Entry		entry;

	if (record->offset >= filter->end)
		return true;
	if (!record->has_key || (!record->has_value && tombstones_go))
		return false;
	find(filter->table, hash, &entry);
	return entry.place == 0 || record->offset >= filter->table->head.start + (int64_t) entry.place - 1;
}

static inline unsigned char *
copy(unsigned char *target, const unsigned char *begin, const unsigned char *end)
{
	memcpy(target, begin, (size_t) (end - begin));
	return target + (end - begin);
}

/* Write a record with another timestamp delta. Sums wrap, as they do for those that read them. */
static unsigned char *
copy_shifted(unsigned char *target, const Record *record, int64_t shift)
{
	const unsigned char *body = record->begin;
	uint64_t	time = zigzag((int64_t) ((uint64_t) record->time + (uint64_t) shift));
	uint64_t	length;

	read_number(&body, record->end, LENGTH_BITS_MAX, &length);
	length = 1 + octets_of(time) + (uint64_t) (record->end - record->after_time);
	target = write_number(target, length << 1);
	*target++ = *body;
	target = write_number(target, time);
	return copy(target, record->after_time, record->end);
}

static void
write_header(Filter *filter, const Batch *batch, uint32_t attributes, int64_t base_time, int64_t max_time,
			 uint32_t count, unsigned char *end)
{
	unsigned char *header = filter->out + filter->out_place;
	uint32_t	place = (uint32_t) filter->out_place;

	memcpy(header, batch->octets, HEADER_OCTETS);
	store_big(header + 8, 4, (uint64_t) (end - header) - LENGTH_PREFIX_OCTETS);
	store_big(header + 17, 4, 0);
	store_big(header + 21, 2, attributes);
	store_big(header + 27, 8, (uint64_t) base_time);
	store_big(header + 35, 8, (uint64_t) max_time);
	store_big(header + 57, 4, count);
	memcpy(filter->rewritten + filter->rewritten_count++ * 4, &place, 4);
	filter->out_place = (uint64_t) (end - filter->out);
}

static void
write_unchanged(Filter *filter, const Batch *batch)
{
	memcpy(filter->out + filter->out_place, batch->octets, batch->size);
	filter->out_place += batch->size;
}

static void
write_empty(Filter *filter, const Batch *batch)
{
	uint32_t	attributes = batch->attributes & ~(uint32_t) (CODEC_MASK | DELETE_HORIZON);
	unsigned char *end = filter->out + filter->out_place + HEADER_OCTETS;

	write_header(filter, batch, attributes, NO_TIMESTAMP, batch->max_time, 0, end);
}

static Outcome
filter_batch(Filter *filter, const Batch *batch)
{
	bool		has_horizon = batch->attributes & DELETE_HORIZON;
	bool		tombstones_go = has_horizon && batch->base_time <= filter->now;
	bool		has_tombstone = false;
	uint32_t	kept = 0;
	uint32_t	attributes = batch->attributes;
	int64_t		base_time = batch->base_time;
	int64_t		max_time = INT64_MIN;
	Cursor		cursor = records_of(batch);
	Record		records[AHEAD];
	Hash		hashes[AHEAD];
	const unsigned char *run = NULL;	/* of records that stay, and are not copied yet */
	unsigned char *begin = filter->out + filter->out_place + HEADER_OCTETS;
	unsigned char *target = begin;

	for (uint32_t left = batch->count; left > 0;)
	{
		uint32_t	count = left < AHEAD ? left : AHEAD;

		if (read_ahead(filter->table, &cursor, count, records, hashes) < count)
			return MALFORMED;
		for (uint32_t nth = 0; nth < count; nth++)
		{
			const Record *record = &records[nth];

			if (is_kept(filter, record, hashes[nth], tombstones_go))
			{
				int64_t		time = (int64_t) ((uint64_t) batch->base_time + (uint64_t) record->time);

				kept++;
				has_tombstone = has_tombstone || !record->has_value;
				max_time = time > max_time ? time : max_time;
				run = run ? run : record->begin;
			}
			else if (run)
			{
				target = copy(target, run, record->begin);
				run = NULL;
			}
		}
		left -= count;
	}
	if (cursor.place != cursor.end)
		return MALFORMED;
	filter->records_kept += kept;

	if (kept == 0)
	{
		if (is_needed(filter, batch))
			write_empty(filter, batch);
		return DONE;
	}
	if (has_tombstone && !has_horizon && batch->end_offset <= filter->end)
	{
		int64_t		shift = (int64_t) ((uint64_t) batch->base_time - (uint64_t) filter->horizon);

		attributes |= DELETE_HORIZON;
		base_time = filter->horizon;
		target = begin;
		cursor = records_of(batch);
		for (uint32_t left = batch->count; left > 0;)
		{
			uint32_t	count = read_ahead(filter->table, &cursor, left < AHEAD ? left : AHEAD, records, hashes);

			for (uint32_t nth = 0; nth < count; nth++)
				if (is_kept(filter, &records[nth], hashes[nth], tombstones_go))
					target = copy_shifted(target, &records[nth], shift);
			left -= count;
		}
	}
	else if (kept == batch->count)
	{
		write_unchanged(filter, batch);
		return DONE;
	}
	else if (run)
		target = copy(target, run, cursor.end);
	if (batch->attributes & LOG_APPEND_TIME)
		max_time = batch->max_time;
	write_header(filter, batch, attributes, base_time, max_time, kept, target);
	return DONE;
}

static Outcome
filter_batches(Filter *filter, const unsigned char *octets, uint64_t size, uint64_t *place, uint32_t other_kinds)
{
	Outcome		outcome = DONE;
	Batch		batch;

	while (outcome == DONE && *place < size)
	{
		if (!read_batch(&batch, octets + *place, size - *place))
			return MALFORMED;
		if (batch.attributes & other_kinds)
			break;
		if (filter->out_size - filter->out_place < batch.size + (uint64_t) RECORD_GROWTH * batch.count
			|| filter->rewritten_count == filter->rewritten_max)
			return NO_ROOM;
		filter->records_read += batch.count;
		if (batch.base_offset < filter->end)
			outcome = filter_batch(filter, &batch);
		else
		{
			filter->records_kept += batch.count;
			write_unchanged(filter, &batch);
		}
		if (outcome == DONE)
			*place += batch.size;
	}
	return outcome;
}

/* ---- For Python ---- */

static PyObject *
raise_malformed(const char *octets, Py_ssize_t size, uint64_t place)
{
	if ((uint64_t) size - place < 8)
		PyErr_Format(PyExc_ValueError, "no whole batch at byte %llu", (unsigned long long) place);
	else
		PyErr_Format(PyExc_ValueError, "the batch of offset %lld is malformed",
					 (long long) load_big((const unsigned char *) octets + place, 8));
	return NULL;
}

static PyObject *
put(PyObject *module, PyObject *arguments)
{
	Py_buffer	buffer;
	Py_buffer	data;
	Py_ssize_t	begin;
	unsigned int other_kinds;
	Table		table;
	Outcome		outcome = DONE;
	uint64_t	place;
	PyObject   *result = NULL;

	(void) module;
	if (!PyArg_ParseTuple(arguments, "w*y*nI:put", &buffer, &data, &begin, &other_kinds))
		return NULL;
	place = (uint64_t) begin;
	if (begin < 0 || begin > data.len || !open_table(&table, &buffer))
		PyErr_SetString(PyExc_IndexError, "a place outside the data, or no table");
	else
	{
		if (data.len - begin <= LOCKED_OCTETS_MAX)
			outcome = put_batches(&table, data.buf, (uint64_t) data.len, &place, other_kinds);
		else
		{
			Py_BEGIN_ALLOW_THREADS
			outcome = put_batches(&table, data.buf, (uint64_t) data.len, &place, other_kinds);
			Py_END_ALLOW_THREADS
		}
		memcpy(buffer.buf, &table.head, sizeof(Head));
		result = outcome == MALFORMED ? raise_malformed(data.buf, data.len, place)
			: PyLong_FromUnsignedLongLong(place);
	}
	PyBuffer_Release(&data);
	PyBuffer_Release(&buffer);
	return result;
}

static PyObject *
get(PyObject *module, PyObject *arguments)
{
	Py_buffer	buffer;
	Py_buffer	key;
	Table		table;
	Entry		entry;
	PyObject   *result = NULL;

	(void) module;
	if (!PyArg_ParseTuple(arguments, "y*y*:get", &buffer, &key))
		return NULL;
	if (!open_table(&table, &buffer))
		PyErr_SetString(PyExc_IndexError, "no table");
	else
	{
		find(&table, hash_of(table.head.seed, key.buf, (uint64_t) key.len), &entry);
		if (entry.place == 0)
			result = Py_NewRef(Py_None);
		else
			result = PyLong_FromLongLong(table.head.start + (int64_t) entry.place - 1);
	}
	PyBuffer_Release(&key);
	PyBuffer_Release(&buffer);
	return result;
}

static PyObject *
sift(PyObject *module, PyObject *arguments)
{
	Py_buffer	buffer;
	Py_buffer	data;
	Py_buffer	out;
	Py_buffer	rewritten;
	Py_buffer	needed;
	Py_ssize_t	begin;
	long long	end;
	long long	now;
	long long	horizon;
	unsigned int other_kinds;
	Table		table;
	Filter		filter = {0};
	Outcome		outcome;
	uint64_t	place;
	PyObject   *result = NULL;

	(void) module;
	if (!PyArg_ParseTuple(arguments, "y*y*nIw*w*y*LLL:sift", &buffer, &data, &begin, &other_kinds, &out, &rewritten,
						  &needed, &end, &now, &horizon))
		return NULL;
	place = (uint64_t) begin;
	if (begin < 0 || begin > data.len || out.len > UINT32_MAX || !open_table(&table, &buffer))
		PyErr_SetString(PyExc_IndexError, "a place outside the data, too large a buffer, or no table");
	else
	{
		filter.table = &table;
		filter.end = end;
		filter.now = now;
		filter.horizon = horizon;
		filter.needed = needed.buf;
		filter.needed_count = (uint64_t) needed.len / 8;
		filter.out = out.buf;
		filter.out_size = (uint64_t) out.len;
		filter.rewritten = rewritten.buf;
		filter.rewritten_max = (uint64_t) rewritten.len / 4;
		if (data.len - begin <= LOCKED_OCTETS_MAX)
			outcome = filter_batches(&filter, data.buf, (uint64_t) data.len, &place, other_kinds);
		else
		{
			Py_BEGIN_ALLOW_THREADS
			outcome = filter_batches(&filter, data.buf, (uint64_t) data.len, &place, other_kinds);
			Py_END_ALLOW_THREADS
		}
		if (outcome == MALFORMED)
			raise_malformed(data.buf, data.len, place);
		else if (outcome == NO_ROOM)
			PyErr_SetString(PyExc_IndexError, "too small a buffer");
		else
			result = Py_BuildValue("(KKKKK)", (unsigned long long) place, (unsigned long long) filter.out_place,
								   (unsigned long long) filter.rewritten_count,
								   (unsigned long long) filter.records_read, (unsigned long long) filter.records_kept);
	}
	PyBuffer_Release(&needed);
	PyBuffer_Release(&rewritten);
	PyBuffer_Release(&out);
	PyBuffer_Release(&data);
	PyBuffer_Release(&buffer);
	return result;
}

static PyObject *
keyless(PyObject *module, PyObject *arguments)
{
	Py_buffer	content;
	Py_ssize_t	end;
	Py_ssize_t	count;
	Py_ssize_t	found_max;
	Record		record;
	PyObject   *found;

	(void) module;
	if (!PyArg_ParseTuple(arguments, "y*nnn:keyless", &content, &end, &count, &found_max))
		return NULL;
	if (end < 0 || end > content.len || count < 0)
	{
		PyBuffer_Release(&content);
		PyErr_SetString(PyExc_IndexError, "an end outside the buffer, or a negative number");
		return NULL;
	}
	found = PyList_New(0);
	if (found)
	{
		const unsigned char *octets = content.buf;
		Cursor		cursor = {octets, octets + end, 0, 0, INT64_MAX};

		for (Py_ssize_t nth = 0; nth < count && PyList_Size(found) < found_max; nth++)
		{
			PyObject   *place = NULL;

			if (!next_record(&cursor, &record))
				PyErr_Format(PyExc_ValueError, "record %zd is malformed", nth);
			else if (record.has_key)
				continue;
			else
				place = PyLong_FromSsize_t(nth);
			if (!place || PyList_Append(found, place) < 0)
			{
				Py_XDECREF(place);
				Py_CLEAR(found);
				break;
			}
			Py_DECREF(place);
		}
	}
	PyBuffer_Release(&content);
	return found;
}

static PyMethodDef methods[] = {
	{"put", put, METH_VARARGS,
	"put(table, data, position, other_kinds)\n--\n\n"
	"Put the keys of the batches from `position` on into the table, up to one that has any of these attributes, or to\n"
	"a key that does not fit. Return the position after the last batch. Raises ValueError."},
	{"get", get, METH_VARARGS, "get(table, key)\n--\n\nReturn the key's last offset, or None."},
	{"sift", sift, METH_VARARGS,
	"sift(table, data, position, other_kinds, out, rewritten, needed, end, now, horizon)\n--\n\n"
	"Write what is left of the batches from `position` on to `out`, up to one that has any of these attributes.\n"
	"Return the position after the last batch, the number of octets in `out` and of places in `rewritten`, which are\n"
	"those of batches that lack their checksum, and the numbers of records that were read and kept. Raises ValueError."},
	{"keyless", keyless, METH_VARARGS,
	"keyless(content, end, count, found_max)\n--\n\n"
	"Return the places of the first `found_max` of `count` records that have no key. Raises ValueError."},
	{NULL, NULL, 0, NULL}
};

static struct PyModuleDef definition = {
	PyModuleDef_HEAD_INIT,
	.m_name = "record_filter",
	.m_doc = "Both passes of the log cleaner over batches that are not compressed (ADR 39).",
	.m_size = 0,
	.m_methods = methods,
};

PyMODINIT_FUNC
PyInit_record_filter(void)
{
	return PyModuleDef_Init(&definition);
}
