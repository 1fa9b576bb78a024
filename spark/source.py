"""The Spark data source `format("cordwood")`: batch and streaming readers and writers."""

from dataclasses import replace
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from cordwood.columnar.columns import Columns
from cordwood.spark.batch_source import BatchReader, NarrowingBatchReader
from cordwood.spark.client.delegation import for_executors
from cordwood.spark.errors import WrongSchema, said_plainly
from cordwood.spark.exactly_once.sink import ExactlyOnceBatchSink, ExactlyOnceStreamSink
from cordwood.spark.read_options import ReadMode, read_options
from cordwood.spark.schema import columns_of, ddl
from cordwood.spark.sink import BatchSink, StreamSink
from cordwood.spark.sink_options import SinkOptions, WriteMode, sink_options
from cordwood.spark.stream_source import StreamReader


class DefaultSource(DataSource):
    """The data source. Spark creates it often and in many processes, so it only checks options."""

    _has_reader = False

    def __getstate__(self) -> dict[str, Any]:
        """Return what Spark sends to executors with a reader, which has the options: no options, so no credentials."""
        return {**vars(self), "options": {}} if self._has_reader else vars(self)

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "cordwood"

    def schema(self) -> str:
        """Return the columns of a record as DDL. Raises WrongOption, as do all methods below."""
        with said_plainly():
            return ddl(Columns.all(headers=read_options(self.options).include_headers))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of spark.read."""
        with said_plainly():
            options = read_options(self.options, ReadMode.BATCH)
            reader = NarrowingBatchReader if options.filter_pushdown else BatchReader
            self._has_reader = True
            return reader(options, _columns(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return the reader of spark.readStream."""
        with said_plainly():
            self._has_reader = True
            return StreamReader(read_options(self.options, ReadMode.STREAM), _columns(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of df.write."""
        with said_plainly():
            options = _with_token(sink_options(self.options, _fields(schema), overwrite=overwrite))
            once = options.exactly_once
            return BatchSink(options) if once is None else ExactlyOnceBatchSink(options, once)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802, ARG002
        """Return the writer of df.writeStream. In output mode complete, every batch appends the whole table again."""
        with said_plainly():
            options = sink_options(self.options, _fields(schema), overwrite=False, mode=WriteMode.STREAM)
            options = _with_token(options)
            once = options.exactly_once
            return StreamSink(options) if once is None else ExactlyOnceStreamSink(options, once)


def _with_token(options: SinkOptions) -> SinkOptions:
    """Return the options for a writer, which executors get: with a delegation token, if they ask for it."""
    client, once = for_executors(options.client), options.exactly_once
    return replace(options, client=client, exactly_once=None if once is None else replace(once, client=client))


def _columns(schema: StructType) -> Columns:
    text = schema.json()
    if '"nullable":false' in text or '"containsNull":false' in text:
        raise WrongSchema("every column may be null: leave NOT NULL out of the schema")
    return columns_of(_fields(schema))


def _fields(schema: StructType) -> list[tuple[str, str]]:
    return [(field.name, field.dataType.simpleString()) for field in schema.fields]
