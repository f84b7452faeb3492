"""The data pipeline: what hosts have sent becomes tables, and tables become advice (docs/pipeline.md).

| module | content |
| --- | --- |
| `tables` | the folder of a pipeline: tables, checkpoints, plans, and their schemas |
| `rows` | records of telemetry as rows. Pure |
| `planning` | what an epoch's advice rests on: ranges of offsets, networks, trials. Pure |
| `quality` | what is wrong with an epoch's data. Pure |
| `advising` | trials as executors run them, and the advice. Pure |
| `minutes`, `measures`, `measuring` | tables by minute and by window: traffic, churn, clusters, links |
| `filters` | which filter would save most at which origin |
| `chunks` | parts of an archive that are computed one after the other. Pure |
| `formats` | Parquet, and why not Delta or Iceberg. Pure |
| `links` | loads of links, and forecasts in words. Pure |
| `generating` | an archive of any size, for tests and measurements |
| `queries` | Spark's queries, one for each concern |
| `running` | a session that runs them in rounds; replay |
| `metrics` | counters of rounds, and findings, for Prometheus. Pure |
| `windows` | the tables of a window, from the files alone |
| `showing` | status and explanation, from the files alone |
"""
