"""Stream-stream join: each flight with the weather of its airport and hour, in any order of arrival."""

from pyspark.sql import DataFrame, functions

from examples.pipelines.tables import FLIGHT, WEATHER, read_flights, read_weather, records
from examples.pipelines.workplace import Workplace, own_workplace

LATE_AT_MOST = "2 hours"
"""The watermark delay: how long one side's state is kept for the other. A later record may find no match."""


def with_weather(flights: DataFrame, weather: DataFrame) -> DataFrame:
    """Return every flight with a weather report for its airport and hour."""
    left = flights.select("row.*").withWatermark("time_hour", LATE_AT_MOST)
    right = weather.select("row.*").withWatermark("time_hour", LATE_AT_MOST)
    return left.join(right, ["origin", "time_hour"])


def run(place: Workplace) -> DataFrame:
    """Join all available records of both topics, and return the table."""
    joined = with_weather(place.read_stream("flights", FLIGHT), place.read_stream("weather", WEATHER))
    place.append(joined, "flights_with_weather")
    return place.spark.read.parquet(place.table("flights_with_weather"))


def main() -> None:
    """Print departure delays by wind speed."""
    with own_workplace() as place:
        place.send("flights", records(read_flights("2013-01-01", "2013-01-08"), key="tailnum"))
        place.send("weather", records(read_weather("2013-01-01", "2013-01-08"), key="origin"))
        by_wind = run(place).groupBy(functions.round("wind_speed", -1).alias("miles per hour"))
        delays = by_wind.agg(functions.count("*").alias("flights"), functions.avg("dep_delay").alias("mean delay"))
        delays.orderBy("miles per hour").show()


if __name__ == "__main__":
    main()
