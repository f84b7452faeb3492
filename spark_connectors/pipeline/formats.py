"""The formats of tables. Pure.

Delta and Iceberg come as packages for one minor version of Spark each. On 2026-11-28 neither had one for
Spark 4.3: Iceberg's newest (1.12.0) is for Spark 4.1, and Delta's newest (4.4.1) for none of 4.1 to 4.3.
Until there is one, other programs copy finished tables (docs/pipeline.md).
"""

from __future__ import annotations

from typing import Final

PARQUET: Final = "parquet"
PACKAGES: Final = {
    "delta": "io.delta:delta-spark_",
    "iceberg": "org.apache.iceberg:iceberg-spark-runtime-",
}
FORMATS: Final = (PARQUET, *PACKAGES)


def why_not(name: str, spark: str) -> str:
    """Returns why tables cannot have this format with this version of Spark, and what to do; empty if they
    can.
    """
    if name == PARQUET:
        return ""
    if name not in PACKAGES:
        return f"there is no format {name}; there are {', '.join(FORMATS)}"
    minor = ".".join(spark.split(".")[:2])
    package = f"{PACKAGES[name]}{minor}_2.13"
    return (
        f"tables in {name} need {package}, and this version of treecast knows of none for Spark {minor}:"
        f" leave --format out, and copy finished tables to {name} (docs/pipeline.md, Delta and Iceberg)"
    )
