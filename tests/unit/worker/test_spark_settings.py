"""When a worker warns that Spark's own connections can be listened to."""

from __future__ import annotations

import pytest

from worker.spark import crypted


@pytest.mark.parametrize(
    ("settings", "safe"),
    [
        ({"spark.master": "local[16]"}, True),
        ({"spark.master": "spark://host:7077"}, False),
        ({"spark.master": "yarn", "spark.network.crypto.enabled": "false"}, False),
        ({"spark.master": "yarn", "spark.network.crypto.enabled": "true"}, True),
        ({"spark.master": "k8s://host", "spark.ssl.rpc.enabled": "true"}, True),
    ],
)
def test_connections_of_spark(settings: dict[str, str], safe: bool) -> None:
    assert crypted(settings) is safe
