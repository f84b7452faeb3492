"""Readers of the fields that topics declare: JSON, fixed layouts, Avro and Protobuf."""
